package schema

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/retry"
)

// Conn is a connection to the source. go-mysql's client.Conn is one. The functions of this package set the character
// set and sql_mode of its session. For how long it waits for the lock on a table, as that of an ALTER TABLE, is its own
// matter.
type Conn interface {
	Execute(query string, args ...any) (*mysql.Result, error)
}

// Error numbers. Source: MySQL Server Error Message Reference; the same on MariaDB.
const (
	errBadField = 1054
	errSyntax   = 1064
)

// loader asks a server for what its tables are now.
type loader struct {
	ctx  context.Context
	conn Conn
}

func newLoader(ctx context.Context, conn Conn) (*loader, error) {
	l := &loader{ctx, conn}
	// Names must come in utf8mb4: go-mysql asks for a collation that MariaDB does not have, and is given the server's
	// own. Without NO_BACKSLASH_ESCAPES, since that changes how labels of ENUM and SET are written.
	for _, q := range []string{"SET NAMES utf8mb4", "SET SESSION sql_mode = ''"} {
		if _, err := l.query(q); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// query asks a question. Every value of the answer is text; NULL is "".
func (l *loader) query(query string, args ...any) ([][]string, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	r, err := l.conn.Execute(query, args...)
	if err != nil {
		return nil, fmt.Errorf("schema: %s: %w", query, err)
	}
	if r.Resultset == nil {
		return nil, nil
	}
	defer r.Close()
	rows := make([][]string, r.RowNumber())
	for i := range rows {
		rows[i] = make([]string, r.ColumnNumber())
		for j := range rows[i] {
			if rows[i][j], err = r.GetString(i, j); err != nil {
				return nil, fmt.Errorf("schema: %s: %w", query, err)
			}
			rows[i][j] = strings.Clone(rows[i][j])
		}
	}
	return rows, nil
}

// names returns the tables that are wanted and exist now.
func (l *loader) names(wanted func(schema, table string) bool) ([]ddl.Name, error) {
	rows, err := l.query("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES " +
		"WHERE TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys') " +
		"ORDER BY TABLE_SCHEMA, TABLE_NAME")
	if err != nil {
		return nil, err
	}
	var out []ddl.Name
	for _, r := range rows {
		if wanted(r[0], r[1]) {
			out = append(out, ddl.Name{Schema: r[0], Table: r[1]})
		}
	}
	return out, nil
}

// schemas returns the default character sets of all schemas.
func (l *loader) schemas() (map[string]charsets, error) {
	rows, err := l.query("SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA")
	out := make(map[string]charsets, len(rows))
	for _, r := range rows {
		out[r[0]] = loadedCharset(r[1])
	}
	return out, err
}

func loadedCharset(collation string) charsets {
	if collation == "" {
		return charsets{}
	}
	return charsets{ddl.CharsetOf(collation), collation}
}

// table returns the definition of a table as it is now, nil if it does not exist. If we may not read it, the error says
// so ([retry.IsTableDenied]), whether it exists or not; and if it is locked ([retry.IsLockWait]).
//
// It reads under a metadata lock, which a SELECT takes until the end of its transaction. No ALTER TABLE, RENAME or
// DROP is under way then: it has either not begun to change the table, or it is complete and stands in the binlog,
// because the servers write it there before they give up the table. So the end of the binlog, asked afterwards, has
// after it no statement whose effect is seen here.
func (l *loader) table(n ddl.Name) (*definition, error) {
	if _, err := l.query("START TRANSACTION READ ONLY"); err != nil {
		return nil, err
	}
	d, err := l.lockedTable(n)
	if _, end := l.query("ROLLBACK"); err == nil {
		err = end
	}
	return d, err
}

func (l *loader) lockedTable(n ddl.Name) (*definition, error) {
	// All columns: of those that we may not read the server would not show that they are there.
	if _, err := l.query("SELECT * FROM " + n.SQL() + " LIMIT 0"); err != nil {
		switch {
		case retry.IsNoTable(err):
			return nil, nil
		case retry.IsTableDenied(err):
			e, _ := retry.ServerError(err)
			err = fmt.Errorf("the user that freshet connects as may not read it, if it is still there: GRANT SELECT ON %s to "+
				"that user (%w)", n.SQL(), e)
		case retry.IsLockWait(err):
			e, _ := retry.ServerError(err)
			err = fmt.Errorf("it is locked on the source, as by LOCK TABLES or an ALTER TABLE, so that nobody can say what "+
				"columns it has; freshet asks again until it is not (%w)", e)
		}
		return nil, err
	}
	defs, err := l.definitions(n.Schema, []ddl.Name{n})
	if err != nil {
		return nil, err
	}
	d := defs[n.Table]
	if d == nil {
		for _, d = range defs { // its name is written in other letters
			break
		}
	}
	if d == nil || len(d.columns) == 0 {
		return nil, nil
	}
	return d, nil
}

// definitions returns what tables of one schema are now, by their names as the server writes them, without those that
// do not exist or that we may not see. It takes no lock. On MariaDB one that is locked has neither a collation nor
// columns.
func (l *loader) definitions(schema string, tables []ddl.Name) (map[string]*definition, error) {
	args := []any{schema}
	for _, n := range tables {
		args = append(args, n.Table)
	}
	where := " WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?" // MariaDB looks only for these two if that is all
	if len(tables) > 1 {
		where = " WHERE TABLE_SCHEMA = ? AND TABLE_NAME IN (?" + strings.Repeat(", ?", len(tables)-1) + ")"
	}
	rows, err := l.query("SELECT TABLE_COLLATION, TABLE_TYPE, TABLE_NAME FROM information_schema.TABLES"+where, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	defs := make(map[string]*definition, len(rows))
	for _, r := range rows {
		d := &definition{charset: loadedCharset(r[0])}
		if r[1] == versionedType {
			d.rowEnd = hiddenRowEnd
		}
		defs[r[2]] = d
	}
	rows, err = l.query("SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, GENERATION_EXPRESSION, TABLE_NAME FROM "+
		"information_schema.COLUMNS"+
		where+" ORDER BY TABLE_NAME, ORDINAL_POSITION", args...)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if d := defs[r[4]]; d != nil {
			d.load(r)
		}
	}
	return defs, nil
}

// versionedType is the TABLE_TYPE of a table with system versioning. Observed on MariaDB 10.11.
const versionedType = "SYSTEM VERSIONED"

// Computed reports whether GENERATION_EXPRESSION says that an expression makes a column's values: those of system
// versioning are none.
func Computed(expression string) bool {
	return expression != "" && expression != "ROW START" && expression != "ROW END"
}

// load adds a column: COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME and GENERATION_EXPRESSION.
func (d *definition) load(r []string) {
	d.columns = append(d.columns, column{
		name: r[0], typ: r[1], text: r[2] != "", charsets: loadedCharset(r[2]),
		computed: Computed(r[3]),
	})
	if d.rowEnd != "" && r[3] == "ROW END" {
		d.rowEnd = r[0]
	}
}

// isUnread reports whether a table's definition cannot be had for now: we may not read it, or it is locked.
func isUnread(err error) bool { return retry.IsTableDenied(err) || retry.IsLockWait(err) }

// end returns where the binlog ends.
func (l *loader) end() (BinlogPos, error) {
	rows, err := l.query("SHOW MASTER STATUS")
	var e *mysql.MyError
	if errors.As(err, &e) && e.Code == errSyntax { // MySQL 8.4 and later
		rows, err = l.query("SHOW BINARY LOG STATUS")
	}
	if err != nil {
		return BinlogPos{}, err
	}
	if len(rows) == 0 {
		return BinlogPos{}, errors.New("schema: the source writes no binlog")
	}
	pos, err := strconv.ParseUint(rows[0][1], 10, 64)
	return BinlogPos{File: rows[0][0], Pos: pos}, err
}

// LoadCollations returns all collations of the server, for [charset.NewCollations].
func LoadCollations(ctx context.Context, conn Conn) ([]charset.Collation, error) {
	l, err := newLoader(ctx, conn)
	if err != nil {
		return nil, err
	}
	rows, err := l.query(charset.QueryCollations)
	if err != nil {
		return nil, err
	}
	more, err := l.query(charset.QueryCollationsMariaDB)
	if e := (*mysql.MyError)(nil); err != nil && (!errors.As(err, &e) || e.Code != errBadField) {
		return nil, err
	}
	rows = append(rows, more...)
	out := make([]charset.Collation, 0, len(rows))
	for _, r := range rows {
		id, err := strconv.ParseUint(r[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("schema: collation %s has the id %q", r[1], r[0])
		}
		out = append(out, charset.Collation{ID: uint32(id), Name: r[1], Charset: r[2]})
	}
	return out, nil
}
