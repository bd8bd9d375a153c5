package retry_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	pingcap "github.com/pingcap/errors"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// wantSource is want for an error of the source.
func wantSource(t *testing.T, err error, class retry.Class, text string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %s with %q", class, text)
	}
	t.Logf("%T %q", pingcap.Cause(err), err)
	if !strings.Contains(err.Error(), text) {
		t.Errorf("the server said %q, want %q", err, text)
	}
	if got := retry.ClassifySource(fmt.Errorf("source 10.0.0.3: %w", err)); got != class {
		t.Errorf("%q is %s, want %s", err, got, class)
	}
}

func dial(addr, user, password string) (*client.Conn, error) {
	return client.Connect(addr, user, password, "")
}

// dump asks for the binlog and reads until something else than an event comes.
func dump(t *testing.T, c *client.Conn, request []byte) error {
	t.Helper()
	c.ResetSequence()
	if err := c.WritePacket(append(make([]byte, 4), request...)); err != nil {
		return err
	}
	for {
		data, err := c.ReadPacket()
		if err != nil {
			return err
		}
		switch {
		case data[0] == gomysql.ERR_HEADER:
			return c.HandleErrorPacket(data)
		case data[0] == gomysql.EOF_HEADER && len(data) < 9:
			return errors.New("the dump came to the end of the binlog")
		}
	}
}

// byFile is a COM_BINLOG_DUMP.
func byFile(file string, pos uint32) []byte {
	b := []byte{gomysql.COM_BINLOG_DUMP}
	b = binary.LittleEndian.AppendUint32(b, pos)
	b = binary.LittleEndian.AppendUint16(b, 0) // waits at the end
	b = binary.LittleEndian.AppendUint32(b, 4711)
	return append(b, file...)
}

// byGTID is a COM_BINLOG_DUMP_GTID.
func byGTID(t *testing.T, set string) []byte {
	t.Helper()
	gtids, err := gomysql.ParseMysqlGTIDSet(set)
	testbed.Must(t, err)
	data := gtids.Encode()
	b := []byte{gomysql.COM_BINLOG_DUMP_GTID}
	b = binary.LittleEndian.AppendUint16(b, 4) // BINLOG_THROUGH_GTID
	b = binary.LittleEndian.AppendUint32(b, 4711)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, 4)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// reader returns a connection that may dump.
func reader(t *testing.T, s *testbed.Server, settings ...string) *client.Conn {
	t.Helper()
	c, err := dial(s.Addr, "root", "")
	testbed.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	testbed.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	for _, q := range append([]string{"set @master_binlog_checksum='CRC32'"}, settings...) {
		_, err := c.Execute(q)
		testbed.Must(t, err)
	}
	return c
}

// connections provokes the errors that both kinds of server give alike.
func connections(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.Exec(t, "create user shop@'%' identified by 'secret'")
	_, err := dial(s.Addr, "shop", "wrong")
	wantSource(t, err, retry.Refused, "1045")
	c, err := dial(s.Addr, "shop", "secret")
	testbed.Must(t, err)
	defer c.Close()
	_, err = c.Execute("select * from mysql.user")
	wantSource(t, err, retry.Refused, "denied")
	wantSource(t, dump(t, c, byFile("binlog.000001", 4)), retry.Refused, "denied")
	_, err = c.Execute("selec 1")
	wantSource(t, err, retry.Refused, "1064")

	admin, err := dial(s.Addr, "root", "")
	testbed.Must(t, err)
	defer admin.Close()
	slept := make(chan error, 1)
	go func() {
		_, err := c.Execute("select sleep(100)")
		slept <- err
	}()
	testbed.Eventually(t, 2*time.Minute, "the query runs", func() bool {
		r, err := admin.Execute("select count(*) from information_schema.processlist where info = 'select sleep(100)'")
		testbed.Must(t, err)
		n, err := r.GetInt(0, 0)
		return err == nil && n == 1
	})
	_, err = admin.Execute(fmt.Sprintf("kill %d", c.GetConnectionID()))
	testbed.Must(t, err)
	wantSource(t, <-slept, retry.Away, "")
	_, err = c.Execute("select 1")
	wantSource(t, err, retry.Away, "")

	_, err = admin.Execute("alter user shop@'%' with max_user_connections 1")
	testbed.Must(t, err)
	one, err := dial(s.Addr, "shop", "secret")
	testbed.Must(t, err)
	defer one.Close()
	_, err = dial(s.Addr, "shop", "secret")
	wantSource(t, err, retry.Away, "max_user_connections")
	_, err = admin.Execute("alter user shop@'%' account lock")
	testbed.Must(t, err)
	_, err = dial(s.Addr, "shop", "secret")
	wantSource(t, err, retry.Refused, "locked")
}

// positions provokes the errors of a dump by file and position.
func positions(t *testing.T, s *testbed.Server) {
	t.Helper()
	wantSource(t, dump(t, reader(t, s), byFile("binlog.000099", 4)), retry.Lost, "Could not find first log file name")
	wantSource(t, dump(t, reader(t, s), byFile("binlog.000001", 1<<30)), retry.Lost, "1236")
	wantSource(t, dump(t, reader(t, s), byFile("binlog.000001", 3)), retry.Lost, "1236")
}

// lifecycle stops the server under a connection, in every way.
func lifecycle(t *testing.T, s *testbed.Server) {
	t.Helper()
	c := reader(t, s)
	testbed.Must(t, s.Kill())
	_, err := c.Execute("select 1")
	wantSource(t, err, retry.Away, "")
	_, err = dial(s.Addr, "root", "")
	wantSource(t, err, retry.Away, "refused")
}

func TestErrorsOfARealMySQL(t *testing.T) {
	s := testbed.MySQL(t)
	connections(t, s)
	positions(t, s)
	wantSource(t, dump(t, reader(t, s, "set @master_binlog_checksum=null"), byFile("binlog.000001", 4)), retry.Refused,
		"checksum")

	var uuid string
	testbed.Must(t, s.DB().QueryRow("select @@server_uuid").Scan(&uuid))
	wantSource(t, dump(t, reader(t, s), byGTID(t, uuid+":1-9999")), retry.Lost, "more GTIDs than the source has")
	purge(t, s)
	wantSource(t, dump(t, reader(t, s), byGTID(t, "")), retry.Lost, "purged required binary logs")

	// Two readers with one identity.
	me := "set @replica_uuid='11111111-1111-1111-1111-111111111111', @slave_uuid=@replica_uuid"
	first := make(chan error, 1)
	older := reader(t, s, me)
	go func() { first <- dump(t, older, byFile("binlog.000002", 4)) }()
	testbed.Eventually(t, 2*time.Minute, "the first reader reads", func() bool { return dumps(t, s) == 1 })
	second := make(chan error, 1)
	newer := reader(t, s, me)
	go func() { second <- dump(t, newer, byFile("binlog.000002", 4)) }()
	wantSource(t, <-first, retry.Refused, "same server_uuid")
	s.Exec(t, fmt.Sprintf("kill %d", newer.GetConnectionID()))
	wantSource(t, <-second, retry.Away, "")

	s.Exec(t, "set global offline_mode=on")
	_, err := dial(s.Addr, "shop", "secret")
	if err == nil {
		t.Error("offline mode lets an ordinary user in")
	}
	s.Exec(t, "set global offline_mode=off", "alter user shop@'%' account unlock",
		"alter user shop@'%' with max_user_connections 0",
		"set global offline_mode=on")
	_, err = dial(s.Addr, "shop", "secret")
	wantSource(t, err, retry.Away, "offline mode")
	lifecycle(t, s)
}

func TestErrorsOfAMySQLWithoutGTIDs(t *testing.T) {
	s := testbed.MySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--max-connections=1")
	wantSource(t, dump(t, reader(t, s), byGTID(t, "")), retry.Refused, "AUTO_POSITION mode")
	s.Exec(t, "create user shop@'%' identified by 'secret'")
	// One connection more than max_connections is kept for those with CONNECTION_ADMIN.
	var err error
	testbed.Eventually(t, 2*time.Minute, "the connections are used up", func() bool {
		var c *client.Conn
		if c, err = dial(s.Addr, "shop", "secret"); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err != nil
	})
	wantSource(t, err, retry.Away, "Too many connections")
}

func TestErrorsOfARealMariaDB(t *testing.T) {
	s := testbed.MariaDB(t)
	connections(t, s)
	positions(t, s)

	gtid := func(set string) error {
		c := reader(t, s, "set @mariadb_slave_capability=4", "set @slave_connect_state='"+set+"'",
			"set @slave_gtid_strict_mode=1")
		return dump(t, c, byFile("", 4))
	}
	wantSource(t, gtid("0-1-9999"), retry.Lost, "not in the master's binlog")
	purge(t, s)
	wantSource(t, gtid(""), retry.Lost, "purged")

	older := reader(t, s)
	first := make(chan error, 1)
	go func() { first <- dump(t, older, byFile("binlog.000002", 4)) }()
	testbed.Eventually(t, 2*time.Minute, "the first reader reads", func() bool { return dumps(t, s) == 1 })
	newer := reader(t, s)
	second := make(chan error, 1)
	go func() { second <- dump(t, newer, byFile("binlog.000002", 4)) }()
	wantSource(t, <-first, retry.Refused, "same server_uuid/server_id")
	testbed.Must(t, s.Stop())
	wantSource(t, <-second, retry.Away, "")
	testbed.Must(t, s.Start(t.Context()))
	lifecycle(t, s)
}

// purge removes the first file of the binlog. A file that a dump still has open is kept, without an error.
func purge(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.Exec(t, "flush binary logs")
	testbed.Eventually(t, 2*time.Minute, "the first binlog is purged", func() bool {
		s.Exec(t, "purge binary logs to 'binlog.000002'")
		return dump(t, reader(t, s), byFile("binlog.000001", 1<<30)).Error() == "ERROR 1236 (HY000): Could not find first "+
			"log file name in binary log index file"
	})
}

// dumps returns how many readers the server sends its binlog to.
func dumps(t *testing.T, s *testbed.Server) (n int) {
	t.Helper()
	testbed.Must(t, s.DB().QueryRow("select count(*) from information_schema.processlist where command like 'Binlog "+
		"Dump%'").Scan(&n))
	return n
}

func TestErrorsThatNoServerSent(t *testing.T) {
	for _, c := range []struct {
		err   error
		class retry.Class
	}{
		{nil, retry.None},
		{io.ErrUnexpectedEOF, retry.Away},
		{pingcap.Trace(gomysql.ErrBadConn), retry.Away},
		{context.DeadlineExceeded, retry.Away},
		{&net.DNSError{Err: "no such host", Name: "db"}, retry.Away},
		{errors.New("what nobody has seen"), retry.Away},
		{fmt.Errorf("tls: %w", &tls.CertificateVerificationError{Err: errors.New("expired")}), retry.Refused},
		{
			gomysql.NewError(1236, "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source"),
			retry.Refused,
		},
		{gomysql.NewError(1236, "memory allocation failed reading log event"), retry.Away},
		{gomysql.NewError(1236, "bogus data in log event; the first event 'binlog.000001' at 4"), retry.Lost},
		{gomysql.NewError(13114, "Cannot replicate because the source purged required binary logs."), retry.Lost},
		{gomysql.NewError(1955, "Could not find GTID state requested by slave in any binlog files."), retry.Lost},
		{gomysql.NewError(60000, "what nobody has seen"), retry.Refused},
	} {
		if got := retry.ClassifySource(c.err); got != c.class {
			t.Errorf("%v is %s, want %s", c.err, got, c.class)
		}
	}
}
