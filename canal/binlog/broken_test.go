package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// between is a Definer that knows shop.product, and of shop.other what define says.
type between struct {
	product
	define func(m *TableMap) (*Definition, error)
}

func (b *between) Wanted(schema, name []byte) bool { return true }

func (b *between) Define(m *TableMap) (*Definition, error) {
	if m.Name == "product" {
		return b.product.Define(m)
	}
	return b.define(m)
}

// survive feeds events, and returns the rows of shop.product and what was said of other tables, and recovered from.
func survive(t *testing.T, d *Decoder, events [][]byte) (rows []uint32, said []string) {
	t.Helper()
	var c event.Change
	var one func(h Header, body []byte) error
	one = func(h Header, body []byte) (err error) {
		defer func() {
			if p := recover(); p != nil {
				said = append(said, d.Failed(errors.New("panic")).Error())
			}
			var te *TableError
			if errors.As(err, &te) {
				said, err = append(said, te.Error()), nil
			}
		}()
		switch {
		case h.Type == TypeTableMap:
			return d.TableMap(body)
		case h.Type.IsRows():
			if !d.payload.open {
				c.Version.Row = 0
			}
			return d.Rows(h, body, &c, func(c *event.Change) error {
				if c.Table.Name == "product" {
					rows = append(rows, c.Version.Row)
				}
				return nil
			})
		case h.Type == TypeTransactionPayload:
			c.Version.Row = 0
			return unfold(d, body, one)
		}
		return nil
	}
	for _, ev := range events {
		h, body, err := d.Split(ev)
		testbed.Must(t, err)
		testbed.Must(t, one(h, body))
	}
	return rows, said
}

// Whatever is wrong with one table: every row of the others comes, with the version that it would have had.
func TestATableThatCannotBeDecodedHoldsUpNoOther(t *testing.T) {
	needs := []event.Need{{Column: 0, Text: true}}
	for what, c := range map[string]struct {
		define func(m *TableMap) (*Definition, error)
		want   string
	}{
		"its columns cannot be known": {func(*TableMap) (*Definition, error) {
			return nil, fmt.Errorf("%w: it is gone", ErrUndefined)
		}, "table shop.other: the definition of the table is not known: it is gone"},
		"its definition does not fit": {func(m *TableMap) (*Definition, error) {
			return &Definition{Table: &event.Table{}, Needs: needs}, nil
		}, "table shop.other: a definition of 0 columns (0 attributes) for 1"},
		"the text of a column cannot be known": {func(m *TableMap) (*Definition, error) {
			d, err := Describe(m, []ColumnInfo{{Name: "a", Type: "int"}}, nil)
			d.Columns[0].Unknown, d.Needs = errors.New("it may be zero-filled"), needs
			return d, err
		}, "table shop.other, column a: it may be zero-filled"},
		"defining it panics": {func(m *TableMap) (*Definition, error) { panic("boo") }, "table shop.other: panic"},
	} {
		for name, events := range map[string][][]byte{
			"plain": append(packed(t).events, mixed().events...), "compressed": packed(t, mixed()).events,
		} {
			d, err := New(&between{product{needs}, c.define}, Options{})
			testbed.Must(t, err)
			want := []uint32{1, 2, 3, 1, 2}
			if name == "compressed" {
				want = []uint32{1, 2, 3, 8, 9}
			}
			rows, said := survive(t, d, events)
			if strings.HasPrefix(what, "defining") {
				want = rows // without a plan its rows cannot be counted
			}
			if !slices.Equal(rows, want) || len(rows) != 5 {
				t.Errorf("%s, %s: rows %v, want %v", what, name, rows, want)
			}
			if len(said) < 2 || said[0] != c.want {
				t.Errorf("%s, %s: said %q, want %q", what, name, said, c.want)
			}
		}
	}
}

func TestWhatCannotBeToldIsAbsentAndTheRestOfTheRowComes(t *testing.T) {
	var m maker
	b := binary.LittleEndian.AppendUint32(nil, 78)
	b = append(b, 0, 0, 1, 0)
	m.add(TypeTableMap, append(b, "\x04shop\x00\x05other\x00\x02\x03\x03\x00\x00"...))
	m.add(TypeWriteRowsV2, append(b[:6], 0, 0, 2, 0, 2, 3, 0xfc, 7, 0, 0, 0, 8, 0, 0, 0))
	d, err := New(&between{define: func(m *TableMap) (*Definition, error) {
		d, err := Describe(m, []ColumnInfo{{Name: "a", Type: "int"}, {Name: "b", Type: "int"}}, nil)
		d.Columns[0].Unknown, d.Needs = errors.New("it may be zero-filled"), allText(2)
		return d, err
	}}, Options{})
	testbed.Must(t, err)
	var got []string
	err = decode(t, d, append(packed(t).events, m.events...), func(c *event.Change) error {
		got = append(got, fmt.Sprintf("%d %d %d", c.After[0].Kind, c.After[1].Kind, c.After[1].Num))
		return nil
	})
	var te *TableError
	if !errors.As(err, &te) || te.Table != "other" || te.Column != "a" {
		t.Errorf("%v", err)
	}
	if want := fmt.Sprintf("%d %d 8", event.Absent, event.Int); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func allText(n int) (needs []event.Need) {
	for i := range n {
		needs = append(needs, event.Need{Column: i, Text: true})
	}
	return needs
}

func TestAPanicNamesTableAndColumn(t *testing.T) {
	var m maker
	b := binary.LittleEndian.AppendUint32(nil, 78)
	b = append(b, 0, 0, 1, 0)
	m.add(TypeTableMap, append(b, "\x04shop\x00\x05other\x00\x02\x03\xf7\x02\xf7\x01\x00"...))
	m.add(TypeWriteRowsV2, append(b[:6], 0, 0, 2, 0, 2, 3, 0xfc, 7, 0, 0, 0, 1))
	m.productMap()
	m.productRows(TypeWriteRowsV2, 1, 1)
	d, err := New(&between{product{allText(1)}, func(m *TableMap) (*Definition, error) {
		d, err := Describe(m, []ColumnInfo{{Name: "a", Type: "int"}, {Name: "e", Type: "enum('x')"}}, nil)
		d.Needs = allText(2)
		return d, err
	}}, Options{})
	testbed.Must(t, err)
	events := append(packed(t).events, m.events...)
	decoded := events[:2]
	survive(t, d, decoded)
	d.last.plan.columns[1].attributes = nil // what the printing of a label needs
	rows, said := survive(t, d, events[2:])
	if !slices.Equal(said, []string{"table shop.other, column e: panic"}) || len(rows) != 1 {
		t.Errorf("said %q, rows %v", said, rows)
	}
}
