package schema

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// record is a stretch of a server's binlog. It is a [Scanner].
type record struct {
	file    string
	mariaDB bool
	// format is the FORMAT_DESCRIPTION, events what follows the place where the record begins.
	format []byte
	events []recorded
}

type recorded struct {
	begin, end uint64
	raw        []byte
}

// dump records the binlog from a place to its end.
func dump(t testing.TB, s *testbed.Server, from BinlogPos, mariaDB bool) *record {
	t.Helper()
	c, err := client.Connect(s.Addr, s.User, s.Password, "")
	testbed.Must(t, err)
	defer c.Close()
	_, err = c.Execute("set @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32', @mariadb_slave_capability=4")
	testbed.Must(t, err)
	const nonBlock = 1
	b := append(make([]byte, 4, 64), mysql.COM_BINLOG_DUMP)
	b = binary.LittleEndian.AppendUint32(b, uint32(from.Pos))
	b = binary.LittleEndian.AppendUint16(b, nonBlock)
	b = binary.LittleEndian.AppendUint32(b, 0xfffffff1) // a server id that no other replica has
	c.ResetSequence()
	testbed.Must(t, c.WritePacket(append(b, from.File...)))
	r := &record{file: from.File, mariaDB: mariaDB}
	at := from.Pos
	for {
		p, err := c.ReadPacket()
		testbed.Must(t, err)
		if p[0] == mysql.EOF_HEADER && len(p) < 9 {
			return r
		}
		if p[0] != mysql.OK_HEADER {
			t.Fatalf("dump from %s: %q", from, p)
		}
		raw := slices.Clone(p[1:])
		h, err := binlog.ParseHeader(raw)
		testbed.Must(t, err)
		switch {
		case h.Type == binlog.TypeFormatDescription:
			r.format = raw
		case h.LogPos != 0 && h.Type != binlog.TypeRotate:
			r.events = append(r.events, recorded{at, uint64(h.LogPos), raw})
			at = uint64(h.LogPos)
		}
	}
}

// starts returns the places between transactions.
func (r *record) starts() []int {
	var out []int
	for i, ev := range r.events {
		switch h, _ := binlog.ParseHeader(ev.raw); h.Type {
		case binlog.TypeGTID, binlog.TypeAnonymousGTID, binlog.TypeMariaGTID:
			out = append(out, i)
		}
	}
	return out
}

func (r *record) decoder(t *binlogDefiner) (*binlog.Decoder, error) {
	d, err := binlog.New(t, binlog.Options{})
	if err == nil {
		_, _, err = d.Split(r.format)
	}
	return d, err
}

// statement reads a QUERY; ok is false for other events.
func (r *record) statement(d *binlog.Decoder, h binlog.Header, body []byte) (st ddl.Statement, ok bool, err error) {
	if h.Type != binlog.TypeQuery {
		return st, false, nil
	}
	q, err := d.ParseQuery(h, body)
	if err != nil {
		return st, false, err
	}
	const threadSpecific = 4
	server := map[uint16]string{8: "latin1", 255: "utf8mb4", 45: "utf8mb4"}[q.ServerCharset]
	return ddl.Parse(q.SQL, &ddl.Session{
		Schema: q.Schema, SQLMode: q.SQLMode, MariaDB: r.mariaDB, ServerCharset: server,
		Temporary: h.Flags&threadSpecific != 0, Failed: q.ErrorCode != 0,
	}), true, nil
}

// DDLBetween implements [Scanner].
func (r *record) DDLBetween(_ context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error) {
	d, err := r.decoder(&binlogDefiner{})
	for _, ev := range r.events {
		if err != nil || ev.begin < from.Pos || ev.begin >= to.Pos {
			continue
		}
		h, body, e := d.Split(ev.raw)
		st, ok, e2 := r.statement(d, h, body)
		if err = errors.Join(e, e2); ok && touches(st) {
			return true, err
		}
	}
	return false, err
}

// binlogDefiner decodes all columns of all tables of a schema, as the tracker knows them.
type binlogDefiner struct {
	tracker *Tracker
	schema  string
	// at is where the event begins that is being read.
	at uint64
	// resolve is called for a table in doubt.
	resolve func(m *binlog.TableMap) (*binlog.Definition, error)
}

func (b *binlogDefiner) Wanted(schema, _ []byte) bool {
	return b.tracker != nil && string(schema) == b.schema
}

func (b *binlogDefiner) Define(m *binlog.TableMap) (*binlog.Definition, error) {
	d, err := b.tracker.Describe(m)
	if errors.Is(err, ErrDoubt) {
		d, err = b.resolve(m)
	}
	if err != nil {
		return nil, err
	}
	for i := range d.Table.Columns {
		d.Needs = append(d.Needs, event.Need{Column: i, Text: !strings.HasPrefix(d.Table.Columns[i].Name, "DB_ROW_HASH")})
	}
	return d, nil
}

// replay reads the record from event first on, with each for every row, and after for every event.
func (r *record) replay(b *binlogDefiner, first int, each func(*event.Change) error, after func(i int)) error {
	d, err := r.decoder(b)
	if err != nil {
		return err
	}
	for i := first; i < len(r.events); i++ {
		h, body, err := d.Split(r.events[i].raw)
		if err != nil {
			return err
		}
		b.at = r.events[i].begin
		st, ok, err := r.statement(d, h, body)
		switch {
		case err != nil:
			return err
		case ok:
			b.tracker.Apply(&st)
			d.Forget()
		case h.Type == binlog.TypeTableMap:
			err = d.TableMap(body)
		case h.Type.IsRows():
			err = d.Rows(h, body, &event.Change{}, each)
		}
		if err != nil {
			return err
		}
		if after != nil {
			after(i)
		}
	}
	return nil
}
