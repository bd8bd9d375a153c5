package testbed

import (
	"database/sql"
	"testing"
)

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

// GTIDs returns what the server's binlog holds: MySQL's gtid_executed, MariaDB's
// gtid_binlog_pos. MariaDB's already holds a commit that cannot be seen yet.
func (s *Server) GTIDs(t testing.TB) string {
	t.Helper()
	if s.Flavor == FlavorMariaDB {
		return s.QueryText(t, "select @@global.gtid_binlog_pos")
	}
	return s.QueryText(t, "select @@global.gtid_executed")
}
