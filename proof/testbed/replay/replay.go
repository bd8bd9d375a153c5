// Package replay plays servers that cannot be had here: it answers as a source does, and sends a binlog that was
// recorded, or made by hand from the documented layout.
//
// What it sends are the bytes of the file. What it answers to questions is made up from the file and from [Options];
// a question that it does not know is an error of the server, which a test sees in [Source.Unanswered].
package replay

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"
)

// Options say what the source is besides its binlog.
type Options struct {
	// Comment is version_comment; empty: that of MySQL.
	Comment string
	// Variables are global variables, by their names in lower case, besides those that follow from the recording.
	Variables map[string]string
	// Tables are what information_schema has of them.
	Tables []Table
}

// Table is the definition of a table.
type Table struct {
	Schema, Name string
	// Collation is the default of the table, or empty: utf8_general_ci.
	Collation string
	// Columns are names and types, such as "id char(36)". Those of text have the table's collation.
	Columns []string
}

// Source is a server that plays a recording.
type Source struct {
	Addr string

	recording *Recording
	o         Options
	done      chan struct{}

	mu         sync.Mutex
	unanswered []string
}

// User and Password log in.
const User, Password = "freshet", "replayed"

// Start plays a recording until the test ends.
func Start(t testing.TB, r *Recording, o Options) *Source {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	users := server.NewInMemoryAuthenticationHandler(mysql.AUTH_NATIVE_PASSWORD)
	if err := users.AddUser(User, Password); err != nil {
		t.Fatal(err)
	}
	s := &Source{Addr: l.Addr().String(), recording: r, o: o, done: make(chan struct{})}
	as := server.NewServer(r.Version, mysql.DEFAULT_COLLATION_ID, mysql.AUTH_NATIVE_PASSWORD, nil, nil)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				h := &session{source: s}
				conn, err := server.NewCustomizedConn(c, as, users, h)
				for h.conn = conn; err == nil && !conn.Closed(); {
					err = conn.HandleCommand()
				}
			})
		}
	})
	t.Cleanup(func() {
		close(s.done)
		l.Close()
		all.Wait()
	})
	return s
}

// Unanswered returns the questions that the source had no answer to.
func (s *Source) Unanswered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.unanswered...)
}

// unknown takes note of a question without an answer, and returns the error that is the answer.
func (s *Source) unknown(q string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered = append(s.unanswered, q)
	return fmt.Errorf("the recording does not answer %q", q)
}

// session is one connection.
type session struct {
	server.EmptyHandler
	source *Source
	conn   *server.Conn
}

// HandleQuery answers a question.
func (h *session) HandleQuery(q string) (*mysql.Result, error) {
	for _, begin := range []string{"SET ", "START TRANSACTION", "COMMIT", "ROLLBACK"} {
		if strings.HasPrefix(strings.ToUpper(q), begin) {
			return mysql.NewResult(nil), nil
		}
	}
	old := strings.HasPrefix(h.source.recording.Version, "5.")
	switch {
	case strings.Contains(q, "full_collation_name"): // MariaDB's
		return nil, mysql.NewError(mysql.ER_BAD_FIELD_ERROR, "Unknown column")
	case old && strings.HasPrefix(q, "SHOW REPLICA"), strings.HasPrefix(q, "SHOW BINARY LOG STATUS"): // of 8.0, and of 8.2
		return nil, mysql.NewError(mysql.ER_PARSE_ERROR, "You have an error in your SQL syntax")
	}
	names, rows, ok := h.source.answer(q)
	if !ok {
		return nil, h.source.unknown(q)
	}
	return mysql.NewResult(textual(names, rows)), nil
}

// textual is a result in the text protocol. The library's own [mysql.BuildSimpleTextResultset] takes one from a pool,
// and sends the columns that a client in this process had in it.
func textual(names []string, rows [][]any) *mysql.Resultset {
	r := &mysql.Resultset{}
	for _, name := range names {
		r.Fields = append(r.Fields, &mysql.Field{Name: []byte(name), Charset: 33, Type: mysql.MYSQL_TYPE_VAR_STRING})
	}
	for _, values := range rows {
		var row []byte
		for _, v := range values {
			row = append(row, mysql.PutLengthEncodedString([]byte(text(v)))...)
		}
		r.RowDatas = append(r.RowDatas, row)
	}
	return r
}

// HandleStmtPrepare implements [server.Handler]. What is asked in this way is asked about tables.
func (h *session) HandleStmtPrepare(q string) (params, columns int, _ any, err error) {
	return strings.Count(q, "?"), strings.Count(q[:max(0, strings.Index(q, " FROM "))], ",") + 1, nil, nil
}

// HandleStmtExecute implements [server.Handler].
func (h *session) HandleStmtExecute(_ any, q string, args []any) (*mysql.Result, error) {
	names, rows, ok := h.source.describe(q, args)
	if !ok {
		return nil, h.source.unknown(q)
	}
	r, err := mysql.BuildSimpleBinaryResultset(names, rows)
	return mysql.NewResult(r), err
}

// HandleStmtClose implements [server.Handler].
func (h *session) HandleStmtClose(any) error { return nil }

// HandleOtherCommand sends the recording when a replica asks for it.
func (h *session) HandleOtherCommand(command byte, data []byte) error {
	switch command {
	case mysql.COM_REGISTER_SLAVE:
		return nil
	case mysql.COM_BINLOG_DUMP:
		flags := binary.LittleEndian.Uint16(data[4:])
		return h.dump(binary.LittleEndian.Uint32(data), flags&dumpNonBlock != 0, string(data[10:]))
	}
	return mysql.NewError(mysql.ER_UNKNOWN_COM_ERROR, "a recording is read by position")
}

// dumpNonBlock asks for a dump that ends where the binlog does. Source: MySQL Source Code Documentation,
// "COM_BINLOG_DUMP" (BINLOG_DUMP_NON_BLOCK).
const dumpNonBlock = 1

// dump sends the recording from a position. Then the dump ends, or heartbeats follow until the test does.
func (h *session) dump(from uint32, ends bool, file string) error {
	r := h.source.recording
	if file != r.Name {
		return mysql.NewError(mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG,
			"Could not find first log file name in binary log index file")
	}
	if err := h.send(r.rotate(uint64(from))); err != nil {
		return err
	}
	for i, e := range r.events {
		b := e.bytes
		switch {
		case i == 0 && from > firstEvent: // the format of a stream that begins within the file has no position
			b = r.artificial(b)
		case i > 0 && e.begin < uint64(from):
			continue
		}
		if err := h.send(b); err != nil {
			return err
		}
	}
	if ends {
		return h.conn.WritePacket([]byte{0, 0, 0, 0, mysql.EOF_HEADER, 0, 0, 0, 0})
	}
	for {
		select {
		case <-time.After(heartbeats):
		case <-h.source.done:
			return errors.New("the test has ended")
		}
		if err := h.send(r.heartbeat()); err != nil {
			return err
		}
	}
}

// heartbeats is how often a source that has nothing to send says so.
const heartbeats = 200 * time.Millisecond

// send sends an event, after the header of a packet and the sign that all is well.
func (h *session) send(event []byte) error {
	return h.conn.WritePacket(append([]byte{0, 0, 0, 0, mysql.OK_HEADER}, event...))
}

// firstEvent is where the first event of a file is.
const firstEvent = 4

// Recording is a binlog file.
type Recording struct {
	// Name is what the source calls the file, and Version the version of the server that wrote it.
	Name, Version string
	// Size is its size in bytes.
	Size   uint64
	events []recorded
	// sums says that events have checksums.
	sums bool
}

type recorded struct {
	begin uint64
	bytes []byte
}

// Nothing is the empty binlog of a server of a version.
func Nothing(version string) *Recording {
	return &Recording{Name: "mysql-bin.000001", Version: version, Size: firstEvent}
}

//go:embed testdata
var recordings embed.FS

// Load reads a recording of the package's testdata.
func Load(t testing.TB, name string) *Recording {
	t.Helper()
	data, err := recordings.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(data)
	if err != nil {
		t.Fatalf("recording %s: %v", name, err)
	}
	return r
}

// parse takes a file apart. Source: MySQL Internals, "Binary Log Event Structure" and "FORMAT_DESCRIPTION_EVENT".
func parse(data []byte) (*Recording, error) {
	if len(data) < firstEvent || string(data[:firstEvent]) != "\xfebin" {
		return nil, errors.New("it is no binlog file")
	}
	r := &Recording{Name: "mysql-bin.000001", Size: uint64(len(data))}
	for at := uint64(firstEvent); at < uint64(len(data)); {
		rest := data[at:]
		if len(rest) < headerSize {
			return nil, errors.New("it is cut short")
		}
		size := binary.LittleEndian.Uint32(rest[9:])
		if size < headerSize || int(size) > len(rest) {
			return nil, errors.New("it is cut short")
		}
		r.events = append(r.events, recorded{at, rest[:size]})
		at += uint64(size)
	}
	if len(r.events) == 0 || r.events[0].bytes[4] != typeFormat {
		return nil, errors.New("it has no format")
	}
	format := r.events[0].bytes[headerSize:]
	r.Version = strings.TrimRight(string(format[2:52]), "\x00")
	r.sums = format[len(format)-5] == 1
	return r, nil
}
