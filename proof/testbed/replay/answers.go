package replay

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// answer returns what a source that has just the recording says.
func (s *Source) answer(q string) (names []string, rows [][]any, ok bool) {
	r := s.recording
	switch {
	case strings.HasPrefix(q, "select @@version_comment"):
		rows = [][]any{{cmp.Or(s.o.Comment, "MySQL Community Server (GPL)")}}
	case strings.HasPrefix(q, "SELECT VERSION(), @@server_id, @@log_bin"):
		rows = [][]any{{r.Version, "1", "1"}}
	case strings.HasPrefix(q, "SELECT @@server_uuid"):
		rows = [][]any{{"3e11fa47-71ca-11e1-9e33-c80aa9429562", "OFF"}}
	case strings.HasPrefix(q, "SELECT CONCAT_WS(' ', @@hostname"):
		rows = [][]any{{"recorded 3306 /data/ 1700000000"}}
	case strings.HasPrefix(q, "SELECT @@global.gtid_owned"):
		rows = [][]any{{"", "", ""}}
	case strings.HasPrefix(strings.ToLower(q), "select id, collation_name"):
		rows = [][]any{
			{"8", "latin1_swedish_ci", "latin1"},
			{"33", "utf8_general_ci", "utf8"},
			{"45", "utf8mb4_general_ci", "utf8mb4"},
			{"63", "binary", "binary"},
			{"255", "utf8mb4_0900_ai_ci", "utf8mb4"},
		}
	case q == "SELECT @@lower_case_table_names":
		rows = [][]any{{"0"}}
	case strings.HasPrefix(q, "SHOW BINARY LOGS"), strings.HasPrefix(q, "SHOW MASTER LOGS"):
		rows = [][]any{{r.Name, fmt.Sprint(r.Size)}}
	case strings.HasPrefix(q, "SHOW MASTER STATUS"), strings.HasPrefix(q, "SHOW BINARY LOG STATUS"):
		return []string{"File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"},
			[][]any{{r.Name, fmt.Sprint(r.Size), "", "", ""}}, true
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES"):
		sum := "NONE"
		if r.sums {
			sum = "CRC32"
		}
		all := map[string]string{"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_checksum": sum}
		for name, value := range s.o.Variables {
			all[name] = value
		}
		for name, value := range all {
			rows = append(rows, []any{name, value})
		}
		return []string{"Variable_name", "Value"}, rows, true
	case strings.HasPrefix(q, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"):
		for _, t := range s.o.Tables {
			rows = append(rows, []any{t.Schema, t.Name})
		}
		return []string{"TABLE_SCHEMA", "TABLE_NAME"}, rows, true
	case strings.HasPrefix(q, "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME"):
		for _, t := range s.o.Tables {
			rows = append(rows, []any{t.Schema, cmp.Or(t.Collation, "utf8_general_ci")})
		}
		return []string{"SCHEMA_NAME", "DEFAULT_COLLATION_NAME"}, rows, true
	case strings.HasPrefix(q, "SELECT 1 FROM `"), strings.HasPrefix(q, "SELECT * FROM `"):
	case strings.HasPrefix(q, "SHOW GLOBAL STATUS"):
		return []string{"Variable_name", "Value"}, nil, true
	case q == "XA RECOVER", strings.HasPrefix(q, "SHOW REPLICA"), strings.HasPrefix(q, "SHOW SLAVE"),
		strings.Contains(q, "information_schema.KEY_COLUMN_USAGE"):
	default:
		return nil, nil, false
	}
	return columns(rows), rows, true
}

// describe answers questions about tables: for the schema and the tables of the arguments.
func (s *Source) describe(q string, args []any) (names []string, rows [][]any, ok bool) {
	ok = strings.Contains(q, "information_schema.TABLES") || strings.Contains(q, "information_schema.COLUMNS")
	wanted := map[string]bool{}
	for _, a := range args[min(1, len(args)):] {
		wanted[text(a)] = true
	}
	names = strings.Split(strings.TrimPrefix(q[:max(0, strings.Index(q, " FROM "))], "SELECT "), ", ")
	for _, t := range s.o.Tables {
		if len(args) == 0 || t.Schema != text(args[0]) || !wanted[t.Name] {
			continue
		}
		collation := cmp.Or(t.Collation, "utf8_general_ci")
		switch {
		case strings.Contains(q, "information_schema.TABLES"):
			rows = append(rows, []any{collation, "BASE TABLE", t.Name})
		case strings.Contains(q, "information_schema.COLUMNS"):
			for _, c := range t.Columns {
				name, kind, _ := strings.Cut(c, " ")
				of := ""
				if strings.Contains(kind, "char") || strings.Contains(kind, "text") || strings.Contains(kind, "enum") {
					of = collation
				}
				rows = append(rows, []any{name, kind, of, "", t.Name})
			}
		}
	}
	return names, rows, ok
}

// text returns an argument as text.
func text(a any) string {
	switch v := a.(type) {
	case []byte:
		return string(v)
	case mysql.TypedBytes:
		return string(v.Bytes)
	}
	return fmt.Sprint(a)
}

// columns returns names for the columns of rows.
func columns(rows [][]any) (names []string) {
	n := 1
	if len(rows) > 0 {
		n = len(rows[0])
	}
	for i := range n {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	return names
}
