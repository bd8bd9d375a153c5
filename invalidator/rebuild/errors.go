package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/retry"
)

// Error says why there is no value: which query, what happened, and what to do.
type Error struct {
	text      string
	permanent bool
	cause     error
}

// Error implements error.
func (e *Error) Error() string { return e.text }

// Unwrap returns what it came of, if that was another error.
func (e *Error) Unwrap() error { return e.cause }

// Permanent reports whether the same will happen whenever the query is run again, unless somebody changes something.
func (e *Error) Permanent() bool { return e.permanent }

func permanent(format string, args ...any) *Error {
	return &Error{text: fmt.Sprintf(format, args...), permanent: true}
}

// fault is what is wrong with a result. The connection that it came on has more to read.
type fault struct{ reason string }

func (f *fault) Error() string { return f.reason }

func faulty(format string, args ...any) error { return &fault{fmt.Sprintf(format, args...)} }

func tooLarge(limit int) error {
	return faulty("its result is larger than %d bytes: select fewer rows or columns", limit)
}

// errExceeded ends a connection that brings more than was allowed.
var errExceeded = errors.New("more is received than is allowed")

// prepareError says that the server refused the text. No value is bound yet, so that its sentence holds none.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }

// connectError says that there is no connection.
type connectError struct {
	address string
	err     error
}

func (e *connectError) Error() string {
	return fmt.Sprintf("no connection to %s: %s", e.address, oneLine(e.err))
}
func (e *connectError) Unwrap() error { return e.err }

// oneLine is an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// advice says what to do about the server's error.
// Source: MySQL Server Error Message Reference; MariaDB, "MariaDB Error Codes".
func advice(e *mysql.MyError) string {
	switch e.Code {
	case 1040, 1203, 1226, 1461: // connections, resources of the user, statements
		return "raise the server's limit, or lower the number of queries at once; it is run again"
	case 1021, 1037, 1038, 1041, 1114, 1135: // disk full, out of memory, table full, no thread
		return "the server lacks disk or memory; it is run again"
	case 1064, 1149:
		return "correct its SQL"
	case 1054, 1052, 1146, 1051, 1109, 1049, 1305:
		return "use names that exist, or write schema.table; freshet check tries all queries"
	case 1046:
		return "write the schema before each table, such as shop.review"
	case 1044, 1142, 1143, 1227, 1370:
		return "GRANT SELECT on the tables that it reads to the user of source"
	}
	if !isPermanent(e) {
		return "it is run again"
	}
	return "run it by hand with the row's values to see why"
}

// isPermanent reports whether the query, or what it finds, is wrong: the server does not take it later either.
func isPermanent(e *mysql.MyError) bool { return retry.ClassifySource(e) != retry.Away }

// endsSession reports whether the session, or its prepared statement, is gone with the server's error.
func endsSession(e *mysql.MyError) bool {
	return retry.EndsSession(e) || e.Code == mysql.ER_UNKNOWN_STMT_HANDLER
}

// isSlow reports whether the server ended the query because of its timeout: max_execution_time, max_statement_time.
func isSlow(e *mysql.MyError) bool { return e.Code == 3024 || e.Code == 1969 }

// isLost reports whether the session is gone, and not for anything that the query did.
func isLost(err error) bool {
	var f *fault
	if err == nil || errors.As(err, &f) || errors.Is(err, errTimeout) || errors.Is(err, errClosed) || isContext(err) {
		return false
	}
	if e, ok := retry.ServerError(err); ok {
		return endsSession(e)
	}
	return true
}

// isUsable reports whether the session can go on after the error: the server has said all that it had to say.
func isUsable(err error) bool {
	e, ok := retry.ServerError(err)
	return ok && !endsSession(e)
}

// isContext reports whether the caller's context ended. A connection that was not made in time says so as well.
func isContext(err error) bool {
	var c *connectError
	return !errors.As(err, &c) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// explain makes an [Error] of what went wrong, unless it is the caller's own context that ended.
func (q *Query) explain(err error) error {
	var f *fault
	var c *connectError
	var p *prepareError
	e, fromServer := retry.ServerError(err)
	text, final := "", false
	switch {
	case errors.As(err, &f):
		text, final = f.reason, true
	case errors.As(err, &c):
		text = c.Error() + "; it is run again"
	case errors.Is(err, errTimeout), fromServer && isSlow(e):
		text = fmt.Sprintf("it took longer than its timeout of %s: give it an index, or raise timeout", q.Timeout)
	case errors.Is(err, errBehind):
		text = errBehind.Error() + " that the key is rebuilt for: it is a replica that lags behind, or the server before a " +
			"failover; it is run again"
	case errors.Is(err, errClosed):
		text = errClosed.Error()
	case isContext(err):
		return err
	case fromServer:
		said := fmt.Sprintf("the server refused it with error %d (%s)", e.Code, e.State)
		if errors.As(err, &p) {
			said += ": " + oneLine(errors.New(e.Message))
		}
		text, final = said+": "+advice(e), isPermanent(e)
	default:
		text = "the connection was lost: " + oneLine(err) + "; it is run again"
	}
	return &Error{text: q.name() + ": " + text, permanent: final, cause: err}
}
