package binlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// chunks splits the types into tables: a row has at most 64 KiB, and NULLs, offsets and neighbours should vary.
func chunks(r *rand.Rand, types []testType) [][]testType {
	types = slices.Clone(types)
	r.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	var out [][]testType
	for len(types) > 0 {
		n := min(len(types), 12+r.IntN(20))
		out = append(out, types[:n])
		types = types[n:]
	}
	return out
}

// A value's text is what the server prints for it: every type, with all that binlog_row_metadata may say or not.
func TestTextIsWhatTheServerPrints(t *testing.T) {
	for _, flavor := range []event.Flavor{event.MySQL, event.MariaDB} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := newSource(t, flavor)
			r := random(t)
			modes := []string{"full", "minimal"}
			if flavor == event.MariaDB {
				modes = append(modes, "no_log")
			}
			for round := range rounds(1) {
				for _, mode := range modes {
					s.do(t, "set global binlog_row_metadata="+mode)
					testTexts(t, s, r, mode, round)
				}
			}
		})
	}
}

func testTexts(t *testing.T, s *source, r *rand.Rand, mode string, round int) {
	w := &wants{info: map[string][]ColumnInfo{}, needs: allColumns}
	tables := chunks(r, testTypes(s.flavor))
	want := map[string]map[string][]*string{}
	events := record(t, s.Server, func() {
		for i, types := range tables {
			name := fmt.Sprintf("%s%d_%d", strings.ReplaceAll(mode, "_", ""), round, i)
			s.create(t, name, types)
			s.fill(t, r, name, types, 20)
			want[name] = s.texts(t, name, types)
			w.info[name] = s.info(t, name)
			s.do(t, "delete from d."+name)
		}
	})
	byName := func(name string) []testType {
		i, err := strconv.Atoi(name[strings.LastIndexByte(name, '_')+1:])
		testbed.Must(t, err)
		return tables[i]
	}
	for _, stripped := range []bool{false, true} {
		if stripped { // as of MySQL 5.7, which has no metadata at all
			if mode != "minimal" {
				continue
			}
			events = stripMetadata(t, events)
		}
		d, err := New(w, Options{VerifyChecksums: !stripped})
		testbed.Must(t, err)
		inserted, deleted := 0, 0
		err = decode(t, d, events, func(c *event.Change) error {
			types := byName(c.Table.Name)
			needs := d.last.def.Needs
			what := fmt.Sprintf("%s %s %s", s.flavor, mode, c.Op)
			switch c.Op {
			case event.Insert:
				inserted++
				check(t, what, types, needs, c.After, want[c.Table.Name])
			case event.Delete:
				deleted++
				check(t, what, types, needs, c.Before, want[c.Table.Name])
			}
			return nil
		})
		testbed.Must(t, err)
		total := 0
		for _, rows := range want {
			total += len(rows)
		}
		if inserted != total || deleted != total {
			t.Errorf("%s %s: %d rows inserted and %d deleted, want %d", s.flavor, mode, inserted, deleted, total)
		}
	}
	for _, m := range w.maps {
		full := strings.Contains(m.Name, "full")
		if m.HasNames != full && m.HasNames {
			t.Errorf("%s: TABLE_MAP of %s has names", mode, m.Name)
		}
	}
}

// stripMetadata returns the events without the optional metadata of TABLE_MAPs, and without checksums.
func stripMetadata(t testing.TB, events [][]byte) [][]byte {
	d, err := New(&wants{}, Options{})
	testbed.Must(t, err)
	var out [][]byte
	for _, ev := range events {
		h, body, err := d.Split(ev)
		testbed.Must(t, err)
		switch h.Type {
		case TypeFormatDescription:
			ev = slices.Clone(ev)
			ev[len(ev)-5] = 0
		case TypeTableMap:
			c := cursor{b: body}
			c.skip(8)
			c.name()
			c.name()
			types := c.bytes(c.size())
			c.bytes(c.size())
			c.bytes((len(types) + 7) / 8)
			ev = remake(ev, body[:len(body)-len(c.rest())])
		default:
			ev = remake(ev, body)
		}
		out = append(out, ev)
	}
	return out
}

// remake returns the event with another body, and without checksum.
func remake(ev, body []byte) []byte {
	out := append(slices.Clone(ev[:HeaderSize]), body...)
	n := len(out)
	out[9], out[10], out[11], out[12] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return out
}

// The temporal types of MariaDB 5.3, which newer versions still write when asked: their length is not in the binlog.
func TestOldTemporalTypes(t *testing.T) {
	t.Parallel()
	s := newSource(t, event.MariaDB, "--mysql56-temporal-format=OFF")
	r := random(t)
	var types []testType
	for digits := range 7 {
		types = append(types, temporal(digits)...)
	}
	for _, mode := range []string{"full", "no_log"} {
		s.do(t, "set global binlog_row_metadata="+mode)
		var want map[string][]*string
		w := &wants{info: map[string][]ColumnInfo{}, needs: allColumns}
		events := record(t, s.Server, func() {
			s.create(t, mode, types)
			s.fill(t, r, mode, types, 50)
			want, w.info[mode] = s.texts(t, mode, types), s.info(t, mode)
		})
		d, err := New(w, Options{})
		testbed.Must(t, err)
		rows := 0
		testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
			rows++
			check(t, mode, types, d.last.def.Needs, c.After, want)
			return nil
		}))
		if rows != len(want) || w.maps[0].Columns[1].Type != ColumnDatetime {
			t.Errorf("%d rows of %d, type %s", rows, len(want), w.maps[0].Columns[1].Type)
		}
		// Without the columns' definitions the length of a row cannot be known: an error, not a guess.
		w.info = map[string][]ColumnInfo{}
		d, err = New(w, Options{})
		testbed.Must(t, err)
		if err := decode(t, d, events, func(*event.Change) error { return nil }); err == nil {
			t.Errorf("%s: rows of unknown length were decoded", mode)
		}
	}
}
