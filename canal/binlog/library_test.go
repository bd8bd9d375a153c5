package binlog

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// What the decoder says of random rows under random schemas is what go-mysql's own decoder says.
func TestValuesAreThoseOfGoMySQL(t *testing.T) {
	for _, flavor := range []event.Flavor{event.MySQL, event.MariaDB} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := newSource(t, flavor)
			s.do(t, "set global binlog_row_metadata=full")
			r := random(t)
			types := slices.DeleteFunc(testTypes(flavor), func(ty testType) bool {
				return strings.Contains(ty.sql, "compressed") // they break the library's TABLE_MAP
			})
			for round := range rounds(1) {
				w := &wants{info: map[string][]ColumnInfo{}, needs: allColumns}
				events := record(t, s.Server, func() {
					for i, types := range chunks(r, types) {
						name := fmt.Sprintf("t%d_%d", round, i)
						s.create(t, name, types)
						w.info[name] = s.info(t, name)
						s.do(t, "begin")
						s.fill(t, r, name, types, 10)
						s.do(t, "commit", fmt.Sprintf("update d.%s set id=id+1000", name))
					}
				})
				compareWithLibrary(t, s, w, events)
			}
		})
	}
}

func compareWithLibrary(t *testing.T, s *source, w *wants, events [][]byte) {
	library := libraryRows(t, s, events)
	d, err := New(w, Options{})
	testbed.Must(t, err)
	rows := 0
	compare := func(c *event.Change, what string, values []event.Value) {
		if len(library) == 0 {
			t.Fatal("the library has no more rows")
		}
		for i := range values {
			if got, want := ours(&values[i], library[0][i], &c.Table.Columns[i]); got != want {
				t.Errorf("%s: %s %s: column %s %s: %s, the library says %s (raw %x)", s.flavor, c.Table, what,
					c.Table.Columns[i].Name,
					c.Table.Columns[i].Type, got, want, values[i].Raw)
			}
		}
		library = library[1:]
		rows++
	}
	testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
		if c.Before != nil {
			compare(c, "before", c.Before)
		}
		if c.After != nil {
			compare(c, "after", c.After)
		}
		return nil
	}))
	if rows < 100 || len(library) > 0 {
		t.Errorf("%d row images, the library has %d more", rows, len(library))
	}
}

// libraryRows returns all row images as the library decodes them.
func libraryRows(t *testing.T, s *source, events [][]byte) [][]any {
	p := replication.NewBinlogParser()
	p.SetFlavor(string(s.flavor))
	p.SetTimestampStringLocation(time.UTC)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	var out [][]any
	for _, ev := range events {
		e, err := p.Parse(ev)
		testbed.Must(t, err)
		if rows, ok := e.Event.(*replication.RowsEvent); ok {
			out = append(out, rows.Rows...)
		}
	}
	return out
}

// ours renders a value of the decoder, and the library's, so that they can be compared.
func ours(v *event.Value, library any, c *event.Column) (string, string) {
	if library == nil {
		return fmt.Sprint(v.Kind), fmt.Sprint(event.Null)
	}
	little := func() uint64 { return littleEndianUint(v.Raw) }
	want := fmt.Sprint(library)
	switch l := library.(type) {
	case float32:
		return fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(v.Raw))), want
	case float64:
		return fmt.Sprint(math.Float64frombits(binary.LittleEndian.Uint64(v.Raw))), want
	case []byte:
		if c.Class == event.ClassJSON {
			return "", "" // rendered by the library
		}
		return fmt.Sprintf("%x", v.Raw), fmt.Sprintf("%x", l)
	case string:
		switch c.Class {
		case event.ClassDecimal:
			return strings.TrimLeft(string(v.Text), "0"), strings.TrimLeft(l, "0")
		case event.ClassTemporal:
			return zeroDate(string(v.Text)), zeroDate(l)
		case event.ClassJSON:
			return "", ""
		}
		return fmt.Sprintf("%x", v.Raw), fmt.Sprintf("%x", l)
	case int64:
		if c.Class == event.ClassBinary { // BIT
			return fmt.Sprint(int64(bigEndianUint(v.Raw))), want
		}
		if c.Class == event.ClassEnum {
			return fmt.Sprint(int64(little())), want
		}
	}
	if v.Kind == event.Int {
		return fmt.Sprint(int64(v.Num)), want
	}
	return fmt.Sprint(v.Num), want
}

// zeroDate leaves out a fraction that is zero: the library has none in zero dates and times.
func zeroDate(s string) string {
	if whole, frac, ok := strings.Cut(s, "."); ok && strings.Trim(frac, "0") == "" {
		return whole
	}
	return s
}
