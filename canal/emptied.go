package canal

import "github.com/freshet/freshet/canal/ddl"

// openEmptied opens the wanted tables whose rows are in the server's memory alone. After a restart they are empty, and
// the server writes that into its binlog when somebody opens the table: until then nothing says that cached rows are
// gone.
// Source: MySQL Reference Manual, "The MEMORY Storage Engine"; MariaDB, "MEMORY Storage Engine". Observed on MySQL 9.7
// (TRUNCATE) and MariaDB 10.11 (DELETE, which any question about all tables brings).
func (l *loop) openEmptied(s *session) error {
	found, err := s.rows("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE ENGINE = 'MEMORY' AND " +
		"TABLE_TYPE = 'BASE TABLE'")
	if err != nil {
		return err
	}
	var names []ddl.Name
	for _, r := range found {
		if n := (ddl.Name{Schema: r[0], Table: r[1]}); l.wants(n) {
			names = append(names, n)
		}
	}
	return s.awaitTables(names)
}
