package record

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

func TestTheSampleMark(t *testing.T) {
	got, err := ParseMark([]byte(sampleMark))
	want := Mark{
		Mark: event.Mark{
			Source: "main", Term: 3, Version: event.Version{Epoch: 1, File: 112, Pos: 5230, Row: 2},
			Server: "u1", Made: time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC), Read: true,
		},
		AsOf: time.Date(2026, 3, 1, 11, 59, 59, 0, time.UTC), Ends: []int64{7, -1, 0},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

func TestAMarkComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Mark{
			Mark: event.Mark{
				Source: rapid.StringN(1, 9, -1).Draw(t, "source"), Term: rapid.Uint64().Draw(t, "term"),
				Version: versions.Draw(t, "version"), Server: rapid.String().Draw(t, "server"),
				Made: times.Draw(t, "made"), Read: rapid.Bool().Draw(t, "read"),
			},
			AsOf: times.Draw(t, "as of"), Ends: rapid.SliceOf(rapid.Int64Min(-1)).Draw(t, "ends"),
		}
		markAgain(t, m)
	})
}

// markAgain makes sure that a mark is written as what is understood.
func markAgain(t interface{ Fatalf(string, ...any) }, m Mark) {
	data := m.Append([]byte("before"))
	got, err := ParseMark(data[len("before"):])
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	for _, at := range []*time.Time{&m.Made, &m.AsOf} {
		if !at.IsZero() {
			*at = at.Truncate(time.Microsecond).UTC()
		}
	}
	if len(m.Ends) == 0 {
		m.Ends = nil
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Fatalf("%s: %s", data, d)
	}
}

func TestWhatIsNoMarkIsRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{sampleMark, ``, "an object"},
		{sampleMark, `{"format":1}`, "format, source, term, version and read"},
		{sampleMark, sampleMark + `,`, "the end of the document"},
		{`"main"`, `""`, "a source that has a name"},
		{`true`, `1`, "true or false"},
		{`true`, `truE`, "true or false"},
		{`true`, `fals`, "true or false"},
		{`-1`, `-2`, "an offset"},
		{`-1`, `-0`, "an offset"},
		{`-1`, `- 1`, "an offset"},
		{`-1`, `9223372036854775808`, "an offset"},
		{`[7,-1,0]`, `[` + strings.Repeat("1,", 100_000) + `1]`, "fewer partitions"},
		{`"read":true`, `"read":true,"read":true`, "a field not to come twice"},
	} {
		_, err := ParseMark(change(t, sampleMark, c.old, c.new))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "mark: malformed at byte ") ||
			!strings.Contains(err.Error(), "want "+c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	m, err := ParseMark(change(t, sampleMark, `"read":true`, `"new":[{}],"read":false`))
	if err != nil || m.Read {
		t.Errorf("%+v, %v", m, err)
	}
}
