package binlog

import (
	"encoding/binary"
	"strconv"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// bulk is inserts in events of 8 KiB, as binlog_row_event_max_size makes them.
func bulk() (*maker, int) {
	var m maker
	m.format("9.7.4")
	rows := 0
	for range 20 {
		m.begin(rows + 1)
		m.productMap()
		for range 6 {
			m.productRows(TypeWriteRowsV2, rows, 85)
			rows += 85
		}
		m.commit()
	}
	return &m, rows
}

// updates is transactions of so many updates of one row each, with all events around them.
func updates(perTransaction int) (*maker, int) {
	var m maker
	m.format("9.7.4")
	for i := range 1000 {
		if i%perTransaction == 0 {
			m.begin(i + 1)
		}
		m.productMap()
		m.productRows(TypeUpdateRowsV2, i, 1)
		if (i+1)%perTransaction == 0 {
			m.commit()
		}
	}
	return &m, 1000
}

// bare goes through the events as simply as can be, knowing one table shape, and makes a key from the first column of
// each row: the ceiling of the job.
func bare(events [][]byte, keys []byte) ([]byte, int) {
	var types []byte
	var meta []uint16
	rows := 0
	for _, ev := range events {
		switch b := ev[HeaderSize:]; Type(ev[4]) {
		case TypeTableMap:
			if types == nil {
				types = []byte{8, 15, 15, 3, 246, 3, 18}
				meta = []uint16{0, 256, 512, 0, 10<<8 | 2, 0, 3}
			}
		case TypeWriteRowsV2, TypeUpdateRowsV2, TypeDeleteRowsV2:
			p := 8 + int(binary.LittleEndian.Uint16(b[8:]))
			n := int(b[p])
			p++
			nulls := (n + 7) / 8
			p += nulls
			update := Type(ev[4]) == TypeUpdateRowsV2
			if update {
				p += nulls
			}
			for image := 0; p < len(b); image++ {
				nb := b[p : p+nulls]
				p += nulls
				for i := range n {
					if nb[i>>3]&(1<<(i&7)) != 0 {
						continue
					}
					if i == 0 && (!update || image&1 == 0) {
						keys = append(keys[:0], "product:"...)
						keys = strconv.AppendUint(keys, binary.LittleEndian.Uint64(b[p:]), 10)
						rows++
					}
					p += bareLength(b[p:], types[i], meta[i])
				}
			}
		}
	}
	return keys, rows
}

func bareLength(b []byte, t byte, m uint16) int {
	switch t {
	case 3:
		return 4
	case 8:
		return 8
	case 15:
		if m < 256 {
			return 1 + int(b[0])
		}
		return 2 + int(binary.LittleEndian.Uint16(b))
	case 246:
		return decimalSize(int(m>>8), int(m&0xff))
	case 18:
		return 5 + int(m+1)/2
	}
	panic(t)
}

// reader does what a reader does with the decoder, and makes the same keys.
type reader struct {
	d    *Decoder
	c    event.Change
	keys []byte
	rows int
	each func(*event.Change) error
	// inner is r.one, made once.
	inner func(h Header, body []byte) error
}

func newReader(t testing.TB, needs ...event.Need) *reader {
	r := &reader{}
	var err error
	r.d, err = New(&product{needs: needs}, Options{})
	testbed.Must(t, err)
	r.inner = r.one
	r.each = func(c *event.Change) error {
		values := c.After
		if values == nil {
			values = c.Before
		}
		r.keys = append(r.keys[:0], "product:"...)
		r.keys = values[0].AppendText(r.keys)
		r.rows++
		return nil
	}
	return r
}

// product is the Definer of the benchmarks.
type product struct{ needs []event.Need }

func (p *product) Wanted(schema, name []byte) bool { return string(name) == "product" }

func (p *product) Define(m *TableMap) (*Definition, error) {
	d, err := Describe(m, productColumns(), nil)
	if err == nil {
		d.Needs = p.needs
	}
	return d, err
}

func (r *reader) read(events [][]byte) error {
	for _, ev := range events {
		h, body, err := r.d.Split(ev)
		if err == nil {
			err = r.one(h, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) one(h Header, body []byte) (err error) {
	switch h.Type {
	case TypeTableMap:
		err = r.d.TableMap(body)
	case TypeGTID:
		_, err = ParseGTID(h, body)
	case TypeQuery:
		_, err = r.d.ParseQuery(h, body)
	case TypeXID:
	case TypeTransactionPayload:
		err = unfold(r.d, body, r.inner)
	default:
		if h.Type.IsRows() {
			err = r.d.Rows(h, body, &r.c, r.each)
		}
	}
	return err
}

// The decoder compared with the bare loop: the same events, the same keys.
func BenchmarkRows(b *testing.B) {
	key := []event.Need{{Column: 0, Text: true}}
	three := []event.Need{{Column: 0, Text: true}, {Column: 1, Text: true}, {Column: 4, Text: true}}
	for _, work := range []struct {
		name string
		make func() (*maker, int)
	}{
		{"bulk insert", bulk},
		{"updates, 100 a transaction", func() (*maker, int) { return updates(100) }},
		{"updates, 1 a transaction", func() (*maker, int) { return updates(1) }},
	} {
		m, rows := work.make()
		perRow := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
			b.ReportMetric(0, "ns/op")
		}
		b.Run(work.name+"/bare", func(b *testing.B) {
			var keys []byte
			for b.Loop() {
				keys, _ = bare(m.events, keys)
			}
			perRow(b)
		})
		for _, n := range []struct {
			name  string
			needs []event.Need
		}{{"key", key}, {"three columns", three}, {"all columns", allNeeds()}, {"unwanted", nil}} {
			b.Run(work.name+"/"+n.name, func(b *testing.B) {
				r := newReader(b, n.needs...)
				if n.needs == nil {
					r.d.definer = nothing{}
				}
				testbed.Must(b, r.read(m.events[:1]))
				b.ReportAllocs()
				for b.Loop() {
					testbed.Must(b, r.read(m.events[1:]))
				}
				if want := b.N * rows; n.needs != nil && r.rows != want {
					b.Fatalf("%d rows, want %d", r.rows, want)
				}
				perRow(b)
			})
		}
	}
}

// nothing wants no rows.
type nothing struct{}

func (nothing) Wanted(schema, name []byte) bool       { return false }
func (nothing) Define(*TableMap) (*Definition, error) { return nil, nil }

func allNeeds() []event.Need {
	var all []event.Need
	for i := range productColumns() {
		all = append(all, event.Need{Column: i, Text: true})
	}
	return all
}

// Compressed transactions, of one row and of many.
func BenchmarkPayload(b *testing.B) {
	for _, rows := range []int{1, 5000} {
		var one maker
		one.begin(1)
		one.productMap()
		for i := 0; i < rows; i += 85 {
			one.productRows(TypeWriteRowsV2, i, min(85, rows-i))
		}
		one.commit()
		m := packed(b, &one)
		b.Run(strconv.Itoa(rows)+" rows", func(b *testing.B) {
			r := newReader(b, event.Need{Column: 0, Text: true})
			testbed.Must(b, r.read(m.events[:1]))
			b.ReportAllocs()
			for b.Loop() {
				testbed.Must(b, r.read(m.events[1:]))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
		})
	}
}

// Decoding allocates nothing, whatever is needed of a row, compressed or not.
func TestDecodingAllocatesNothing(t *testing.T) {
	inserts, n := bulk()
	changes, m := updates(1)
	compressed := packed(t, &maker{inserts.events[1:]}, &maker{changes.events[1:]})
	for name, work := range map[string]*maker{"inserts": inserts, "updates": changes, "compressed": compressed} {
		r := newReader(t, allNeeds()...)
		read := func() { testbed.Must(t, r.read(work.events[1:])) }
		testbed.Must(t, r.read(work.events))
		if allocs := testing.AllocsPerRun(5, read); allocs > 50 { // what the race detector does to a pool
			t.Errorf("%s: %v allocations in %d rows", name, allocs, n+m)
		}
	}
}
