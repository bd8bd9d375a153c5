package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"1MiB": 1 << 20, "1.5GiB": 3 << 29, "2048KiB": 2 << 20, "64MB": 64e6, "1048576B": 1 << 20, "1TiB": 1 << 40,
		"0.001TB": 1e9,
	} {
		if got, f := sizes(1<<20, 1<<40).parse(text); f != nil || got != want {
			t.Errorf("%s: %d %v, want %d", text, got, f, want)
		}
	}
	for text, do := range map[string]string{
		"256Mi": "write 256MiB", "256m": "write 256MiB", "256M": "write 256MiB", "256mib": "write 256MiB",
		"256mb": "write 256MB", "1G": "write 1GiB",
		"64 MiB": "write 64MiB", "+64MiB": "write 64MiB", "64 parsecs": "its units are KiB, MiB, GiB, KB, MB and GB",
		"much": "write it as 64MiB or 1GiB",
		"64":   "write 64MiB, or the right unit", "67108864": "write 64MiB, or the right unit",
		"": "write one from 1MiB to 1TiB", "1KiB": "write one from 1MiB to 1TiB", "2TiB": "write one from 1MiB to 1TiB",
		"-1MiB":                      "write one from 1MiB to 1TiB",
		"99999999999999999999999TiB": "write one from 1MiB to 1TiB",
	} {
		if _, f := sizes(1<<20, 1<<40).parse(text); f == nil || f.do != do {
			t.Errorf("%q: %v, want %s", text, f, do)
		}
	}
}

func TestDurations(t *testing.T) {
	kind := durations(time.Millisecond, day)
	for text, do := range map[string]string{
		"2 seconds": "write 2s", "1.5 h": "write 1h30m", "2D": "write 48h", "100msec": "write 100ms",
		"3 fortnights":          "its units are ms, s, m and h",
		"99999999999999999999h": "write one from 1ms to 24h", "99999999999999999999 hours": "write one from 1ms to 24h",
		"1µs":   "write one from 1ms to 24h",
		"never": "it cannot be switched off: write one from 1ms to 24h", "1-2s": "write it as 500ms, 2s or 1m30s",
	} {
		if d, f := kind.parse(text); f == nil || f.do != do {
			t.Errorf("%q: %v %v, want %s", text, d, f, do)
		}
	}
}

func TestPercentages(t *testing.T) {
	for text, want := range map[string]float64{"0%": 0, "10%": 0.1, "7%": 0.07, "0.5%": 0.005, "100%": 1, "33.3%": 0.333} {
		got, f := percentages().parse(text)
		if f != nil || got != want || percentages().format(got) != text {
			t.Errorf("%s: %v %v, written back as %s, want %v", text, got, f, percentages().format(got), want)
		}
	}
	for text, do := range map[string]string{
		"": "write one from 0% to 100%", "100.1%": "write one from 0% to 100%", "-1%": "write one from 0% to 100%",
		"10":  "write 10%",
		"0.1": "write 10% if a part of 1 is meant", "0": "write 0%", "none": "write 0%", "off": "write 0%",
		"10 %": "write it as 10%", "+10%": "write it as 10%",
		"10percent": "write it as 10%", "some": "write one from 0% to 100%", "%": "write one from 0% to 100%",
		"1e400%": "write it as 10%",
	} {
		if p, f := percentages().parse(text); f == nil || f.do != do {
			t.Errorf("%q: %v %v, want %s", text, p, f, do)
		}
	}
}

// What a kind writes, it reads as the same value.
func TestWhatIsWrittenIsReadAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(100*day)).Draw(t, "duration"))
		if got, f := durations(1, 100*day).parse(shortDuration(d)); f != nil || got != d {
			t.Fatalf("%s: %v %v", shortDuration(d), got, f)
		}
		n := rapid.Int64Range(1, 1<<40).Draw(t, "size")
		if got, f := sizes(1, 1<<40).parse(formatSize(n)); f != nil || got != n {
			t.Fatalf("%s: %v %v", formatSize(n), got, f)
		}
		part := rapid.Float64Range(0, 1).Draw(t, "part")
		if got, f := percentages().parse(formatPercentage(part)); f != nil || got != part {
			t.Fatalf("%s: %v %v, want %v", formatPercentage(part), got, f, part)
		}
		i := rapid.IntRange(-1e9, 1e9).Draw(t, "integer")
		k := integers[int](-1e9, 1e9)
		if got, f := k.parse(k.format(i)); f != nil || got != i {
			t.Fatalf("%d: %v %v", i, got, f)
		}
	})
}

// No text makes a kind do anything but return a value or a fault that says something.
func TestAnyTextHasAValueOrAFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(),
			rapid.StringMatching(`[-+]?[0-9_.,]{0,25} ?[a-zA-Z/:{}\[\]]{0,5}[0-9]{0,3}`)).Draw(t, "text")
		for _, k := range keys() {
			for _, f := range k.set(&Config{}, []string{text}) {
				if f != nil && (f.what == "" || f.do == "") {
					t.Fatalf("%s: %q: %+v", k.path, text, f)
				}
			}
		}
	})
}

func TestStarts(t *testing.T) {
	const uuid = "3E11FA47-71CA-11E1-9E33-C80AA9429562"
	for text, want := range map[string]Start{
		"now": {Kind: StartNow}, "earliest": {Kind: StartEarliest},
		"binlog.000001:4":                             {Kind: StartFile, File: "binlog.000001", Pos: 4},
		"host-bin.000123:1073741900":                  {Kind: StartFile, File: "host-bin.000123", Pos: 1073741900},
		"gtid:" + uuid + ":1-5:7":                     {Kind: StartGTID, GTIDs: uuid + ":1-5:7"},
		"gtid:" + uuid + ":tag:1-5:other:":            {},
		"gtid:" + uuid + ":tag:1-5,\n " + uuid + ":1": {Kind: StartGTID, GTIDs: uuid + ":tag:1-5," + uuid + ":1"},
		"gtid:0-1-5,1-1-7":                            {Kind: StartGTID, GTIDs: "0-1-5,1-1-7"}, "gtid:": {}, "gtid:0-1": {},
		"gtid:" + uuid:    {},
		"binlog.000001:3": {}, "binlog.000001:-4": {}, "binlog.000001": {}, ":4": {}, "": {}, "/var/lib/mysql/binlog.1:4": {},
		"2024-01-01 10:00:00": {},
	} {
		got, f := parseStart(text)
		if got != want || (f == nil) != (want != Start{}) {
			t.Errorf("%q: %+v %v, want %+v", text, got, f, want)
		}
	}
}
