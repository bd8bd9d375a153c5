package canal

import (
	"errors"
	"testing"
)

func TestPositionsAreCountedInSixtyFourBits(t *testing.T) {
	const g4 = 1 << 32
	for _, c := range []struct {
		name         string
		pos          uint64
		size, logPos uint32
		floor        uint64
		limit        uint32
		want         uint64 // 0: nonsense
	}{
		{"the sizes add up", 4, 123, 127, 0, 0, 127},
		{"no word on the end", 1000, 50, 0, 0, 0, 1050},
		{"across 4 GiB", g4 - 10, 20, 10, 0, 0, g4 + 10},
		{"beyond 8 GiB", 2*g4 + 100, 20, 120, 0, 0, 2*g4 + 120},
		{"ends exactly on 4 GiB, which reads as no word", g4 - 10, 10, 0, 0, 0, g4},
		{"something left out", 100, 20, 170, 0, anyJump >> 1, 170},
		{"something left out across 4 GiB", g4 - 100, 20, 70, 0, anyJump >> 1, g4 + 70},
		{"nothing may be left out", 100, 20, 170, 0, 0, 0},
		{"it never goes back", 100, 20, 110, 0, anyJump >> 1, 0},
		{"all of a large file left out", 198, 80, 500, g4 + 400, anyJump, g4 + 500},
		{"it never goes back, even where anything may be left out", 389, 0, 349, 0, anyJump, 0},
		{"left out without a floor", 198, 80, 500, 0, anyJump, 500},
		{"the floor does not matter where the sizes add up", 4, 123, 127, g4, anyJump, 127},
	} {
		p := binlogPos{file: "binlog.000001", number: 1, pos: c.pos}
		err := p.pass(c.size, c.logPos, c.floor, c.limit)
		if (c.want == 0) != (err != nil) || (err == nil && p.pos != c.want) {
			t.Errorf("%s: %d, %v; want %d", c.name, p.pos, err, c.want)
		}
		if err != nil && !errors.Is(err, errNonsense) {
			t.Errorf("%s: %v is not told as nonsense", c.name, err)
		}
	}
}

func TestPlacesOrderByFileNumber(t *testing.T) {
	at := func(file string, pos uint64) binlogPos {
		t.Helper()
		p, err := binlogPosOf(file, pos)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ordered := []binlogPos{
		at("binlog.000009", 900), at("binlog.000010", 4), at("binlog.000010", 5<<32),
		at("binlog.999999", 4), at("binlog.1000000", 4),
	}
	for i := range ordered[1:] {
		if ordered[i].compare(ordered[i+1]) >= 0 || ordered[i+1].compare(ordered[i]) <= 0 {
			t.Errorf("%s is not before %s", ordered[i], ordered[i+1])
		}
	}
	if p := at("mysql-bin.old.000112", 4); p.number != 112 {
		t.Errorf("file number %d, want 112", p.number)
	}
	for _, bad := range []string{"", "binlog", "binlog.", "binlog.x1", "binlog.99999999999"} {
		if _, err := binlogPosOf(bad, 4); err == nil {
			t.Errorf("%q passed for a binlog file", bad)
		}
	}
}
