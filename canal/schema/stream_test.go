package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// TestRowsGetTheNamesThatTheyWereWrittenWith writes rows whose every value is the name of its column, with DDL between
// them, on real servers and without the names in the binlog. Whatever place the binlog is then read from, a value must
// come under its own name, or the columns be called unknown. All columns have the same types, so that nothing but the
// right order tells them apart.
func TestRowsGetTheNamesThatTheyWereWrittenWith(t *testing.T) {
	for _, s := range servers {
		for _, metadata := range []string{"", "FULL"} {
			t.Run(string(s.flavor)+metadata, func(t *testing.T) {
				t.Parallel()
				args := []string{"--sync-binlog=0", "--tmpdir=" + t.TempDir()}
				if metadata != "" {
					args = append(args, "--binlog-row-metadata="+metadata)
				}
				w := &writer{t: t, server: s.start(t, args...), mariaDB: s.mariaDB}
				w.conn = connect(t, w.server)
				rapid.Check(t, w.run)
				t.Logf("%d rows checked, %d stretches begun, %d of them ended at unknown columns", w.rows, w.begun, w.unknown)
				if w.unknown*4 > w.begun*3 || metadata != "" && w.unknown > 0 {
					t.Error("too often unknown")
				}
			})
		}
	}
}

// writer writes rows and DDL, and reads them back.
type writer struct {
	t       *testing.T
	rt      *rapid.T
	server  *testbed.Server
	conn    *client.Conn
	mariaDB bool
	runs    int
	schema  string
	// count and sum over all runs.
	rows, begun, unknown int
}

func (w *writer) exec(sql string) error {
	_, err := w.conn.Execute(sql)
	w.rt.Logf("%s: %v", sql, err)
	return err
}

func (w *writer) must(sql string) {
	if err := w.exec(sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *writer) run(rt *rapid.T) {
	w.rt = rt
	w.runs++
	w.schema = fmt.Sprintf("w%d", w.runs)
	l, err := newLoader(w.t.Context(), w.conn)
	testbed.Must(w.t, err)
	from, err := l.end()
	testbed.Must(w.t, err)
	w.must("CREATE DATABASE " + w.schema + " CHARACTER SET utf8mb4")
	w.must("USE " + w.schema)
	if w.mariaDB {
		w.must("SET SESSION system_versioning_alter_history = KEEP")
	}
	w.must("CREATE TABLE t (a VARCHAR(30), b VARCHAR(30), c VARCHAR(30))")
	for range rapid.IntRange(3, 12).Draw(rt, "statements") {
		w.exec(w.ddl()) // may be refused
		w.insert("t")
		w.insert("u")
	}
	r := dump(w.t, w.server, from, w.mariaDB)
	w.read(r)
	w.must("DROP DATABASE " + w.schema)
}

// insert writes a row whose values are the names of their columns, if the table exists.
func (w *writer) insert(table string) {
	r, err := w.conn.Execute("SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '" + w.schema +
		"' AND TABLE_NAME = '" + table + "'")
	testbed.Must(w.t, err)
	var names []string
	for i := range r.RowNumber() {
		n, err := r.GetString(i, 0)
		testbed.Must(w.t, err)
		names = append(names, n)
	}
	if len(names) > 0 {
		w.must("INSERT IGNORE INTO " + table + " (" + strings.Join(names, ",") + ") VALUES ('" + strings.Join(names, "','") +
			"')")
	}
}

func (w *writer) ddl() string {
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(w.rt, "pick") }
	column := func() string { return pick("a", "b", "c", "d", "e", "f") }
	place := func() string { return pick("", "", " FIRST", " AFTER "+column()) }
	table := pick("t", "t", "t", "u", "x")
	typ := pick(" VARCHAR(30)", " VARCHAR(30)", " VARCHAR(30) NOT NULL", " VARCHAR(30) CHARACTER SET latin1")
	alter := "ALTER TABLE " + table + " "
	statements := []string{
		alter + "ADD " + column() + typ + place(),
		alter + "ADD " + column() + typ + place() + ", ADD " + column() + typ + place(),
		alter + "ADD (" + column() + typ + ", " + column() + typ + ")",
		alter + "DROP " + column(),
		alter + "DROP " + column() + ", ADD " + column() + typ + place(),
		alter + "MODIFY " + column() + typ + place(),
		alter + "CHANGE " + column() + " " + column() + typ + place(),
		alter + "RENAME COLUMN " + column() + " TO " + column(),
		alter + "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
		alter + "ADD INDEX (" + column() + ")",
		alter + "ENGINE=InnoDB",
		alter + "RENAME TO " + pick("t", "u", "x"),
		"RENAME TABLE t TO x, u TO t, x TO u",
		"CREATE TABLE IF NOT EXISTS " + table + " (b" + typ + ", a" + typ + ", c" + typ + ")",
		"CREATE TABLE " + table + " LIKE " + pick("t", "u", "x"),
		"DROP TABLE " + table,
		"TRUNCATE TABLE " + table,
	}
	if w.mariaDB {
		statements = append(
			statements,
			alter+"ADD IF NOT EXISTS "+column()+typ+place(),
			alter+"DROP IF EXISTS "+column(),
			alter+"ADD SYSTEM VERSIONING",
			alter+"DROP SYSTEM VERSIONING",
			alter+"ADD f BLOB, ADD UNIQUE (f)",
			"CREATE OR REPLACE TABLE "+table+" (c"+typ+", a"+typ+")",
		)
	}
	return pick(statements...)
}

// read reads the record from every place, with and without what was known there.
func (w *writer) read(r *record) {
	all := w.tracker(nil)
	saved := map[int][]byte{}
	err := r.replay(w.definer(r, all), 0, w.check, func(i int) { saved[i+1] = all.Encode() })
	if err != nil {
		w.rt.Fatalf("from the beginning: %v", err)
	}
	for _, i := range r.starts() {
		if i == 0 {
			continue
		}
		w.begun++
		if err := r.replay(w.definer(r, w.tracker(saved[i])), i, w.check, nil); err != nil {
			w.rt.Fatalf("from event %d with what was known there: %v", i, err)
		}
		err := r.replay(w.definer(r, w.tracker(nil)), i, w.check, nil)
		switch {
		case errors.Is(err, ErrUnknownSchema):
			w.unknown++
		case err != nil:
			w.rt.Fatalf("from event %d: %v", i, err)
		}
	}
}

func (w *writer) tracker(state []byte) *Tracker {
	tr, err := Decode(state, Options{
		Wanted:  func(s, table string) bool { return s == w.schema && (table == "t" || table == "u") },
		MariaDB: w.mariaDB,
	})
	testbed.Must(w.t, err)
	return tr
}

func (w *writer) definer(r *record, tr *Tracker) *binlogDefiner {
	b := &binlogDefiner{tracker: tr, schema: w.schema}
	b.resolve = func(m *binlog.TableMap) (*binlog.Definition, error) {
		return tr.Resolve(w.t.Context(), w.conn, r, BinlogPos{r.file, b.at}, m)
	}
	return b
}

// check compares the values of a row with the names of their columns.
func (w *writer) check(c *event.Change) error {
	w.rows++
	for i, v := range c.After {
		name := c.Table.Columns[i].Name
		if strings.HasPrefix(name, "row_") || strings.HasPrefix(name, "DB_ROW_HASH") {
			continue
		}
		if string(v.Text) != name {
			return fmt.Errorf("%s: the value of column %s comes under %s", c.Table, v.Text, name)
		}
	}
	return nil
}
