package rebuild

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/document"
	"github.com/freshet/freshet/retry"
)

// Queries of one shape are asked together: one statement is the UNION ALL of the same query for several keys, with a
// number before the columns of each that says whose row it is. A server takes about as long for one round trip as for
// such a query. If that makes a difference (an error, a column of another type), each key is asked for alone.
//
// MySQL converts what a part of a union yields to the type of the whole column, as if it were put into a table. If both
// are described alike, that changes nothing in what comes out of a table, but for a date that its sql_mode does not
// allow, such as 2024-00-00: it becomes NULL or a zero date. Of expressions only whole numbers are kept. MariaDB
// changes more (ZEROFILL goes), and is not asked in this way. TestOnServers compares values of all types.

// MySQL also prepares a statement again if a parameter is not what it expects, or if a table was altered or flushed. If
// there is a text in a place then, it compares a BIGINT with whatever comes there later as with a DOUBLE: the row of
// another key may be found. So the parameters of all that a statement is used for, for one key or for several, are of
// the same kinds.

// sizes are of how many queries there is a statement. Each connection prepares it once.
var sizes = []int{16, 4}

// aloneFor is for how long a query is asked for each key alone after it was found that it should be: a table can be
// altered, and by then all sessions have prepared it again.
const aloneFor = maxAge

// maxUnions is how many such statements a session has at most: each takes half a MB and more of the server's memory
// until the session ends, after a minute.
const maxUnions = 32

// togetherBytes is how long the text of a query may be for that, which bounds what the server must parse.
const togetherBytes = 4 << 10

// size returns how many of n keys are asked together next, 1: one is asked alone. A query with many rows could lose
// their order: a server need not keep the order within a part of a union.
func (q *prepared) size(n int) int {
	// A hint may be one that counts for the whole statement, such as SET_VAR.
	if q.isAlone() || q.Many || len(q.Text) > togetherBytes || strings.Contains(q.Text, "/*+") {
		return 1
	}
	for _, size := range sizes {
		if n >= size {
			return size
		}
	}
	return 1
}

// isAlone reports whether the query must be asked for each key alone for the time being.
func (q *prepared) isAlone() bool { return time.Now().UnixNano() < q.aloneUntil.Load() }

func (q *prepared) setAlone() { q.aloneUntil.Store(time.Now().Add(aloneFor).UnixNano()) }

// asked are the parameters of a key, with its place among all that are asked for, and their kinds.
type asked struct {
	i     int
	args  []any
	kinds string
}

// alike returns how many from the first one on have parameters of the same kinds.
func alike(all []asked) (n int) {
	for n < len(all) && all[n].kinds == all[0].kinds {
		n++
	}
	return n
}

// kindsOf returns a letter for each parameter, by what MySQL may take its text for: an integer of each of its sizes,
// another number, or none; n is NULL.
func kindsOf(args []any) string {
	kinds := make([]byte, len(args))
	for i, a := range args {
		text, _ := a.([]byte)
		kinds[i] = kindOf(text)
	}
	return string(kinds)
}

func kindOf(text []byte) byte {
	if text == nil {
		return 'n'
	}
	if _, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return 'i'
	}
	if _, err := strconv.ParseUint(string(text), 10, 64); err == nil {
		return 'u'
	}
	if _, err := strconv.ParseFloat(string(text), 64); (err == nil || errors.Is(err, strconv.ErrRange)) &&
		len(bytes.Trim(text, "0123456789.eE+-")) == 0 { // no NaN
		return 'd'
	}
	return 't'
}

// union is the text that asks n queries.
func (q *Query) union(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString("SELECT " + strconv.Itoa(i) + ", q.* FROM (" + q.Text + ") q")
	}
	return b.String()
}

// together asks the query for several keys at once. It returns a sink for each, nil where the key must be asked for
// alone.
func (r *Runner) together(ctx context.Context, q *prepared, all []asked, m *moment) []*sink {
	began := time.Now()
	sinks := make([]*sink, len(all))
	for i := range sinks {
		sinks[i] = &sink{query: &q.Query, limit: r.o.MaxBytes}
	}
	ran := false
	err := r.run(ctx, q, len(all), m, func(c *conn) (err error) {
		ran, err = c.runTogether(q, all, sinks)
		return err
	})
	if err == nil && !ran || isApart(err) {
		return make([]*sink, len(all))
	}
	each, again := time.Since(began)/time.Duration(len(sinks)), 0
	for i, s := range sinks {
		switch {
		case err != nil:
			s.err = err
		case s.mayBeConverted:
			sinks[i] = nil
			again++
			continue
		}
		q.observe(each, s.err)
	}
	if again > len(sinks)/2 {
		q.setAlone() // a column that is mostly NULL: it does not pay
	}
	return sinks
}

// isApart reports whether queries that failed together may succeed alone, and soon. Those that took too long would take
// as long again, one after the other; and so would a server that is away.
func isApart(err error) bool {
	var f *fault
	e, fromServer := retry.ServerError(err)
	return errors.Is(err, errApart) || errors.As(err, &f) || fromServer && !endsSession(e) && !isSlow(e)
}

// runTogether runs the query for several keys; ran: unless it was seen before that they must be asked for alone.
func (c *conn) runTogether(q *prepared, all []asked, sinks []*sink) (ran bool, err error) {
	if !c.unites {
		q.setAlone()
		return false, nil
	}
	kinds := all[0].kinds
	if c.unions >= maxUnions && c.statements[statementKey{q.ordinal, len(all), kinds}] == nil {
		return false, nil
	}
	single, err := c.statement(q, 1, kinds)
	if err != nil {
		return false, err
	}
	statement, err := c.statement(q, len(all), kinds)
	if _, fromServer := retry.ServerError(err); fromServer && !isLost(err) {
		q.setAlone()
	}
	if err != nil {
		return false, err
	}
	alone := single.columns
	if !mayUnite(statement.columns, alone) {
		q.setAlone()
		c.forget(q, len(all), kinds)
		return false, nil
	}
	c.meter.allow(int64(2*sinks[0].limit) + handshakeBytes)
	var wrong error // the library wraps what is returned to it
	begin := func(r *mysql.Result) error {
		columns := columnsOf(r.Fields, c.maria)
		if !mayUnite(columns, alone) {
			q.setAlone()
			wrong = errApart
			return wrong
		}
		columns = columns[1:]
		var writer *document.Writer
		writer, wrong = q.document(columns)
		for _, s := range sinks {
			*s = sink{
				query: s.query, limit: s.limit, maria: c.maria,
				columns: columns, values: make([]event.Value, len(alone)), writer: writer,
			}
		}
		return wrong
	}
	row := func(row []mysql.FieldValue) error {
		if s := sinks[row[0].AsInt64()]; s.err == nil {
			_ = s.row(row[1:]) // its error is this key's alone
			s.mayBeConverted = s.mayBeConverted || s.holdsNoDate()
		}
		return nil
	}
	var args []any
	for _, a := range all {
		args = append(args, a.args...)
	}
	var result mysql.Result
	defer result.Close()
	err = statement.ExecuteSelectStreaming(&result, row, begin, args...)
	switch {
	case wrong != nil:
		return true, wrong
	case c.meter.exceeded:
		return true, tooLarge(sinks[0].limit)
	}
	return true, err
}

// mayUnite reports whether a union, whose columns follow a number, has the values that the query has alone.
func mayUnite(columns, alone []column) bool {
	return len(columns) > 0 && slices.EqualFunc(columns[1:], alone, func(c, o column) bool {
		return c.isLike(o) && o.isKept()
	})
}

// isKept reports whether values of the column outlive that they are put into another of the same description, as those
// of tables and whole numbers do. Other expressions can have values that are none of their type: a DECIMAL with fewer
// decimals, a year before 1901, a text that is longer than the server expects.
func (c column) isKept() bool { return c.stored || c.Class == event.ClassInt }

// holdsNoDate reports whether a date of the current row is NULL or zero.
func (s *sink) holdsNoDate() bool {
	for i := range s.columns {
		switch s.columns[i].typ {
		case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE, mysql.MYSQL_TYPE_DATETIME, mysql.MYSQL_TYPE_TIMESTAMP:
			if v := &s.values[i]; v.Kind == event.Null || bytes.HasPrefix(v.Text, []byte("0000-00-00")) {
				return true
			}
		}
	}
	return false
}

// errApart says that a query cannot be asked for several keys together.
var errApart = errors.New("the query for several keys together would not have the same columns")

// unites reports whether a MySQL of that version may be asked for several keys together: from 8.0 on.
func unites(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 8
}

// isLike reports whether values of two columns are written in the same way.
func (c column) isLike(o column) bool {
	return c.Name == o.Name && c.Type == o.Type && c.Class == o.Class && c.Unsigned == o.Unsigned && c.typ == o.typ &&
		(c.decimals == o.decimals || c.Class != event.ClassTemporal && c.Class != event.ClassDecimal) && c.real == o.real
}
