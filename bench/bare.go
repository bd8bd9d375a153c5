package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The bare probe does freshet's job with nothing that makes it safe: binlog dump, the id of each row of
// shop.product, multi-key UNLINK. No GTIDs, no checkpoint, no second delete, no other table, no error handling but
// giving up. It is the ceiling that freshet's speed is divided by: a yardstick, not an example.

const (
	bareBatch   = 500
	bareWriters = 2
	bareServer  = 770077 // a server id that nothing else here uses
)

// bare reads the binlog from its first file until it has handled rows row changes, and returns how long that took.
func bare(ctx context.Context, source, target string, rows int) (time.Duration, error) {
	conn, err := client.Connect(source, "root", "", "")
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := dump(conn, "binlog.000001"); err != nil {
		return 0, err
	}
	full, empty := make(chan []string, 8), make(chan []string, 16)
	g, ctx := errgroup.WithContext(ctx)
	for range bareWriters {
		g.Go(func() error { return unlinkAll(ctx, target, full, empty) })
	}
	start := time.Now()
	p := bareProbe{conn: conn, left: rows, full: full, empty: empty, wanted: map[uint64]*layout{}}
	g.Go(func() error {
		defer close(full)
		return p.read(ctx)
	})
	err = g.Wait()
	return time.Since(start), err
}

func dump(c *client.Conn, file string) error {
	if _, err := c.Execute("SET @source_binlog_checksum='NONE', @master_binlog_checksum='NONE'"); err != nil {
		return err
	}
	c.ResetSequence()
	req := make([]byte, 4, 32) // the packet's header, filled in by WritePacket
	req = append(req, mysql.COM_BINLOG_DUMP)
	req = binary.LittleEndian.AppendUint32(req, 4)
	req = binary.LittleEndian.AppendUint16(req, 0)
	req = binary.LittleEndian.AppendUint32(req, bareServer)
	return c.WritePacket(append(req, file...))
}

func unlinkAll(ctx context.Context, target string, full <-chan []string, empty chan<- []string) error {
	rdb := redis.NewClient(&redis.Options{Addr: target})
	defer rdb.Close()
	for keys := range full {
		if err := rdb.Unlink(ctx, keys...).Err(); err != nil {
			return err
		}
		select {
		case empty <- keys[:0]:
		default:
		}
	}
	return nil
}

type bareProbe struct {
	conn        *client.Conn
	left        int
	full, empty chan []string
	wanted      map[uint64]*layout // nil for tables that are not the benchmark's
	keys        []string
	key         []byte
	checksums   bool
}

// layout is what is needed to step over the columns of shop.product.
type layout struct {
	types []byte
	meta  []uint16
}

func (p *bareProbe) read(ctx context.Context) error {
	p.key = append(p.key, "product:"...)
	p.keys = make([]string, 0, bareBatch)
	var packet bytes.Buffer
	for p.left > 0 {
		packet.Reset()
		if err := p.conn.ReadPacketTo(&packet); err != nil {
			return err
		}
		b := packet.Bytes()
		if b[0] != mysql.OK_HEADER {
			return fmt.Errorf("the dump ended before all rows came: packet %x", b[:min(len(b), 80)])
		}
		body := b[1+replication.EventHeaderSize:]
		if p.checksums {
			body = body[:len(body)-4]
		}
		switch replication.EventType(b[5]) {
		case replication.FORMAT_DESCRIPTION_EVENT:
			p.checksums = b[len(b)-5] == 1 // the server may send them although it was asked not to
		case replication.TABLE_MAP_EVENT:
			p.table(body)
		case replication.WRITE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv2:
			p.rows(body, false)
		case replication.UPDATE_ROWS_EVENTv2:
			p.rows(body, true)
		}
		if err := p.send(ctx, bareBatch); err != nil {
			return err
		}
	}
	return p.send(ctx, 1)
}

// send hands the gathered keys to a writer if there are at least n.
func (p *bareProbe) send(ctx context.Context, n int) error {
	for len(p.keys) >= n {
		m := min(len(p.keys), bareBatch)
		var next []string
		select {
		case next = <-p.empty:
		default:
			next = make([]string, 0, bareBatch)
		}
		next = append(next, p.keys[m:]...)
		select {
		case p.full <- p.keys[:m]:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New("a writer gave up"))
		}
		p.keys = next
	}
	return nil
}

func tableID(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
}

func (p *bareProbe) table(b []byte) {
	id := tableID(b)
	if _, known := p.wanted[id]; known {
		return
	}
	b = b[8:]
	schema := string(b[1 : 1+b[0]])
	b = b[2+len(schema):]
	name := string(b[1 : 1+b[0]])
	b = b[2+len(name):]
	p.wanted[id] = nil
	if schema != "shop" || name != "product" {
		return
	}
	n := int(b[0])
	l := &layout{types: bytes.Clone(b[1 : 1+n]), meta: make([]uint16, n)}
	b = b[2+n:] // the length of the metadata is one byte for so few columns
	for i, t := range l.types {
		switch t {
		case mysql.MYSQL_TYPE_VARCHAR:
			l.meta[i], b = binary.LittleEndian.Uint16(b), b[2:]
		case mysql.MYSQL_TYPE_NEWDECIMAL:
			l.meta[i], b = binary.BigEndian.Uint16(b), b[2:]
		case mysql.MYSQL_TYPE_DATETIME2:
			l.meta[i], b = uint16(b[0]), b[1:]
		}
	}
	p.wanted[id] = l
}

func (p *bareProbe) rows(b []byte, update bool) {
	l := p.wanted[tableID(b)]
	if l == nil {
		return
	}
	n := int(b[10]) // after id (6), flags (2) and the empty extra data's length (2)
	bitmap := (n + 7) / 8
	b = b[11+bitmap:]
	if update {
		b = b[bitmap:]
	}
	for after := false; len(b) > 0; after = update && !after {
		nulls := b[:bitmap]
		b = b[bitmap:]
		if !after {
			p.key = strconv.AppendUint(p.key[:len("product:")], binary.LittleEndian.Uint64(b), 10)
			p.keys = append(p.keys, string(p.key))
			p.left--
		}
		for i := range n {
			if nulls[i>>3]&(1<<(i&7)) == 0 {
				b = b[l.size(i, b):]
			}
		}
	}
}

// size returns how many bytes column i takes at the head of b.
func (l *layout) size(i int, b []byte) int {
	switch l.types[i] {
	case mysql.MYSQL_TYPE_LONG:
		return 4
	case mysql.MYSQL_TYPE_LONGLONG:
		return 8
	case mysql.MYSQL_TYPE_VARCHAR:
		if l.meta[i] < 256 {
			return 1 + int(b[0])
		}
		return 2 + int(binary.LittleEndian.Uint16(b))
	case mysql.MYSQL_TYPE_NEWDECIMAL: // DECIMAL(10,2): eight digits and two
		return 5
	}
	return 5 + int(l.meta[i]+1)/2 // DATETIME(n)
}
