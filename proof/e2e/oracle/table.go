package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// column is a column of a table.
type column struct {
	name string
	columnType
	tail      string // attributes after the type
	generated bool   // its value is made by the server
}

// spatial reports whether it holds shapes, which no table with partitions may have.
func (c *column) spatial() bool { return c.sql == "GEOMETRY" || c.sql == "POINT" }

// table is a table with its columns. The first made column numbers the rows: it is an INT, whatever its place.
type table struct {
	schema, name string
	columns      []*column
	key          *column
	index        string // PRIMARY KEY, UNIQUE or INDEX over the key; or nothing
	tail         string // options
	version      int    // of its triggers, which names the columns that they print
}

// quote quotes a name in SQL.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (t *table) full() string { return quote(t.schema) + "." + quote(t.name) }

// create is the statement that makes the table.
func (t *table) create() string {
	var parts []string
	for _, c := range t.columns {
		parts = append(parts, c.definition())
	}
	if t.index != "" {
		parts = append(parts, t.index+" ("+quote(t.key.name)+")")
	}
	return "CREATE TABLE " + t.full() + " (" + strings.Join(parts, ", ") + ")" + t.tail
}

func (c *column) definition() string {
	sql := c.sql
	if c.generated || strings.Contains(c.tail, "NOT NULL") {
		sql = strings.TrimSuffix(sql, " NULL")
	}
	return quote(c.name) + " " + sql + c.tail
}

var operations = []string{"INSERT", "UPDATE", "DELETE"}

// triggers are the statements that have the table's changes written down. They are made in a mode of their own, since
// they print as the mode says that they were made in: PAD_CHAR_TO_FULL_LENGTH is not how values are meant.
func (t *table) triggers() []string {
	all := []string{"SET @oracle_mode = @@sql_mode, sql_mode = ''"}
	for _, op := range operations {
		before, after := "NULL", "NULL"
		if op != "INSERT" {
			before = t.image("OLD")
		}
		if op != "DELETE" {
			after = t.image("NEW")
		}
		all = append(all, fmt.Sprintf("CREATE TRIGGER %s.%s AFTER %s ON %s FOR EACH ROW INSERT INTO oracle.images (tx, "+
			"version, before_image, after_image) VALUES (@oracle_tx, %d, %s, %s)",
			quote(t.schema), quote(t.trigger(op)), op, t.full(), t.version, before, after))
	}
	return append(all, "SET sql_mode = @oracle_mode")
}

func (t *table) untrigger() (all []string) {
	for _, op := range operations {
		all = append(all, "DROP TRIGGER "+quote(t.schema)+"."+quote(t.trigger(op)))
	}
	return all
}

func (t *table) trigger(op string) string { return fmt.Sprintf("%s %d", op, t.version) }

// image is the expression for a row: the hexadecimal texts of its columns, ~ for NULL.
func (t *table) image(of string) string {
	var parts []string
	for _, c := range t.columns {
		parts = append(parts, "IFNULL("+fmt.Sprintf(c.print, of+"."+quote(c.name))+", '~')")
	}
	return "CONCAT_WS(',', " + strings.Join(parts, ", ") + ")"
}

// The names of tables and columns, some of which need care in SQL, in YAML, in templates or in predicates.
var (
	tableNames = []string{
		"product", "Order", "order items", "Ünï", "select", "a`b", "x.y", "t$1", "日本", "p%q", "{z}",
		"st*r", `q"t`, "it's", "back\\slash", "-dash", "9", "table", "comment #1",
	}
	columnNames = []string{
		"id", "Name", "user_id", "unit price", "Größe", "group", "table", "schema", "a`b", "row-no",
		"x.y", "$d", "9lives", "a|b", "{c}", "c}d", `q"u`, "it's", "日本", "a:b", "row", "old", "b\\s", "période", "_", "from",
		"select",
	}
)

// family makes tables of the same columns.
func (w *World) family(schema string, names []string) []*table {
	r := w.r
	proto := &table{schema: schema}
	pool := append([]string(nil), columnNames...)
	r.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	proto.key = &column{name: pool[0], columnType: typ("INT", integer, nil), tail: " NOT NULL"}
	proto.columns = []*column{proto.key}
	for i := range 3 + r.IntN(9) {
		proto.columns = append(proto.columns, w.column(pool[i+1], proto.key))
	}
	r.Shuffle(len(proto.columns),
		func(i, j int) { proto.columns[i], proto.columns[j] = proto.columns[j], proto.columns[i] })
	proto.index = pick(r, "PRIMARY KEY", "PRIMARY KEY", "UNIQUE KEY", "KEY", "")
	proto.tail = pick(r, "", "", " CHARACTER SET utf8mb4", " DEFAULT CHARSET=latin1", " COMMENT='a, (b'",
		" ROW_FORMAT=COMPRESSED")
	if w.mariaDB && oneIn(r, 4) {
		proto.tail += " WITH SYSTEM VERSIONING"
	} else if oneIn(r, 5) && !slices.ContainsFunc(proto.columns, (*column).spatial) {
		proto.tail += " PARTITION BY HASH (" + quote(proto.key.name) + ") PARTITIONS 3"
	}
	var all []*table
	for _, name := range names {
		t := *proto
		t.name, t.columns = name, append([]*column(nil), proto.columns...)
		all = append(all, &t)
	}
	return all
}

// column makes a column of any type. Some are made by the server of the key.
func (w *World) column(name string, key *column) *column {
	r := w.r
	c := &column{name: name, columnType: pick(r, w.types...)}
	if key != nil && oneIn(r, 10) {
		c.columnType = pick(r, typ("BIGINT", integer, nil), typ("VARCHAR(60) CHARACTER SET utf8mb4", text, nil))
		expression := quote(key.name) + " * 3"
		if c.kind == text {
			expression = "CONCAT('g', " + quote(key.name) + ")"
		}
		c.tail, c.generated = " GENERATED ALWAYS AS ("+expression+") "+pick(r, "STORED", "VIRTUAL"), true
		return c
	}
	if oneIn(r, 12) {
		c.tail = " INVISIBLE"
	}
	return c
}

// literal is a value for a column, in SQL.
func (c *column) literal(r *rand.Rand) string {
	if oneIn(r, 7) {
		return "NULL"
	}
	return c.value(r)
}
