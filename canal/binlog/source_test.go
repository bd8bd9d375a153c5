package binlog

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/proof/testbed"
)

// dump returns the events of a binlog file from pos to its end, as the server sends them.
func dump(t testing.TB, s *testbed.Server, file string, pos uint32) [][]byte {
	t.Helper()
	const nonBlock = 1
	return dumpUntil(t, s, file, pos, nonBlock, func([]byte) bool { return false })
}

// dumpUntil returns the events of a binlog file from pos up to the first that last returns true for, or to the end. The
// server sends a heartbeat every tenth of a second.
func dumpUntil(t testing.TB, s *testbed.Server, file string, pos uint32, flags uint16,
	last func(ev []byte) bool,
) [][]byte {
	t.Helper()
	c, err := client.Connect(s.Addr, s.User, s.Password, "")
	testbed.Must(t, err)
	defer c.Close()
	for _, q := range []string{
		"set @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32', @mariadb_slave_capability=4",
		"set @master_heartbeat_period=100000000, @source_heartbeat_period=100000000",
	} {
		_, err = c.Execute(q)
		testbed.Must(t, err)
	}
	b := make([]byte, 4, 64)
	b = append(b, mysql.COM_BINLOG_DUMP)
	b = binary.LittleEndian.AppendUint32(b, pos)
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = binary.LittleEndian.AppendUint32(b, 0xfffffff0) // a server id that no other replica has
	b = append(b, file...)
	c.ResetSequence()
	testbed.Must(t, c.WritePacket(b))
	var events [][]byte
	for {
		p, err := c.ReadPacket()
		testbed.Must(t, err)
		switch {
		case p[0] == mysql.OK_HEADER:
			events = append(events, slices.Clone(p[1:]))
			if last(p[1:]) {
				return events
			}
		case p[0] == mysql.EOF_HEADER && len(p) < 9:
			return events
		default:
			t.Fatalf("dump of %s: %q", file, bytes.ToValidUTF8(p, nil))
		}
	}
}

// record runs f and returns the events that it leaves in a binlog file of its own.
func record(t testing.TB, s *testbed.Server, f func()) [][]byte {
	t.Helper()
	s.Exec(t, "flush binary logs")
	f()
	return dump(t, s, newestFile(t, s), 4)
}

func newestFile(t testing.TB, s *testbed.Server) string {
	t.Helper()
	rows, err := s.DB().QueryContext(t.Context(), "show binary logs")
	testbed.Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	testbed.Must(t, err)
	var file string
	for rows.Next() {
		into := make([]any, len(columns))
		into[0] = &file
		for i := range into[1:] {
			into[i+1] = new(any)
		}
		testbed.Must(t, rows.Scan(into...))
	}
	testbed.Must(t, rows.Err())
	return file
}
