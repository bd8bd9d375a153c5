package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// The bare probe does freshet's job with nothing that makes it safe: binlog dump, the id of each row of
// shop.product, multi-key UNLINK. No GTIDs, no checkpoint, no second delete, no other table, no error handling but
// giving up. It is the ceiling that freshet's speed is divided by: a yardstick, not an example.

const (
	bareBatch   = 500
	bareWriters = 2
)

// bare reads the binlog from its first file to the end, and returns how long that took. It must have seen so many rows.
func bare(ctx context.Context, source *testbed.Server, target string, rows int) (time.Duration, error) {
	w := newKeyWriters()
	run := func(ctx context.Context, g *errgroup.Group) {
		for range bareWriters {
			g.Go(func() error { return w.unlinkAll(ctx, target) })
		}
	}
	return bareTo(ctx, source, w, run, rows)
}

// keySink takes the keys that the bare probe finds.
type keySink interface {
	// send takes keys as long as there are at least n, and returns the others.
	send(ctx context.Context, keys []string, n int) ([]string, error)
	// close says that no more come.
	close()
}

// bareTo is bare with a sink, whose goroutines run starts.
func bareTo(
	ctx context.Context, source *testbed.Server, to keySink, run func(context.Context, *errgroup.Group), rows int,
) (time.Duration, error) {
	d, err := openDump(source)
	if err != nil {
		return 0, err
	}
	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, d.close)()
	defer d.close()
	run(ctx, g)
	start := time.Now()
	p := bareProbe{dump: d, writers: to, wanted: map[uint64]*layout{}}
	g.Go(func() error {
		defer to.close()
		return p.read(ctx)
	})
	err = g.Wait()
	took := time.Since(start)
	if err == nil && p.seen != rows {
		err = fmt.Errorf("%d row changes were made, but the bare probe saw %d", rows, p.seen)
	}
	return took, err
}

// keyWriters is the way to the goroutines of unlinkAll: full batches there, empty ones back.
type keyWriters struct{ full, empty chan []string }

func newKeyWriters() keyWriters {
	return keyWriters{make(chan []string, 8), make(chan []string, 16)}
}

func (w keyWriters) unlinkAll(ctx context.Context, target string) error {
	rdb := redis.NewClient(&redis.Options{Addr: target})
	defer rdb.Close()
	for keys := range w.full {
		if err := rdb.Unlink(ctx, keys...).Err(); err != nil {
			return err
		}
		select {
		case w.empty <- keys[:0]:
		default:
		}
	}
	return nil
}

// send hands keys to the writers in batches as long as there are at least n, and returns the others.
func (w keyWriters) send(ctx context.Context, keys []string, n int) ([]string, error) {
	for len(keys) >= n {
		m := min(len(keys), bareBatch)
		var next []string
		select {
		case next = <-w.empty:
		default:
			next = make([]string, 0, bareBatch)
		}
		next = append(next, keys[m:]...)
		select {
		case w.full <- keys[:m]:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), errors.New("a writer gave up"))
		}
		keys = next
	}
	return keys, nil
}

func (w keyWriters) close() { close(w.full) }

type bareProbe struct {
	dump    *dump
	seen    int // rows
	writers keySink
	wanted  map[uint64]*layout // nil for tables that are not the benchmark's
	keys    []string
	key     []byte
}

// layout is what is needed to step over the columns of shop.product.
type layout struct {
	types []byte
	meta  []uint16
}

func (p *bareProbe) read(ctx context.Context) error {
	p.key = append(p.key, "product:"...)
	for {
		t, body, err := p.dump.next()
		if err != nil {
			return err
		}
		switch t {
		case replication.TABLE_MAP_EVENT:
			p.table(body)
		case replication.WRITE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv2:
			p.rows(body, rowsHeader, false)
		case replication.UPDATE_ROWS_EVENTv2:
			p.rows(body, rowsHeader, true)
		case replication.WRITE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv1: // MariaDB's
			p.rows(body, rowsHeaderV1, false)
		case replication.UPDATE_ROWS_EVENTv1:
			p.rows(body, rowsHeaderV1, true)
		}
		if body == nil {
			_, err := p.writers.send(ctx, p.keys, 1)
			return err
		}
		if p.keys, err = p.writers.send(ctx, p.keys, bareBatch); err != nil {
			return err
		}
	}
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

// The bytes before the number of columns in a rows event.
const (
	rowsHeaderV1 = 8  // table id (6), flags (2)
	rowsHeader   = 10 // and the extra data's length (2), there being none
)

// rows takes the ids out of a rows event.
func (p *bareProbe) rows(b []byte, header int, update bool) {
	l := p.wanted[tableID(b)]
	if l == nil {
		return
	}
	n := int(b[header])
	bitmap := (n + 7) / 8
	b = b[header+1+bitmap:]
	if update {
		b = b[bitmap:]
	}
	for after := false; len(b) > 0; after = update && !after {
		nulls := b[:bitmap]
		b = b[bitmap:]
		if !after {
			p.key = strconv.AppendUint(p.key[:len("product:")], binary.LittleEndian.Uint64(b), 10)
			p.keys = append(p.keys, string(p.key))
			p.seen++
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
