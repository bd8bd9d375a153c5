package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// fakeSource answers the questions of a loader, and is the binlog as well: the statements in it, one a position.
type fakeSource struct {
	// tables is what information_schema says: name, type and collation of the columns.
	tables map[string][][3]string
	log    []string
	// end is where the binlog ends when that is asked; 0: after the last statement.
	end uint64
	// asked is called for each question that is not about a setting.
	asked func(query string)
	// scans counts how often the binlog was looked through.
	scans   int
	mariaDB bool
	sqlMode uint64
	scanErr error
	// denied are tables that may not be read; all: none may.
	denied []string
	// locked is a table that is locked; all: all are. MariaDB's information_schema does not have its columns then.
	locked string
	// kind is the TABLE_TYPE of all tables; "": BASE TABLE. failing is a question that fails.
	kind, failing string
	// expressions are those that make a column, by schema.table.column.
	expressions map[string]string
}

func (f *fakeSource) Execute(query string, args ...any) (*mysql.Result, error) {
	if f.asked != nil {
		f.asked(query)
	}
	if query == f.failing {
		return nil, errFake
	}
	switch {
	case strings.Contains(query, "DEFAULT_COLLATION_NAME"):
		return rows([]any{"shop", "utf8mb4_general_ci"})
	case strings.Contains(query, "SELECT TABLE_SCHEMA"):
		var out [][]any
		for n := range f.tables {
			s, t, _ := strings.Cut(n, ".")
			out = append(out, []any{s, t})
		}
		return rows(out...)
	case strings.HasPrefix(query, "SELECT * FROM"):
		name := strings.NewReplacer("SELECT * FROM ", "", " LIMIT 0", "", "`", "").Replace(query)
		if slices.Contains(f.denied, name) || slices.Contains(f.denied, "all") {
			return nil, mysql.NewDefaultError(mysql.ER_TABLEACCESS_DENIED_ERROR, "SELECT", "u", "h", "t")
		}
		if name == f.locked || f.locked == "all" {
			return nil, mysql.NewDefaultError(mysql.ER_LOCK_WAIT_TIMEOUT)
		}
		if f.tables[name] == nil {
			return nil, mysql.NewDefaultError(mysql.ER_NO_SUCH_TABLE, "s", "t")
		}
	case strings.Contains(query, "SELECT TABLE_COLLATION"):
		var out [][]any
		for _, a := range args[1:] {
			switch n := fmt.Sprint(args[0], ".", a); {
			case f.mariaDB && n == f.locked:
				out = append(out, []any{"", cmp.Or(f.kind, "BASE TABLE"), a})
			case f.tables[n] != nil:
				out = append(out, []any{"utf8mb4_general_ci", cmp.Or(f.kind, "BASE TABLE"), a})
			}
		}
		return rows(out...)
	case strings.Contains(query, "SELECT COLUMN_NAME"):
		var out [][]any
		for _, a := range args[1:] {
			if f.mariaDB && fmt.Sprint(args[0], ".", a) == f.locked {
				continue
			}
			for _, c := range f.tables[fmt.Sprint(args[0], ".", a)] {
				out = append(out, []any{c[0], c[1], c[2], f.expressions[fmt.Sprint(args[0], ".", a, ".", c[0])], a})
			}
		}
		return rows(out...)
	case query == "SHOW MASTER STATUS":
		end := f.end
		if end == 0 {
			end = uint64(len(f.log))
		}
		return rows([]any{"binlog.000001", fmt.Sprint(end)})
	}
	return &mysql.Result{}, nil
}

// rows makes a result. The library's own helper takes one from a pool, in which those of real servers have left their
// types.
func rows(values ...[]any) (*mysql.Result, error) {
	rs := &mysql.Resultset{Fields: make([]*mysql.Field, 5)}
	for _, row := range values {
		var out []mysql.FieldValue
		for _, v := range row {
			out = append(out, mysql.NewFieldValue(mysql.FieldValueTypeString, 0, fmt.Append(nil, v)))
		}
		rs.Fields = rs.Fields[:len(row)]
		rs.Values = append(rs.Values, out)
	}
	return &mysql.Result{Resultset: rs}, nil
}

// DDLBetween implements [Scanner].
func (f *fakeSource) DDLBetween(_ context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error) {
	f.scans++
	for _, sql := range f.log[from.Pos:to.Pos] {
		if touches(f.parse(sql)) {
			return true, nil
		}
	}
	return false, f.scanErr
}

func (f *fakeSource) parse(sql string) ddl.Statement {
	return ddl.Parse([]byte(sql), &ddl.Session{
		Schema: []byte("shop"), MariaDB: f.mariaDB, ServerCharset: "utf8mb4", SQLMode: f.sqlMode,
	})
}

// tracker returns a tracker that wants the tables shop.a and shop.b.
func tracker(t testing.TB, f *fakeSource) *Tracker {
	t.Helper()
	tr, err := New(Options{
		MariaDB: f.mariaDB,
		Wanted:  func(s, table string) bool { return s == "shop" && (table == "a" || table == "b" || table == "") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// apply moves the tracker over statements.
func apply(f *fakeSource, tr *Tracker, statements ...string) {
	for _, sql := range statements {
		st := f.parse(sql)
		tr.Apply(&st)
	}
}

// tableMap makes a TABLE_MAP of shop.table without names: int, unsigned int (with a sign known), varchar.
func tableMap(table string, types ...binlog.ColumnType) *binlog.TableMap {
	m := &binlog.TableMap{Schema: "shop", Name: table, Flavor: event.MariaDB}
	for _, ct := range types {
		c := binlog.MapColumn{Type: ct}
		switch ct {
		case binlog.ColumnVarchar:
			c.Meta = 80 // varchar(20) in utf8mb4
		case binlog.ColumnTimestamp2:
			c.Meta = 6
		}
		m.Columns = append(m.Columns, c)
	}
	return m
}

func names(d *binlog.Definition) string {
	var out []string
	for _, c := range d.Table.Columns {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

var errFake = errors.New("fake")

const (
	long    = binlog.ColumnLong
	varchar = binlog.ColumnVarchar
)
