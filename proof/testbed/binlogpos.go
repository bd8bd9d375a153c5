package testbed

import (
	"database/sql"
	"testing"
	"time"
)

// binlogPatience is how long the server may take to let go of a binlog file.
const binlogPatience = 2 * time.Minute

// BinlogPosition returns the server's current binlog file and position.
func (s *Server) BinlogPosition(t testing.TB) (file string, pos uint64) {
	t.Helper()
	query := "show binary log status"
	if s.Flavor == FlavorMariaDB {
		query = "show master status"
	}
	rows, err := s.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("testbed: %s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatalf("testbed: %s: %v", query, err)
	}
	cells := make([]any, len(columns))
	for i := range cells {
		cells[i] = new(sql.RawBytes)
	}
	cells[0], cells[1] = &file, &pos
	if !rows.Next() {
		t.Fatalf("testbed: %s: no row (%v): the binlog is off", query, rows.Err())
	}
	if err := rows.Scan(cells...); err != nil {
		t.Fatalf("testbed: %s: %v", query, err)
	}
	return file, pos
}

// OldestBinlog returns the oldest binlog file that the server has.
func (s *Server) OldestBinlog(t testing.TB) string {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SHOW BINARY LOGS")
	Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	Must(t, err)
	if !rows.Next() {
		t.Fatalf("testbed: the server has no binlog: %v", rows.Err())
	}
	cells := make([]any, len(columns)) // MySQL tells more than MariaDB
	for i := range cells {
		cells[i] = new(sql.RawBytes)
	}
	var file string
	cells[0] = &file
	Must(t, rows.Scan(cells...))
	return file
}

// PurgeBinlogs deletes all binlog files but the last, which is new, and returns that. A file that the last dump still
// has open is left out; the server sees only after a while that it is gone.
func (s *Server) PurgeBinlogs(t testing.TB) (file string) {
	t.Helper()
	s.Exec(t, "FLUSH BINARY LOGS")
	file, _ = s.BinlogPosition(t)
	Eventually(t, binlogPatience, "the binlogs are purged", func() bool {
		s.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
		return s.OldestBinlog(t) == file
	})
	return file
}

// ResetBinlogs begins the binlog and its GTIDs again, in another second than before.
func (s *Server) ResetBinlogs(t testing.TB) {
	t.Helper()
	statement := "RESET BINARY LOGS AND GTIDS"
	if s.Flavor == FlavorMariaDB {
		statement = "RESET MASTER"
	}
	now := func() string { return s.QueryText(t, "SELECT UNIX_TIMESTAMP()") }
	begun := now()
	Eventually(t, binlogPatience, "another second", func() bool { return now() != begun })
	s.Exec(t, statement)
}

// GTIDs returns what the server's binlog holds: MySQL's gtid_executed, MariaDB's
// gtid_binlog_pos. MariaDB's already holds a commit that cannot be seen yet.
func (s *Server) GTIDs(t testing.TB) string {
	t.Helper()
	if s.Flavor == FlavorMariaDB {
		return s.QueryText(t, "select @@global.gtid_binlog_pos")
	}
	return s.QueryText(t, "select @@global.gtid_executed")
}
