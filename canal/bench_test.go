package canal

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// tape is events of one binlog file, to be read by a loop again and again.
type tape struct {
	list [][]byte
	pos  uint64 // after the last one
}

// add adds a copy of an event at the tape's end, edited, with its size, place and checksum put right.
func (p *tape) add(ev []byte, edit func(ev []byte) []byte) {
	const crc = 4
	ev = edit(append([]byte(nil), ev[:len(ev)-crc]...))
	p.pos += uint64(len(ev) + crc)
	binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)+crc))
	binary.LittleEndian.PutUint32(ev[13:], uint32(p.pos))
	p.list = append(p.list, binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev)))
}

// recordedTransaction returns what MySQL 9.7.4 wrote for an UPDATE of one row of shop.product, with its default
// metadata: the FORMAT_DESCRIPTION of the file, then GTID, QUERY, TABLE_MAP, UPDATE_ROWS and XID.
func recordedTransaction(t testing.TB) [][]byte {
	t.Helper()
	b, err := os.ReadFile("testdata/one-row.events")
	testbed.Must(t, err)
	var events [][]byte
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b[9:])
		events = append(events, b[:n])
		b = b[n:]
	}
	return events
}

// transactions is a tape of so many transactions, each with one row event that holds the row so many times.
func transactions(t testing.TB, n, rows int) *tape {
	const number = binlog.HeaderSize + 1 + 16                // of the GTID
	const images = binlog.HeaderSize + 6 + 2 + 2 + 1 + 1 + 1 // of the first row
	p := &tape{pos: 4}
	recorded := recordedTransaction(t)
	p.add(recorded[0], func(ev []byte) []byte { return ev })
	for i := range n {
		for _, ev := range recorded[1:] {
			p.add(ev, func(ev []byte) []byte {
				switch h, _ := binlog.ParseHeader(append(ev, 0, 0, 0, 0)); {
				case h.Type == binlog.TypeGTID:
					binary.LittleEndian.PutUint64(ev[number:], uint64(i+1))
				case h.Type.IsRows():
					ev[binlog.HeaderSize+6] &^= 1 << 4 // foreign keys are InnoDB's: what they change is not logged
					for row := ev[images:]; rows > 1 && len(ev) < images+rows*len(row); {
						ev = append(ev, row...)
					}
				}
				return ev
			})
		}
	}
	return p
}

// listener is a sink that wants the id of each row and adds up ends, as every sink must.
type listener struct {
	*recorder
	end  event.End
	rows int
	ids  uint64
	// bound are the definitions that it was told.
	bound map[*event.Table]int
}

func (l *listener) Bind(t *event.Table) ([]event.Need, error) {
	l.bound[t]++
	return []event.Need{{Column: 0, Text: true}}, nil
}

func (l *listener) Row(c *event.Change) error {
	l.rows++
	l.ids += c.Before[0].Num
	return nil
}

func (l *listener) Commit(_ *event.Tx, end event.End) error {
	l.end.Add(end)
	return nil
}

func (l *listener) Flush() error {
	l.flushes++
	l.end = event.End{GTIDs: l.end.GTIDs[:0]}
	return nil
}

// player is a loop that plays a tape.
type player struct {
	*hand
	*tape
	sink *listener
}

func play(t testing.TB, p *tape, wanted bool) *player {
	t.Helper()
	s := &listener{recorder: newRecorder(), bound: map[*event.Table]int{}}
	c, err := New(Options{
		Address: "x", User: "u", Alarms: newBoard(t, quietLogger(t)), Wanted: func(string, string) bool { return wanted },
	}, binding(s), s)
	testbed.Must(t, err)
	l := &hand{c.loop, s, s.Row}
	l.ctx = t.Context()
	l.flavor, l.byGTID, l.epoch, l.server = event.MySQL, true, 1, "s"
	testbed.Must(t, l.tables.restore(nil))
	st := l.tables.parse(binlog.Header{}, &binlog.Query{Charset: 255, ServerCharset: 255, SQL: []byte(
		`CREATE TABLE shop.product (id BIGINT PRIMARY KEY AUTO_INCREMENT, sku VARCHAR(64) NOT NULL, name VARCHAR(128),
			category_id INT, price DECIMAL(10,2), stock INT, updated_at DATETIME(3)) DEFAULT CHARSET=utf8mb4`,
	)})
	l.tables.tracker.Apply(&st)
	l.at = at(4)
	testbed.Must(t, l.event(p.list[0]))
	return &player{hand: l, tape: p, sink: s}
}

// refer makes the table that is played a parent: a foreign key of a wanted one refers to a column.
func (p *player) refer(column string) {
	p.o.Wanted = func(_, table string) bool { return table == "item" }
	p.o.WantedFolded = p.o.Wanted
	p.tables.cascading.take(p.tables, []foreignKey{{
		Name: "k", Child: ddl.Name{Schema: "shop", Table: "item"}, Parent: ddl.Name{Schema: "shop", Table: "product"},
		Columns: []string{"of"}, Referenced: []string{column}, OnDelete: cascades, OnUpdate: cascades,
	}}, nil, binlogPos{})
	p.dec.Forget()
}

// once plays all transactions, as if they came for the first time.
func (p *player) once(t testing.TB) {
	p.at.pos = 4 + uint64(len(p.list[0]))
	p.done, p.last = p.at, event.Version{}
	for _, ev := range p.list[1:] {
		if err := p.event(ev); err != nil {
			t.Fatal(err)
		}
	}
	testbed.Must(t, p.handOn())
}

// What the loop does with a transaction from the bytes to the sink, without the network and without the sink's work.
func BenchmarkLoop(b *testing.B) {
	for _, work := range []struct {
		name     string
		n, rows  int
		unmapped bool
		parent   string // the column that foreign keys of a wanted table refer to
	}{
		{"one row", 1000, 1, false, ""},
		{"one row of an unmapped table", 1000, 1, true, ""},
		{"events of 50 rows", 100, 50, false, ""},
		{"events of 50 rows of an unmapped table", 100, 50, true, ""},
		{"one row of a parent", 1000, 1, true, "id"},
		{"one row of a parent, with a doubt", 1000, 1, true, "stock"},
		{"events of 50 rows of a parent", 100, 50, true, "id"},
		{"events of 50 rows of a parent, with a doubt", 100, 50, true, "stock"},
	} {
		b.Run(work.name, func(b *testing.B) {
			p := play(b, transactions(b, work.n, work.rows), !work.unmapped)
			if work.parent != "" {
				p.refer(work.parent)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.once(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(work.n*work.rows), "ns/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// A parent's rows cost little, and a row that leads to a doubt hardly more: what is known of it is made once.
func TestAParentsRowsAllocateNothing(t *testing.T) {
	const n = 1000
	for column, doubts := range map[string]int{"id": 0, "stock": 1} {
		p := play(t, transactions(t, n, 1), false)
		p.refer(column)
		p.once(t)
		p.once(t)
		if allocs := testing.AllocsPerRun(5, func() { p.once(t) }); allocs > n/100 {
			t.Errorf("%s: %v allocations in %d transactions", column, allocs, n)
		}
		if got := len(p.tables.cascading.doubts); got != doubts || p.sink.rows != 0 {
			t.Errorf("%s: the last row led to %d doubts, want %d; %d rows were handed out", column, got, doubts, p.sink.rows)
		}
	}
}

func TestReadingATransactionAllocatesNothing(t *testing.T) {
	const n = 1000
	for _, wanted := range []bool{true, false} {
		p := play(t, transactions(t, n, 1), wanted)
		p.once(t)
		p.once(t)
		if allocs := testing.AllocsPerRun(5, func() { p.once(t) }); allocs > n/100 { // what is done once in a while
			t.Errorf("wanted %v: %v allocations in %d transactions", wanted, allocs, n)
		}
		if want := map[bool]int{true: 8 * n}[wanted]; p.sink.rows != want {
			t.Errorf("wanted %v: %d rows, want %d", wanted, p.sink.rows, want)
		}
		if p.transactions != 8*n {
			t.Errorf("wanted %v: %d transactions, want %d", wanted, p.transactions, 8*n)
		}
	}
}
