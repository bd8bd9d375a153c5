package schema

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/canal/ddl"
)

// What statements are made of. Some are refused by one server or the other, which costs little.
var (
	columnNames = []string{"id", "name", "price", "Ünï", "a b", "select", "first", "after", "c`d", "period", "comment"}
	numberTypes = []string{
		"INT", "INT(5) ZEROFILL", "integer unsigned zerofill", "BIGINT UNSIGNED", "TINYINT(1)", "BOOL",
		"TINYINT(3) UNSIGNED", "SMALLINT", "MEDIUMINT", "INT8", "MIDDLEINT", "DECIMAL", "DEC(5)", "NUMERIC(8,3) UNSIGNED",
		"FIXED(4,1) ZEROFILL", "FLOAT", "FLOAT(10)", "FLOAT(30)", "FLOAT(7,3)", "DOUBLE PRECISION", "DOUBLE(9,2)", "REAL",
		"BIT", "BIT(64)",
	}
	timeTypes = []string{
		"DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(0)", "DATETIME(6)", "TIMESTAMP(2) NULL",
		"YEAR",
	}
	stringTypes = []string{
		"CHAR", "CHAR(10)", "CHARACTER(3)", "VARCHAR(20)", "VARCHAR(16383)", "VARCHAR(21844)",
		"CHARACTER VARYING(5)", "NCHAR(4)", "NATIONAL VARCHAR(9)", "NVARCHAR(3)", "TINYTEXT", "TEXT", "TEXT(50)", "TEXT(100)",
		"TEXT(30000)", "TEXT(70000)", "MEDIUMTEXT", "LONGTEXT", "LONG", "LONG VARCHAR", "ENUM('a','b ','c''d')",
		"SET('x','y','Ü')", `ENUM('e\\f','g')`,
	}
	binaryTypes = []string{
		"BINARY", "BINARY(16)", "VARBINARY(30)", "TINYBLOB", "BLOB", "BLOB(100)", "BLOB(70000)",
		"LONGBLOB", "LONG VARBINARY", "CHAR(5) BYTE", "VARCHAR(6) CHARACTER SET binary", "TEXT CHARSET binary",
	}
	otherTypes   = []string{"JSON", "GEOMETRY", "POINT", "GEOMETRYCOLLECTION"}
	mariaDBTypes = []string{"UUID", "INET6", "INET4", "VARCHAR(50) COMPRESSED", "BLOB COMPRESSED"}
	mysqlTypes   = []string{"VECTOR(3)", "VECTOR"}
	charsetTails = []string{
		"", "", "", " CHARACTER SET latin1", " CHARSET utf8mb4 COLLATE utf8mb4_bin",
		" COLLATE latin1_bin", " CHARACTER SET utf8", " BINARY", " CHARACTER SET gbk BINARY", " ASCII", " UNICODE",
		" COLLATE utf8_general_ci",
	}
	attributes = []string{
		"", "", " NULL", " DEFAULT NULL", " COMMENT 'x, y) AFTER id FIRST'", " /* c, d INT */",
		" INVISIBLE",
	}
	tableTails = []string{
		"", "", " ENGINE=InnoDB", " DEFAULT CHARSET=latin1",
		" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", " COLLATE=latin1_bin COMMENT='a, (b'",
		" ROW_FORMAT=DYNAMIC CHARSET utf8", " AUTO_INCREMENT=5 CHECKSUM 1", " CHARSET=gbk", " CHARSET DEFAULT",
	}
	charsetNames = []string{"latin1", "utf8mb4", "utf8", "gbk", "utf8mb4 COLLATE utf8mb4_bin", "DEFAULT", "ascii"}
	indexClauses = []string{
		"ADD INDEX (%s)", "ADD KEY k2 (%s)", "ENGINE=InnoDB", "COMMENT 'ADD x INT, DROP y'", "FORCE",
		"AUTO_INCREMENT 100, ROW_FORMAT=DYNAMIC",
	}
)

func (m *model) pick(what string, of []string) string { return rapid.SampledFrom(of).Draw(m.rt, what) }

func (m *model) chance(what string, percent int) bool {
	return rapid.IntRange(1, 100).Draw(m.rt, what) <= percent
}

func (m *model) quote(name string) string {
	if m.session.SQLMode == 1<<2 && m.chance("double quotes", 50) {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return ddl.Quote(name)
}

func (m *model) table() string {
	n := m.quote(m.pick("table", m.names()))
	if m.chance("qualified", 30) {
		return m.quote(m.schema) + "." + n
	}
	return n
}

// existing returns the name of a table that exists, mostly.
func (m *model) existing() string {
	var names []string
	for _, n := range m.names() {
		if m.tracker.get(ddl.Name{Schema: m.schema, Table: n}).def != nil {
			names = append(names, n)
		}
	}
	if len(names) == 0 || m.chance("any table", 5) {
		return m.table()
	}
	return m.quote(m.pick("existing table", names))
}

// columnType returns a type with its attributes.
func (m *model) columnType() string {
	groups := [][]string{numberTypes, stringTypes, stringTypes, timeTypes, binaryTypes, otherTypes, mysqlTypes}
	if m.mariaDB {
		groups[6] = mariaDBTypes
	}
	i := rapid.IntRange(0, len(groups)-1).Draw(m.rt, "types")
	t := m.pick("type", groups[i])
	if i == 1 || i == 2 {
		t += m.pick("column charset", charsetTails)
	}
	return t + m.pick("attribute", attributes)
}

func (m *model) statement() string {
	switch rapid.IntRange(0, 20).Draw(m.rt, "statement") {
	case 0, 1:
		return m.create()
	case 3:
		like := m.ifNotExists("CREATE TABLE ") + m.table()
		if m.chance("parentheses", 50) {
			return like + " (LIKE " + m.existing() + ")"
		}
		return like + " LIKE " + m.existing()
	case 4:
		return "DROP TABLE " + m.pick("if", []string{"", "IF EXISTS "}) + m.table()
	case 5:
		a, b := m.existing(), m.existing()
		return "RENAME TABLE " + a + " TO tmp, " + b + " TO " + a + ", tmp TO " + b
	case 6:
		return "RENAME TABLE " + m.existing() + " TO " + m.table()
	case 7:
		return m.pick("other", []string{"TRUNCATE ", "ALTER TABLE ", "OPTIMIZE TABLE "}) + m.existing()
	case 8:
		return "ALTER DATABASE " + m.schema + " CHARACTER SET " + m.pick("charset", charsetNames[:5])
	case 9:
		return "ALTER TABLE " + m.existing() + " CONVERT TO CHARACTER SET " + m.pick("charset", charsetNames)
	}
	return m.alter()
}

func (m *model) ifNotExists(s string) string {
	if m.chance("if not exists", 30) {
		return s + "IF NOT EXISTS "
	}
	return s
}

func (m *model) create() string {
	start := m.ifNotExists("CREATE TABLE ")
	if m.mariaDB && m.chance("or replace", 20) {
		start = "CREATE OR REPLACE TABLE "
	}
	n := rapid.IntRange(1, 6).Draw(m.rt, "columns")
	names := rapid.Permutation(columnNames).Draw(m.rt, "names")[:n]
	var elements []string
	for _, c := range names {
		elements = append(elements, m.quote(c)+" "+m.columnType())
	}
	if m.chance("key", 30) {
		elements = append(elements, "extra INT NOT NULL DEFAULT (1+(2))", "KEY ("+m.quote("extra")+")",
			"CONSTRAINT CHECK (extra > 0)")
	}
	return start + m.table() + " (" + strings.Join(elements, ", ") + ")" + m.pick("options", tableTails)
}

// columnOf returns the name of a column of a table, mostly.
func (m *model) columnOf(table string) string {
	st := ddl.Parse([]byte("TRUNCATE "+table), &m.session)
	if e := m.tracker.get(st.Actions[0].Table); e.def != nil && m.chance("known column", 90) {
		return rapid.SampledFrom(e.def.columns).Draw(m.rt, "column").name
	}
	return m.pick("column", columnNames)
}

func (m *model) alter() string {
	table := m.existing()
	s := "ALTER TABLE " + table + " "
	if !m.mariaDB && m.chance("executable comment", 20) {
		s = "/*!50100 ALTER */ TABLE " + table + " "
	}
	if m.mariaDB && m.chance("executable comment", 20) {
		s = "ALTER /*M!100100 IGNORE */ TABLE IF EXISTS " + table + " "
	}
	var clauses []string
	for range rapid.IntRange(1, 4).Draw(m.rt, "clauses") {
		clauses = append(clauses, m.clause(table))
	}
	return s + strings.Join(clauses, ", ")
}

func (m *model) place(table string) string {
	switch rapid.IntRange(0, 3).Draw(m.rt, "place") {
	case 0:
		return " FIRST"
	case 1:
		return " AFTER " + m.quote(m.columnOf(table))
	}
	return ""
}

func (m *model) clause(table string) string {
	exists, not := "", ""
	if m.mariaDB && m.chance("if", 20) {
		exists, not = "IF EXISTS ", "IF NOT EXISTS "
	}
	old, name := m.quote(m.columnOf(table)), m.quote(m.pick("new name", columnNames))
	switch rapid.IntRange(0, 11).Draw(m.rt, "clause") {
	case 0, 1, 2:
		return "ADD COLUMN " + not + name + " " + m.columnType() + m.place(table)
	case 3:
		return "ADD (" + name + " " + m.columnType() + ", " + m.quote(m.pick("new name", columnNames)) + " " +
			m.columnType() + ")"
	case 4, 5:
		return "DROP " + m.pick("column", []string{"", "COLUMN "}) + exists + old
	case 6:
		return "MODIFY " + exists + old + " " + m.columnType() + m.place(table)
	case 7, 8:
		return "CHANGE COLUMN " + exists + old + " " + name + " " + m.columnType() + m.place(table)
	case 9:
		return "RENAME COLUMN " + exists + old + " TO " + name
	case 10:
		return m.pick("default charset", []string{"DEFAULT CHARSET=latin1", "CHARACTER SET utf8mb4", "COLLATE gbk_bin"})
	}
	if m.chance("rename", 30) {
		return "RENAME " + m.pick("to", []string{"TO ", "AS ", ""}) + m.table()
	}
	c := m.pick("index", indexClauses)
	if strings.Contains(c, "%") {
		c = fmt.Sprintf(c, old)
	}
	return c
}
