package canal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// newBook returns a book of doubts that is kept in memory.
func newBook(t testing.TB) *doubt.Book {
	t.Helper()
	b, err := doubt.New(nil, newBoard(t, quietLogger(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// inDoubt returns the tables whose rows could not be read, and the messages that say so.
func inDoubt(b *doubt.Book) (tables, messages []string) {
	for _, d := range b.List() {
		if d.Cause == alarm.EventUndecodable {
			tables = append(tables, strings.Join(d.Tables, " "))
			messages = append(messages, d.Message)
		}
	}
	slices.Sort(tables)
	return tables, messages
}

// panicky is a sink that fails over rows of the table bad, and over the definition of the table worse.
type panicky struct{ *recorder }

func (p *panicky) Bind(t *event.Table) ([]event.Need, error) {
	if t.Name == "worse" {
		panic("secret")
	}
	return p.recorder.Bind(t)
}

func (p *panicky) Row(c *event.Change) error {
	if c.Table.Name == "bad" && c.After != nil && c.After[0].Num%5 == 2 {
		var none []int
		none[c.After[1].Num]++
	}
	return p.recorder.Row(c)
}

// syncBuffer is what a logger writes to.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// A panic over the rows of one table leaves that table in doubt, by name and position, and every row of the others
// comes; so it is again after a restart from before it. No value of the row is said or logged.
func TestAPanicOverOneTableStopsNoOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.good (id int primary key)", "create table DB.bad (id int primary key, n int)",
			"create table DB.worse (id int primary key)")
		begin := here(t, s)
		d.exec("insert into DB.bad values (1,5)", "begin", "insert into DB.good values (1)",
			"insert into DB.bad values (2,424242),(3,5)", "insert into DB.worse values (1)", "insert into DB.good values (2)",
			"commit",
			"insert into DB.bad values (4,5)")
		want := []string{"insert DB.bad (1,5)", "insert DB.good (1)", "insert DB.good (2)", "insert DB.bad (4,5)"}
		if s.Flavor == testbed.FlavorMySQL {
			d.exec("set session binlog_transaction_compression=ON", "begin", "insert into DB.bad values (5,5)",
				"update DB.bad set id=7, n=424242 where id=4",
				"insert into DB.good values (3)", "commit", "set session binlog_transaction_compression=OFF")
			want = append(want, "insert DB.bad (5,5)", "insert DB.good (3)")
		}
		for range 2 {
			rec := startAt(begin)
			var log syncBuffer
			o := d.options()
			o.Doubts, o.Logger = newBook(t), slog.New(slog.NewTextHandler(&log, nil))
			r := readingInto(t, rec, &panicky{rec}, o)
			r.wantRows(d, want...)
			end := here(t, s)
			r.await(t, "the end", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			tables, messages := inDoubt(o.Doubts)
			if !slices.Equal(tables, []string{d.name + ".bad", d.name + ".worse"}) {
				t.Errorf("in doubt: %q", tables)
			}
			said := strings.Join(messages, "\n") + log.text()
			for _, word := range []string{begin.File + ":", "Row", "contain_test.go"} {
				if !strings.Contains(said, word) {
					t.Errorf("%s is not said in %s", word, said)
				}
			}
			if strings.Contains(said, "424242") || strings.Contains(said, "secret") {
				t.Errorf("a value is said in %s", said)
			}
		}
	})
}

// summed adds a checksum to an event that has room for it in its size.
func summed(ev []byte) []byte {
	binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)+4))
	binary.LittleEndian.PutUint32(ev[13:], binary.LittleEndian.Uint32(ev[13:])+4)
	return binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
}

// What cannot be decoded although its checksum is right was written so, and is passed over at once; without a checksum
// it is asked for once more first. A wrong checksum is never passed over.
func TestRowsThatCannotBeDecodedAreOneTablesDoubt(t *testing.T) {
	id := []byte{78, 0, 0, 0, 0, 0}
	tableMap := append(append(slices.Clone(id), 1, 0), "\x04shop\x00\x05other\x00\x01\xde\x00\x00"...) // a column type 222
	rows := append(slices.Clone(id), 0, 0, 2, 0, 1, 1, 0xfe, 1, 2)
	// an int, of which two bytes come
	short := append(append(slices.Clone(id), 1, 0), "\x04shop\x00\x05other\x00\x01\x03\x00\x00"...)
	for what, c := range map[string]struct {
		tableMap []byte
		checksum bool
		retries  int
	}{
		"an unknown type, with checksum": {tableMap, true, 0}, "an unknown type": {tableMap, false, 0},
		"a row cut short, with checksum": {short, true, 0}, "a row cut short": {short, false, 1},
	} {
		l, r := fed(t)
		l.o.Doubts = newBook(t)
		st := l.tables.parse(binlog.Header{},
			&binlog.Query{SQL: []byte("create table shop.other (a int)"), Schema: []byte("shop")})
		l.tables.tracker.Apply(&st)
		event := func(t binlog.Type, body ...byte) error {
			ev := rawEvent(l.at.pos, t, 0, body...)
			if c.checksum {
				ev = summed(ev)
			}
			return l.event(ev)
		}
		format := append(make([]byte, 2+50+4), binlog.HeaderSize)
		copy(format[2:], "9.7.4")
		format[0] = 4
		format = append(append(format, make([]byte, 41)...), byte(map[bool]int{true: 1}[c.checksum]), 0, 0, 0, 0)
		ask := func() error {
			if err := l.event(rawEvent(4, binlog.TypeFormatDescription, 0, format...)); err != nil {
				t.Fatal(err)
			}
			if err := event(binlog.TypeTableMap, c.tableMap...); err != nil {
				return err
			}
			return event(binlog.TypeWriteRowsV2, rows...)
		}
		for range c.retries {
			err := ask()
			var ee *EventError
			if !errors.As(err, &ee) || !isDoubtful(err) || l.disconnected(err) != nil {
				t.Fatalf("%s: %v, want it asked for again", what, err)
			}
			l.dec.Reset()
			l.at = at(4)
		}
		if tables, _ := inDoubt(l.o.Doubts); tables != nil {
			t.Errorf("%s: %q in doubt too early", what, tables)
		}
		if err := ask(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		tables, messages := inDoubt(l.o.Doubts)
		if !slices.Equal(tables, []string{"shop.other"}) || !strings.Contains(messages[0], "binlog.000001:") ||
			len(r.rows) > 0 {
			t.Errorf("%s: %q in doubt: %q", what, tables, messages)
		}
		if c.checksum {
			bad := summed(rawEvent(l.at.pos, binlog.TypeWriteRowsV2, 0, rows...))
			bad[len(bad)-1] ^= 1
			if err := l.event(bad); !isDoubtful(err) {
				t.Errorf("%s: a wrong checksum: %v", what, err)
			}
		}
	}
}
