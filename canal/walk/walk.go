package walk

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Conn is a session on the source. go-mysql's client.Conn is one.
type Conn interface {
	Execute(command string, args ...any) (*mysql.Result, error)
	ExecuteSelectStreaming(command string, result *mysql.Result, row client.SelectPerRowCallback,
		begin client.SelectPerResultCallback) error
}

// Options say what to walk. All but Where are required.
type Options struct {
	// Connect opens a session, and returns what closes it.
	Connect func(ctx context.Context) (c Conn, closes func(), err error)
	Schema  string
	Table   string
	// Where is SQL that a row must meet, as an operator wrote it; "": all rows.
	Where string
	// Until is where the walk ends; the zero Place, or one of another key than the table's: after the last row.
	Until Place
	// Bind returns the columns that are wanted of the rows; nil: none are, and the walk fails.
	Bind func(t *event.Table) ([]event.Need, error)
}

// Size bounds a chunk. A row that goes beyond Bytes is the chunk's last.
type Size struct{ Rows, Bytes int }

// Chunk is what was read.
type Chunk struct {
	// Rows is how many rows were handed out, and Bytes about how large they were.
	Rows, Bytes int
	// Passed is how many rows it has passed over, those included that do not meet the condition; it may be more than is
	// counted.
	Passed int
	// Last says that no rows are left.
	Last bool
	// Place is where the walk goes on.
	Place Place
}

// Walk is one walk over a table.
type Walk struct {
	o     Options
	place Place

	conn   Conn
	closes func()
	table  *table
	needs  []event.Need
	values []event.Value
}

// New returns a walk that goes on from a place; the zero Place is before the first row. It asks nothing before
// [Walk.Chunk] and [Walk.Try].
func New(o Options, from Place) *Walk { return &Walk{o: o, place: from} }

// Close ends the session. The walk can go on all the same.
func (w *Walk) Close() {
	if w.conn != nil {
		w.closes()
		w.conn = nil
	}
}

// errFull says that a chunk has become too large.
var errFull = errors.New("the chunk is full")

// Try asks the server whether the table can be walked, and what it says of the condition.
//
// The condition must be one by itself. Where it closes the parentheses around it, as "1) OR (1" does, the place in the
// table would not bound it: chunks would read the whole table, and the walk would go back. No such text is one between
// words.
func (w *Walk) Try(ctx context.Context) error {
	defer w.Close()
	if err := w.describe(ctx); err != nil {
		return err
	}
	for _, condition := range w.tried() {
		if _, err := w.query("SELECT 1 FROM " + w.table.sql() + w.table.where(condition) + " LIMIT 0"); err != nil {
			return err
		}
	}
	return nil
}

// tried returns the condition in each of the forms that the server must take.
func (w *Walk) tried() []string {
	if w.o.Where == "" {
		return []string{""}
	}
	return []string{w.condition(), "CASE WHEN " + w.o.Where + "\n THEN 1 END"}
}

// Chunk reads the next chunk, and hands out each row. The values are valid only during the call. If it fails, all rows
// of the chunk come again with the next call.
func (w *Walk) Chunk(ctx context.Context, size Size, each func(t *event.Table, values []event.Value) error,
) (c Chunk, err error) {
	defer func() {
		if err != nil {
			w.Close() // whatever state it is in
		}
	}()
	if err := w.describe(ctx); err != nil {
		return c, err
	}
	if from := w.table.key.names(); !reflect.DeepEqual(from, w.place.Key) {
		w.place = Place{Key: from} // it was another key, so nothing says which rows are left
	}
	end, err := w.end(size.Rows)
	if err != nil {
		return c, err
	}
	c, err = w.rows(end, size.Bytes, each)
	if c.Passed = c.Rows; end != nil && slices.Equal(c.Place.After, end) {
		c.Passed = max(c.Rows, size.Rows)
	}
	if err == nil {
		w.place = c.Place
	}
	return c, err
}

// About returns about how many rows the table has, as the server thinks; 0: that is not known.
func (w *Walk) About(ctx context.Context) int64 {
	if w.describe(ctx) != nil {
		return 0 // the next chunk says why
	}
	found, err := w.query("SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = " + text(w.table.Schema) +
		" AND TABLE_NAME = " + text(w.table.Name))
	if err != nil || len(found) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(found[0][0], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// describe asks for the table as it is now. The same definition stays the same [event.Table]: routers know it by that.
func (w *Walk) describe(ctx context.Context) error {
	if w.conn == nil {
		conn, closes, err := w.o.Connect(ctx)
		if err != nil {
			return err
		}
		w.conn, w.closes = conn, closes
		if err := w.settle(); err != nil {
			return err
		}
	}
	t, err := w.load()
	if err != nil {
		return err
	}
	if w.table != nil && reflect.DeepEqual(t, w.table) {
		return nil
	}
	if w.needs, err = w.o.Bind(&t.Table); err != nil {
		return refuse("%v", err)
	}
	if w.needs == nil {
		return refuse("no mapping is for the table %s", t.String())
	}
	w.table, w.values = t, make([]event.Value, len(w.needs))
	return t.printable(w.needs)
}

// settle makes the session what the package promises: texts in utf8mb4 and times in UTC, an SQL that means the same on
// every server, no writes, and no statement that runs forever.
func (w *Walk) settle() error {
	for _, statement := range []string{
		"SET NAMES utf8mb4",
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		"SET autocommit = 1, time_zone = '+00:00', sql_select_limit = 18446744073709551615, sql_mode = ''",
	} {
		if _, err := w.query(statement); err != nil {
			return err
		}
	}
	return w.limit()
}

// statementSeconds is for how long a statement may run.
const statementSeconds = 30

// limit has the server end what runs for too long: MySQL counts in milliseconds, MariaDB in seconds.
func (w *Walk) limit() error {
	version, err := w.query("SELECT VERSION()")
	if err != nil {
		return err
	}
	statement := fmt.Sprintf("SET SESSION max_execution_time = %d", statementSeconds*1000)
	if strings.Contains(strings.ToLower(version[0][0]), "mariadb") {
		statement = fmt.Sprintf("SET SESSION max_statement_time = %d", statementSeconds)
	}
	_, err = w.query(statement)
	return err
}

// condition is what a row must meet besides its place. The operator's own comment must not hide what follows.
func (w *Walk) condition() string {
	if w.o.Where == "" {
		return ""
	}
	return "(" + w.o.Where + "\n)"
}

// until is the condition that a row is not after the end of the walk.
func (w *Walk) until() string {
	if !slices.Equal(w.o.Until.Key, w.table.key.names()) {
		return ""
	}
	return w.table.key.upTo(w.o.Until.After)
}

// end returns the key of the row at which the next chunk ends, as literals; nil: fewer rows are left.
func (w *Walk) end(rows int) ([]string, error) {
	t := w.table
	found, err := w.query(fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d, 1", strings.Join(t.key.prints(), ", "),
		t.sql(), t.where(t.key.after(w.place.After), w.until()), t.key.order(), max(rows, 1)-1))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return t.key.literals(found[0]), nil
}

// rows hands out the rows up to an end.
func (w *Walk) rows(end []string, most int, each func(t *event.Table, values []event.Value) error,
) (c Chunk, err error) {
	t := w.table
	prints := t.key.prints()
	for _, n := range w.needs {
		prints = append(prints, t.print(n))
	}
	statement := fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s", strings.Join(prints, ", "), t.sql(),
		t.where(t.key.after(w.place.After), t.key.upTo(end), w.until(), w.condition()), t.key.order())
	keys := len(t.key)
	key := make([]string, keys)
	var result mysql.Result
	defer result.Close()
	var stopped error // the library wraps what is returned to it
	err = w.conn.ExecuteSelectStreaming(statement, &result, func(row []mysql.FieldValue) error {
		if c.Bytes >= most && c.Rows > 0 {
			stopped = errFull
			return stopped
		}
		for i := range key {
			key[i] = string(row[i].AsString())
		}
		c.Rows++
		stopped = w.row(row[keys:], &c, each)
		return stopped
	}, nil)
	if stopped != nil {
		err = stopped
	}
	c.Place = Place{Key: t.key.names(), After: end}
	switch {
	case err == errFull:
		w.Close() // the rest of the rows is still on its way
		c.Place.After = t.key.literals(key)
		return c, nil
	case err != nil:
		return c, fmt.Errorf("%s: %w", t.String(), err)
	}
	c.Last = end == nil
	return c, nil
}

// row hands out a row.
func (w *Walk) row(row []mysql.FieldValue, c *Chunk, each func(t *event.Table, values []event.Value) error) error {
	for i, n := range w.needs {
		if err := w.table.value(&w.values[i], &row[i], n); err != nil {
			return err
		}
		c.Bytes += len(w.values[i].Text)
	}
	return each(&w.table.Table, w.values)
}

// query runs a statement, and returns its rows as text; NULL is "".
func (w *Walk) query(statement string) ([][]string, error) {
	r, err := w.conn.Execute(statement)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Resultset == nil {
		return nil, nil
	}
	rows := make([][]string, r.RowNumber())
	for i := range rows {
		rows[i] = make([]string, r.ColumnNumber())
		for j := range rows[i] {
			text, err := r.GetString(i, j)
			if err != nil {
				return nil, err
			}
			rows[i][j] = strings.Clone(text) // the result's memory goes back to a pool
		}
	}
	return rows, nil
}

// Refused reports whether the server has refused a statement, for a reason that may be its own for a while: the caller
// decides how often it is asked again.
func Refused(err error) bool {
	if IsMissing(err) {
		return true
	}
	c := retry.ClassifySource(err)
	return c == retry.Refused || c == retry.Lost
}
