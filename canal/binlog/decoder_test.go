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

// mixed is a transaction with rows of shop.product and of shop.other.
func mixed() *maker {
	var m maker
	m.begin(1)
	m.productMap()
	other := func(n int) {
		b := binary.LittleEndian.AppendUint32(nil, 78)
		b = append(b, 0, 0, 1, 0)
		m.add(TypeTableMap, append(b, "\x04shop\x00\x05other\x00\x01\x03\x00\x00"...))
		b = append(b[:6], 0, 0, 2, 0, 1, 1)
		for i := range n {
			b = append(b, 0xfe, byte(i), 0, 0, 0)
		}
		m.add(TypeWriteRowsV2, b)
	}
	m.productRows(TypeWriteRowsV2, 1, 3)
	other(4)
	m.productMap()
	m.productRows(TypeUpdateRowsV2, 1, 2)
	other(1)
	m.commit()
	return &m
}

// ordinals reads events and returns the versions' rows of shop.product.
func ordinals(t *testing.T, d *Decoder, events [][]byte) []uint32 {
	t.Helper()
	var got []uint32
	testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
		if c.Table.Name == "product" {
			got = append(got, c.Version.Row)
		}
		return nil
	}))
	return got
}

// both is a Definer that wants shop.other too.
type both struct{ product }

func (b *both) Wanted(schema, name []byte) bool { return true }

func (b *both) Define(m *TableMap) (*Definition, error) {
	if m.Name == "product" {
		return b.product.Define(m)
	}
	return Describe(m, []ColumnInfo{{Name: "a", Type: "int"}}, nil)
}

// Within a payload the ordinals go on over its events, and do not depend on which tables are wanted.
func TestOrdinalsDoNotDependOnWhatIsWanted(t *testing.T) {
	needs := []event.Need{{Column: 0, Text: true}}
	compressed := packed(t, mixed(), mixed())
	plain := &maker{}
	plain.format("9.7.4")
	plain.events = append(plain.events, mixed().events...)
	for name, definer := range map[string]Definer{"one table": &product{needs}, "all tables": &both{product{needs}}} {
		d, err := New(definer, Options{})
		testbed.Must(t, err)
		// Tables that were first seen outside of a payload are counted inside as well.
		if got, want := ordinals(t, d, plain.events), []uint32{1, 2, 3, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("%s: got rows %v, want %v", name, got, want)
		}
		if got, want := ordinals(t, d, compressed.events[1:]),
			[]uint32{1, 2, 3, 8, 9, 1, 2, 3, 8, 9}; !slices.Equal(got, want) {
			t.Errorf("%s, compressed: got rows %v, want %v", name, got, want)
		}
	}
}

// Rows of a table that nobody wants, and that cannot be decoded, are no obstacle, compressed or not.
func TestUnwantedTablesNeedNotBeUnderstood(t *testing.T) {
	var m maker
	m.begin(1)
	b := binary.LittleEndian.AppendUint32(nil, 99)
	b = append(b, 0, 0, 1, 0)
	m.add(TypeTableMap, append(b, "\x04shop\x00\x05other\x00\x01\xde\x00\x00"...)) // a column type 222
	m.add(TypeWriteRowsV2, append(b[:6], 0, 0, 2, 0, 1, 1, 0xfe, 1, 2))
	m.productMap()
	m.productRows(TypeWriteRowsV2, 1, 1)
	m.commit()
	for _, work := range []*maker{packed(t, &m), {append(packed(t).events, m.events...)}} {
		d, err := New(&product{[]event.Need{{Column: 0, Text: true}}}, Options{})
		testbed.Must(t, err)
		if got := ordinals(t, d, work.events); !slices.Equal(got, []uint32{1}) {
			t.Errorf("rows %v", got)
		}
		d, err = New(&both{}, Options{})
		testbed.Must(t, err)
		if err := decode(t, d, work.events, nil); err == nil || !strings.Contains(err.Error(), "type 222") {
			t.Errorf("a wanted table of unknown types: %v", err)
		}
	}
}

// counting counts how often it is asked.
type counting struct {
	product
	asked, defined int
}

func (c *counting) Wanted(schema, name []byte) bool {
	c.asked++
	return c.product.Wanted(schema, name)
}

func (c *counting) Define(m *TableMap) (*Definition, error) {
	c.defined++
	return c.product.Define(m)
}

// A definition is asked for once, and again after a difference, Forget, and a FORMAT_DESCRIPTION.
func TestDefinitionsAreKeptUntilSomethingChanges(t *testing.T) {
	m := mixed()
	c := &counting{product: product{[]event.Need{{Column: 0, Text: true}}}}
	d, err := New(c, Options{})
	testbed.Must(t, err)
	expect := func(what string, asked, defined int) {
		t.Helper()
		if c.asked != asked || c.defined != defined {
			t.Errorf("%s: asked %d times for %d definitions, want %d for %d", what, c.asked, c.defined, asked, defined)
		}
	}
	ordinals(t, d, m.events)
	ordinals(t, d, m.events)
	expect("twice the same", 2, 1)
	d.Forget()
	ordinals(t, d, m.events)
	expect("forgotten", 4, 2)
	var f maker
	f.format("9.7.4")
	ordinals(t, d, append(f.events, m.events...))
	expect("a new file", 6, 3)
	i := slices.IndexFunc(m.events, func(ev []byte) bool { return Type(ev[4]) == TypeTableMap })
	changed := slices.Clone(m.events)
	changed[i] = slices.Clone(changed[i])
	changed[i][len(changed[i])-1] ^= 1 // id becomes nullable
	ordinals(t, d, changed)
	expect("changed, and back", 8, 5)
	flags := slices.Clone(m.events)
	flags[i] = slices.Clone(flags[i])
	flags[i][HeaderSize+6] ^= 2
	ordinals(t, d, flags)
	expect("other flags", 8, 5)
}

var errStop = errors.New("enough")

func TestErrorsOfTheCallerComeBackAsTheyAre(t *testing.T) {
	for _, work := range []*maker{{append(packed(t).events, mixed().events...)}, packed(t, mixed())} {
		d, err := New(&product{[]event.Need{{Column: 0, Text: true}}}, Options{})
		testbed.Must(t, err)
		rows := 0
		err = decode(t, d, work.events, func(*event.Change) error {
			if rows++; rows == 2 {
				return errStop
			}
			return nil
		})
		if err != errStop || rows != 2 {
			t.Errorf("%v after %d rows", err, rows)
		}
		// And the decoder goes on with the next one.
		if got := ordinals(t, d, work.events[1:]); len(got) != 5 {
			t.Errorf("then rows %v", got)
		}
	}
}

func TestRowsNeedTheirTableMap(t *testing.T) {
	d := primed(t, false)
	m := mixed()
	for _, ev := range m.events {
		h, body, err := d.Split(ev)
		testbed.Must(t, err)
		if !h.Type.IsRows() {
			continue
		}
		if err := feed(d, h, body); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "table id") {
			t.Errorf("rows without TABLE_MAP: %v", err)
		}
	}
	// Only the end of a statement, of no table.
	end := []byte{0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 2, 0, 1, 0xff}
	if err := feed(d, Header{Type: TypeWriteRowsV2}, end); err != nil {
		t.Errorf("the end of a statement: %v", err)
	}
}

// A label that is not known makes the value absent, so that it becomes no wrong key; the row goes on.
func TestUnknownLabelsAreAbsent(t *testing.T) {
	d := primed(t, false)
	d.definer = labelled{
		{Name: "e", Type: "enum('a','b')"},
		{Name: "s", Type: "set('a','b')"},
		{Name: "i", Type: "tinyint"},
	}
	b := []byte{1, 0, 0, 0, 0, 0, 1, 0}
	testbed.Must(t, d.TableMap(append(b, "\x01d\x00\x01t\x00\x03\xfe\xfe\x01\x04\xf7\x01\xf8\x01\x00"...)))
	var got []string
	var c event.Change
	rows := append(b[:6], 0, 0, 2, 0, 3, 7)
	for _, r := range [][]byte{{0xf8, 1, 3, 7}, {0xf8, 3, 1, 8}, {0xf8, 0, 4, 9}} {
		rows = append(rows, r...)
	}
	testbed.Must(t, d.Rows(Header{Type: TypeWriteRowsV2}, rows, &c, func(c *event.Change) error {
		got = append(got, fmt.Sprintf("%d %q %d %q %d", c.After[0].Kind, c.After[0].Text, c.After[1].Kind, c.After[1].Text,
			c.After[2].Num))
		return nil
	}))
	want := []string{`5 "a" 5 "a,b" 7`, `0 "" 5 "a" 8`, `5 "" 0 "" 9`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The servers write a question mark for what utf8mb3 lacks where they say what a column is. Where the binlog does not
// tell the labels either, such a label is not known, and no key is made of it.
func TestALabelThatTheServerCannotTellIsAbsent(t *testing.T) {
	for _, c := range []struct {
		collation string
		want      []string
	}{
		{"utf8mb4_bin", []string{`0 "" 5 "b"`, `5 "b" 0 ""`}},
		{"utf16_bin", []string{`0 "" 5 "b"`, `5 "b" 0 ""`}},
		{"", []string{`0 "" 5 "b"`, `5 "b" 0 ""`}},
		{"latin1_bin", []string{`5 "a?" 5 "b"`, `5 "b" 5 "b,a?"`}},
		{"binary", []string{`5 "a?" 5 "b"`, `5 "b" 5 "b,a?"`}},
	} {
		d := primed(t, false)
		d.definer = labelled{
			{Name: "e", Type: "enum('a?','b')", Collation: c.collation},
			{Name: "s", Type: "set('b','a?')", Collation: c.collation},
		}
		b := []byte{1, 0, 0, 0, 0, 0, 1, 0}
		testbed.Must(t, d.TableMap(append(b, "\x01d\x00\x01t\x00\x02\xfe\xfe\x04\xf7\x01\xf8\x01\x00"...)))
		var got []string
		var change event.Change
		rows := append(b[:6], 0, 0, 2, 0, 2, 3, 0xfc, 1, 1, 0xfc, 2, 3)
		testbed.Must(t, d.Rows(Header{Type: TypeWriteRowsV2}, rows, &change, func(c *event.Change) error {
			got = append(got, fmt.Sprintf("%d %q %d %q", c.After[0].Kind, c.After[0].Text, c.After[1].Kind, c.After[1].Text))
			return nil
		}))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.collation, got, c.want)
		}
	}
}

type labelled []ColumnInfo

func (labelled) Wanted(schema, name []byte) bool { return true }

func (l labelled) Define(m *TableMap) (*Definition, error) {
	d, err := Describe(m, l, nil)
	if err == nil {
		d.Needs = allColumns(d)
	}
	return d, err
}

func TestChecksumsAreVerifiedWhenAsked(t *testing.T) {
	events := load(t, "mysql").events
	damaged := slices.Clone(events[5])
	damaged[HeaderSize+3] ^= 1
	for _, verify := range []bool{false, true} {
		d, err := New(nothing{}, Options{VerifyChecksums: verify})
		testbed.Must(t, err)
		_, _, err = d.Split(events[1])
		testbed.Must(t, err)
		if _, body, err := d.Split(events[5]); err != nil || len(body) != len(events[5])-HeaderSize-4 {
			t.Errorf("verify %v: %d bytes of %d, %v", verify, len(body), len(events[5]), err)
		}
		if _, _, err := d.Split(damaged); errors.Is(err, ErrDamaged) != verify {
			t.Errorf("verify %v: a damaged event: %v", verify, err)
		}
	}
}
