package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// bareReaderCommand as the first argument makes this program the bare reader: the bare probe that follows a live
// source. It runs in a process of its own, as freshet does, so that both pay the same for being scheduled.
const bareReaderCommand = "bare-reader"

// bareReader returns the bare reader of a source, which begins at the present end of its binlog.
func (b *benchmark) bareReader(ctx context.Context, source *testbed.Server) ([]*exec.Cmd, error) {
	rdb, err := b.redisServer(ctx)
	if err != nil {
		return nil, err
	}
	var file, pos string
	var others [3]any
	q := source.DB().QueryRowContext(ctx, "SHOW BINARY LOG STATUS")
	if err := q.Scan(&file, &pos, &others[0], &others[1], &others[2]); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []*exec.Cmd{exec.CommandContext(ctx, self, bareReaderCommand, source.Addr, rdb.Addr, file, pos)}, nil
}

// follow is the bare reader: its arguments are its name, the source's address, that of Redis, and where to begin; and
// for the bare reader through Kafka a broker's address and the topic. It ends with ctx.
//
// It takes the shortest way that there is from one socket to the other: what an event names goes out as one UNLINK,
// from the goroutine that has read it, and no answer is waited for.
func follow(ctx context.Context, args []string) error {
	if len(args) != 5 && len(args) != 7 {
		return fmt.Errorf("%s: want 4 arguments, or 6", bareReaderCommand)
	}
	mysqld, redis, file := args[1], args[2], args[3]
	pos, err := strconv.ParseUint(args[4], 10, 32)
	if err != nil {
		return err
	}
	connected, end := context.WithCancel(ctx)
	defer end()
	g, running := errgroup.WithContext(connected)
	d, err := followDump(mysqld, file, uint32(pos))
	if err != nil {
		return err
	}
	context.AfterFunc(running, d.close)
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", redis)
	if err != nil {
		return err
	}
	context.AfterFunc(running, func() { _ = out.Close() })
	var commands io.Writer = out
	if len(args) == 7 {
		through, err := newDetour(running, args[5], args[6])
		if err != nil {
			return err
		}
		g.Go(through.produce)
		g.Go(func() error { return through.deliver(out) })
		commands = through
	}
	g.Go(func() error { return unlinkEach(d, commands) })
	g.Go(func() error {
		_, err := io.Copy(io.Discard, out)
		return errors.Join(err, io.EOF) // Redis has closed the connection, or it was closed here
	})
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// followDump asks for a source's binlog from a position on; at its end the server waits for more.
func followDump(address, file string, pos uint32) (*dump, error) {
	c, err := client.Connect(address, "root", "", "")
	if err != nil {
		return nil, err
	}
	if _, err := c.Execute("SET @source_binlog_checksum='NONE', @master_binlog_checksum='NONE'"); err != nil {
		return nil, err
	}
	c.ResetSequence()
	req := make([]byte, 4, 64) // the packet's header, filled in by WritePacket
	req = append(req, mysql.COM_BINLOG_DUMP)
	req = binary.LittleEndian.AppendUint32(req, pos)
	req = binary.LittleEndian.AppendUint16(req, 0)
	req = binary.LittleEndian.AppendUint32(req, dumpServer)
	return &dump{conn: c}, c.WritePacket(append(req, file...))
}

func unlinkEach(d *dump, out io.Writer) error {
	p := bareProbe{dump: d, key: []byte("product:"), wanted: map[uint64]*layout{}}
	var command []byte
	for {
		t, body, err := d.next()
		if err != nil {
			return err
		}
		switch t {
		case replication.TABLE_MAP_EVENT:
			p.table(body)
		case replication.UPDATE_ROWS_EVENTv2:
			p.rows(body, rowsHeader, true)
		}
		if len(p.keys) == 0 {
			continue
		}
		command = fmt.Appendf(command[:0], "*%d\r\n$6\r\nUNLINK\r\n", 1+len(p.keys))
		for _, k := range p.keys {
			command = append(command, '$')
			command = strconv.AppendInt(command, int64(len(k)), 10)
			command = append(command, "\r\n"...)
			command = append(command, k...)
			command = append(command, "\r\n"...)
		}
		p.keys = p.keys[:0]
		if _, err := out.Write(command); err != nil {
			return err
		}
	}
}
