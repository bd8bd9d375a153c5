package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// anything is a Definer that makes something of any TABLE_MAP, and needs all of it.
type anything struct{}

func (anything) Wanted(schema, name []byte) bool { return true }

func (anything) Define(m *TableMap) (*Definition, error) {
	d := &Definition{
		Table:   &event.Table{Schema: m.Schema, Name: m.Name, Columns: make([]event.Column, len(m.Columns))},
		Columns: make([]Attributes, len(m.Columns)),
	}
	gbk, _ := charset.Find("gbk", m.Flavor)
	for i := range m.Columns {
		mc, a := &m.Columns[i], &d.Columns[i]
		*a = Attributes{
			Class: columnKinds[mc.Type].class, Unsigned: i%2 == 0, Scale: uint8(i % 8),
			Labels: []string{"a", "b", "c"},
		}
		switch i % 5 {
		case 0:
			a.Charset = gbk
		case 1:
			a.Zerofill = 7
		case 2:
			a.Scale = NoScale
		}
		switch {
		case mc.Type == ColumnString && mc.Meta == 16 && i%3 == 0:
			a.Class = event.ClassUUID
		case mc.Type == ColumnString && (mc.Meta == 16 || mc.Meta == 4) && i%3 == 1:
			a.Class = event.ClassInet
		}
		d.Needs = append(d.Needs, event.Need{Column: i, Text: mc.Type == ColumnJSON || a.Class != event.ClassJSON &&
			mc.Type != ColumnNull})
	}
	return d, nil
}

// primed returns a decoder that has read a FORMAT_DESCRIPTION of the flavor.
func primed(t testing.TB, maria bool) *Decoder {
	d, err := New(anything{}, Options{})
	testbed.Must(t, err)
	var m maker
	version := "9.7.4"
	if maria {
		version = "10.11.19-MariaDB"
	}
	m.format(version)
	_, _, err = d.Split(m.events[0])
	testbed.Must(t, err)
	return d
}

// each calls f for every event of the recordings.
func each(t testing.TB, f func(maria bool, h Header, body []byte)) {
	for _, name := range []string{"mysql", "mariadb"} {
		d, err := New(nothing{}, Options{})
		testbed.Must(t, err)
		for _, ev := range load(t, name).events {
			h, body, err := d.Split(ev)
			testbed.Must(t, err)
			f(name == "mariadb", h, body)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, name := range []string{"mysql", "mariadb"} {
		events := load(f, name).events
		f.Add(events[0], events[1])
		f.Add(events[1], events[2])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, err := New(nothing{}, Options{VerifyChecksums: true})
		testbed.Must(t, err)
		for _, ev := range [][]byte{first, second} {
			h, body, err := d.Split(ev)
			if err == nil && (len(body) > len(ev)-HeaderSize || int(h.Size) != len(ev)) {
				t.Errorf("%d bytes of body of an event of %d", len(body), len(ev))
			}
		}
	})
}

func FuzzEvent(f *testing.F) {
	each(f, func(maria bool, h Header, body []byte) {
		if !h.Type.IsRows() {
			f.Add(maria, byte(h.Type), body)
		}
	})
	f.Add(false, byte(TypeIncident), []byte("\x01\x00\x04lost"))
	f.Add(false, byte(TypeHeartbeat), []byte("binlog.000001"))
	f.Add(false, byte(TypeHeartbeatV2), []byte("\x01\x01a\x02\x01\x04\x00"))
	f.Fuzz(func(t *testing.T, maria bool, typ byte, body []byte) {
		err := feed(primed(t, maria), Header{Type: Type(typ)}, body)
		if err != nil && !errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "unsupported") &&
			!strings.HasPrefix(err.Error(), "table ") {
			t.Errorf("an error that does not say what it is: %v", err)
		}
	})
}

func FuzzRows(f *testing.F) {
	var table []byte
	each(f, func(maria bool, h Header, body []byte) {
		switch {
		case h.Type == TypeTableMap:
			table = body
		case h.Type.IsRows():
			f.Add(maria, table, byte(h.Type), body)
		}
	})
	f.Fuzz(func(t *testing.T, maria bool, table []byte, typ byte, body []byte) {
		if !Type(typ).IsRows() {
			return
		}
		d := primed(t, maria)
		if feed(d, Header{Type: TypeTableMap}, table) != nil {
			return
		}
		err := feed(d, Header{Type: Type(typ)}, body)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("an error that does not say what it is: %v", err)
		}
		// The same again: nothing must be left of the first time.
		if again := feed(d, Header{Type: Type(typ)}, body); (err == nil) != (again == nil) {
			t.Errorf("%v, and then %v", err, again)
		}
	})
}

// some is a Definer that needs what anything does, of the columns of a set, and their text in another one.
type some struct{ columns, texts uint64 }

func (some) Wanted(schema, name []byte) bool { return true }

func (s some) Define(m *TableMap) (*Definition, error) {
	d, err := anything{}.Define(m)
	var needs []event.Need
	for _, n := range d.Needs {
		if s.columns>>(n.Column%64)&1 != 0 {
			n.Text = n.Text && s.texts>>(n.Column%64)&1 != 0
			needs = append(needs, n)
		}
	}
	d.Needs = needs
	return d, err
}

// images returns the values of all row images of an event by column, the number of rows that were counted, and the
// error.
func images(t *testing.T, definer Definer, maria bool, table []byte, typ Type, body []byte) (all []map[int]event.Value,
	rows uint32, err error,
) {
	d := primed(t, maria)
	d.definer = definer
	d.payload.open = true // where rows of tables that nobody wants are counted
	if err := d.TableMap(table); err != nil {
		return nil, 0, err
	}
	var c event.Change
	err = d.Rows(Header{Type: typ}, body, &c, func(c *event.Change) error {
		for _, values := range [][]event.Value{c.Before, c.After} {
			image := map[int]event.Value{}
			for i, v := range values {
				v.Raw, v.Text = bytes.Clone(v.Raw), bytes.Clone(v.Text)
				image[d.last.def.Needs[i].Column] = v
			}
			all = append(all, image)
		}
		return nil
	})
	return all, c.Version.Row, err
}

// FuzzNeeds holds what is stepped over against what is decoded: whichever columns are needed, the values of those are
// the same, the rows are as many, and a row that can be decoded can be stepped over. No text is out of proportion.
func FuzzNeeds(f *testing.F) {
	var table []byte
	masks := []uint64{0, 1, 1 << 1, 0x5555555555555555, 1<<63 | 1<<20}
	each(f, func(maria bool, h Header, body []byte) {
		switch {
		case h.Type == TypeTableMap:
			table = body
		case h.Type.IsRows():
			m := masks[len(body)%len(masks)]
			f.Add(maria, table, byte(h.Type), body, m, ^m^7)
		}
	})
	f.Fuzz(func(t *testing.T, maria bool, table []byte, typ byte, body []byte, columns, texts uint64) {
		if !Type(typ).IsRows() {
			return
		}
		whole, n, err := images(t, anything{}, maria, table, Type(typ), body)
		part, partN, partErr := images(t, some{columns, texts}, maria, table, Type(typ), body)
		_, counted, countErr := images(t, nothing{}, maria, table, Type(typ), body)
		switch {
		case err == nil && (partErr != nil || countErr != nil):
			t.Fatalf("what can be decoded cannot be stepped over: %v, %v", partErr, countErr)
		case err == nil && (n != partN || n != counted && counted != 0):
			t.Fatalf("%d rows, with fewer needs %d, and without %d", n, partN, counted)
		case partErr == nil && countErr == nil && partN != counted && counted != 0:
			t.Fatalf("%d rows, and without needs %d", partN, counted)
		}
		for i, image := range part[:min(len(part), len(whole))] {
			for column, got := range image {
				want := whole[i][column]
				if got.Kind == event.Opaque && want.Kind != event.Null && want.Kind != event.Absent {
					got.Kind, got.Text, got.Num = want.Kind, want.Text, want.Num // the text was not asked for
				}
				if want.Kind != event.Absent &&
					(got.Kind != want.Kind || !bytes.Equal(got.Raw, want.Raw) || !bytes.Equal(got.Text, want.Text) ||
						got.Num != want.Num) {
					t.Errorf("column %d of image %d is %+v, and %+v when all are needed", column, i, got, want)
				}
				if len(want.Text) > 2*jsonGrowth*len(want.Raw)+1024 {
					t.Errorf("%d bytes became %d", len(want.Raw), len(want.Text))
				}
			}
		}
	})
}

func FuzzDescribe(f *testing.F) {
	var table []byte
	each(f, func(maria bool, h Header, body []byte) {
		if h.Type == TypeTableMap {
			table = body
		}
	})
	f.Add(table, "int(5) unsigned zerofill", "enum('a','it''s','x\\\\y')")
	f.Add(table, "DOUBLE PRECISION", "national varchar(20)")
	f.Add(table, "float(7,3)", "datetime(3) /* mariadb-5.3 */")
	f.Fuzz(func(t *testing.T, table []byte, a, b string) {
		for _, text := range []string{a, b} {
			if ty, err := parseSQLType(text); err == nil && ty.base == "" {
				t.Errorf("%q has no type", text)
			}
		}
		m, err := parseTableMap(table, nil)
		if err != nil {
			return
		}
		info := make([]ColumnInfo, len(m.Columns))
		for i := range info {
			info[i] = ColumnInfo{Name: "c", Type: []string{a, b}[i%2], Collation: "latin1_swedish_ci"}
		}
		d, err := Describe(m, info, nil)
		if err == nil && (len(d.Columns) != len(m.Columns) || len(d.Table.Columns) != len(m.Columns)) {
			t.Errorf("%d columns of %d", len(d.Columns), len(m.Columns))
		}
	})
}

// A few bytes that claim to unfold to much must not take much memory before they have.
func TestClaimsTakeNoMemory(t *testing.T) {
	var flat bytes.Buffer
	z := zlib.NewWriter(&flat)
	_, err := z.Write([]byte("little"))
	testbed.Must(t, err)
	testbed.Must(t, z.Close())
	query := append(make([]byte, 13), 0)
	query = append(append(query, 0x84, 0x3f, 0xff, 0xff, 0xff), flat.Bytes()...)

	enc, err := zstd.NewWriter(nil)
	testbed.Must(t, err)
	defer enc.Close()
	inner := make([]byte, 40)
	binary.LittleEndian.PutUint32(inner[9:], 1<<30) // an event of 1 GiB
	frame := enc.EncodeAll(inner, nil)
	payload := append([]byte{
		payloadSize, 1, byte(len(frame)), payloadCompression, 1, 0, payloadUncompressed, 9, 0xfe, 0,
		0, 0, 0x40, 0, 0, 0, 0, 0,
	}, frame...)

	wide := append([]byte{1, 0, 0, 0, 0, 0, 1, 0}, "\x01d\x00\x01t\x00"...)
	wide = append(wide, 0xfe, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0) // 2^31 columns

	for _, c := range []struct {
		h    Header
		body []byte
	}{
		{Header{Type: TypeMariaQueryCompressed}, query},
		{Header{Type: TypeTransactionPayload}, payload},
		{Header{Type: TypeTableMap}, wide},
		{Header{Type: TypeXAPrepare}, []byte{0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f}},
	} {
		d := primed(t, false)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := feed(d, c.h, c.body)
		runtime.ReadMemStats(&after)
		if c.h.Type == TypeTableMap && err == nil {
			err = d.last.broken // the rows would say so
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want damage", c.h.Type, err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 8<<20 {
			t.Errorf("%s: %d bytes that claim much took %d bytes (%v)", c.h.Type, len(c.body), taken, err)
		}
	}
}

// A stream that maps tables forever, without ending a statement or with, does not fill the memory.
func TestTablesAreForgotten(t *testing.T) {
	tableMap := func(id int) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(id))
		b = append(b, 0, 0, 1, 0)
		b = append(b, "\x01d\x00\x01t\x00\x01\x03\x00\x00"...)
		return b
	}
	d := primed(t, false)
	var c event.Change
	none := func(*event.Change) error { return nil }
	for id := range 3 * maxTables {
		testbed.Must(t, d.TableMap(tableMap(id)))
		rows := append(tableMap(id)[:6], statementEnd, 0, 2, 0, 1, 1)
		testbed.Must(t, d.Rows(Header{Type: TypeWriteRowsV2}, rows, &c, none))
	}
	if len(d.tables) > maxTables+1 {
		t.Errorf("%d tables are kept", len(d.tables))
	}
	d = primed(t, false)
	var err error
	for id := 0; id < 3*maxTables && err == nil; id++ {
		err = d.TableMap(tableMap(id))
	}
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "tables") {
		t.Errorf("a statement with %d tables: %v", 3*maxTables, err)
	}
}

// A wide table that the server opens again and again, under another id each time, is not kept once for each.
func TestThePlansOfWideTablesAreBoundedInBytes(t *testing.T) {
	const columns = 4000
	d := primed(t, false)
	var c event.Change
	for id := range 750 {
		b := binary.LittleEndian.AppendUint32(nil, uint32(id))
		b = append(b, "\x00\x00\x01\x00\x01d\x00\x01t\x00\xfc"...)
		b = binary.LittleEndian.AppendUint16(b, columns)
		b = append(b, bytes.Repeat([]byte{byte(ColumnTiny)}, columns)...)
		b = append(append(b, 0), make([]byte, columns/8)...)
		testbed.Must(t, d.TableMap(b))
		rows := append(b[:6:6], statementEnd, 0, 2, 0, 0xfc, columns&0xff, columns>>8)
		rows = append(rows, bytes.Repeat([]byte{0xff}, columns/8)...)
		testbed.Must(t, d.Rows(Header{Type: TypeWriteRowsV2}, rows, &c, func(*event.Change) error { return nil }))
		kept := 0
		for _, t := range d.tables {
			kept += len(t.plan.columns) * int(unsafe.Sizeof(column{}))
		}
		if kept > maxTableBytes {
			t.Fatalf("%d plans of %d bytes are kept after %d tables", len(d.tables), kept, id+1)
		}
	}
}
