package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/freshet/freshet/proof/testbed"
)

// dump reads a source's binlogs from the first event of the first file to the end of the last, as fast as packets can
// be taken off the connection: into one buffer, undecoded.
type dump struct {
	conn      *client.Conn
	packet    bytes.Buffer
	checksums bool // the last four bytes of each event
}

const (
	firstFile    = "binlog.000001"
	dumpServer   = 770077 // a server id that nothing else here uses
	dumpNonBlock = 1      // the flag of COM_BINLOG_DUMP by which the server ends the dump at the end, and does not wait
)

// openDump asks for the dump. The connection's address and an empty password are the testbed's.
func openDump(source *testbed.Server) (*dump, error) { return openDumpAt(source, firstFile) }

// openDumpAt is openDump from the beginning of a file on.
func openDumpAt(source *testbed.Server, file string) (*dump, error) {
	c, err := client.Connect(source.Addr, source.User, source.Password, "")
	if err != nil {
		return nil, err
	}
	d := &dump{conn: c}
	if err := d.request(source.Flavor, file); err != nil {
		return nil, fmt.Errorf("dump of %s: %w", source.Addr, err)
	}
	return d, nil
}

func (d *dump) request(flavor testbed.Flavor, file string) error {
	set := "SET @source_binlog_checksum='NONE', @master_binlog_checksum='NONE'"
	if flavor == testbed.FlavorMariaDB {
		set += ", @mariadb_slave_capability=4" // the events as they are, none rewritten for older replicas
	}
	if _, err := d.conn.Execute(set); err != nil {
		return err
	}
	d.conn.ResetSequence()
	req := make([]byte, 4, 32) // the packet's header, filled in by WritePacket
	req = append(req, mysql.COM_BINLOG_DUMP)
	req = binary.LittleEndian.AppendUint32(req, 4)
	req = binary.LittleEndian.AppendUint16(req, dumpNonBlock)
	req = binary.LittleEndian.AppendUint32(req, dumpServer)
	return d.conn.WritePacket(append(req, file...))
}

// next returns the type and the body of the next event, which is valid until the next call. The body is nil at the end.
func (d *dump) next() (replication.EventType, []byte, error) {
	d.packet.Reset()
	if err := d.conn.ReadPacketTo(&d.packet); err != nil {
		return 0, nil, err
	}
	b := d.packet.Bytes()
	switch {
	case b[0] == mysql.EOF_HEADER && len(b) < 8:
		return 0, nil, nil
	case b[0] != mysql.OK_HEADER:
		return 0, nil, fmt.Errorf("the dump ended with the packet %x", b[:min(len(b), 80)])
	}
	t := replication.EventType(b[5])
	if t == replication.FORMAT_DESCRIPTION_EVENT {
		d.checksums = b[len(b)-5] == 1 // the server may send them although it was asked not to
	}
	body := b[1+replication.EventHeaderSize:]
	if d.checksums {
		body = body[:len(body)-4]
	}
	return t, body, nil
}

// close ends the connection, and with it the dump.
func (d *dump) close() { _ = d.conn.Close() }

// discard reads a source's binlogs to the end and does nothing with them: no reader can be faster. It returns how long
// that took.
func discard(ctx context.Context, source *testbed.Server) (time.Duration, error) {
	d, err := openDump(source)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, d.close)()
	defer d.close()
	start := time.Now()
	for {
		if _, body, err := d.next(); err != nil || body == nil {
			return time.Since(start), err
		}
	}
}

// discardFile is discard for one file, and counts from the first event on.
func discardFile(ctx context.Context, source *testbed.Server, file string) (time.Duration, error) {
	d, err := openDumpAt(source, file)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, d.close)()
	defer d.close()
	var start time.Time
	// The server makes up a first ROTATE, which names the file; the second one ends it.
	for rotates := 0; rotates < 2; {
		t, body, err := d.next()
		switch {
		case err != nil:
			return 0, err
		case body == nil:
			return 0, fmt.Errorf("the dump ended before %s did", file)
		case t == replication.ROTATE_EVENT:
			rotates++
		}
		if start.IsZero() {
			start = time.Now()
		}
	}
	return time.Since(start), nil
}
