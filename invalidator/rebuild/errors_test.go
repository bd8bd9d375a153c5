package rebuild

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestWhatErrorsMean(t *testing.T) {
	server := func(code uint16, state, message string) error {
		return fmt.Errorf("wrapped: %w", &mysql.MyError{Code: code, State: state, Message: message})
	}
	q := as(t, event.FormJSON, "SELECT 1")
	for _, c := range []struct {
		err               error
		final, lost, kept bool
		says              string
	}{
		{server(1213, "40001", "Deadlock found"), false, false, true, "it is run again"},
		{server(1205, "HY000", "Lock wait timeout"), false, false, true, "it is run again"},
		{server(3024, "HY000", "maximum statement execution time exceeded"), false, false, true, "raise timeout"},
		{server(1969, "70100", "max_statement_time exceeded"), false, false, true, "raise timeout"},
		{server(1317, "70100", "Query execution was interrupted"), false, false, true, "it is run again"},
		{server(1053, "08S01", "Server shutdown in progress"), false, true, false, "it is run again"},
		{server(1927, "70100", "Connection was killed"), false, true, false, "it is run again"},
		{
			server(4031, "HY000", "The client was disconnected by the server because of inactivity"), false, true, false,
			"it is run again",
		},
		{
			server(1461, "42000", "Can't create more than max_prepared_stmt_count statements"), false, false, true,
			"raise the server's limit",
		},
		{server(1038, "HY001", "Out of sort memory"), false, false, true, "lacks disk or memory"},
		{server(9999, "40000", "a rollback of the future"), false, false, true, "it is run again"},
		{server(1064, "42000", "secret value"), true, false, true, "correct its SQL"},
		{
			&prepareError{server(1054, "42S22", "Unknown column 'a'\n in x")}, true, false, true,
			"Unknown column 'a' in x: use names that exist",
		},
		{server(1690, "22003", "secret value"), true, false, true, "error 1690 (22003): run it by hand"},
		{tooLarge(7), true, false, false, "larger than 7 bytes"},
		{io.ErrUnexpectedEOF, false, true, false, "the connection was lost: unexpected EOF"},
		{mysql.ErrBadConn, false, true, false, "the connection was lost"},
		{&connectError{"db:3306", server(1045, "28000", "Access denied")}, false, false, true, "no connection to db:3306"},
		{errTimeout, false, false, false, "longer than its timeout of 0s"},
		{errClosed, false, false, false, "stopping"},
	} {
		var e *Error
		if err := q.explain(c.err); !errors.As(err, &e) || e.Permanent() != c.final || !strings.Contains(e.Error(), c.says) ||
			strings.Contains(e.Error(), "secret") {
			t.Errorf("%v: %v, permanent %v", c.err, e, e.Permanent())
		}
		if isLost(c.err) != c.lost || isUsable(c.err) != c.kept {
			t.Errorf("%v: lost %v, usable %v", c.err, isLost(c.err), isUsable(c.err))
		}
	}
	if err := q.explain(context.Canceled); err != context.Canceled {
		t.Errorf("the caller's own end became %v", err)
	}
}

func TestSessionsAreEncryptedWhenAsked(t *testing.T) {
	t.Parallel()
	s := server(t, testbed.FlavorMySQL)
	q := as(t, event.FormString,
		"SELECT variable_value <> '' FROM performance_schema.session_status WHERE variable_name = 'Ssl_cipher'")
	o := options(s, q)
	if got := get(t, newRunner(t, o), q); got != "0" {
		t.Errorf("encrypted unasked: %s", got)
	}
	// The certificate is one that the server made for itself.
	o.TLS = credentialtest.Fixed(&tls.Config{InsecureSkipVerify: true})
	if got := get(t, newRunner(t, o), q); got != "1" {
		t.Errorf("not encrypted: %s", got)
	}
}

func TestAServerWithoutTLS(t *testing.T) {
	t.Parallel()
	s := server(t, testbed.FlavorMariaDB, "--skip-ssl")
	q := as(t, event.FormString, "SELECT 7")
	o := options(s, q)
	o.TLS = credentialtest.Fixed(&tls.Config{InsecureSkipVerify: true})
	wants(t, fails(t, newRunner(t, o), q), false, "TLS")
	o.TLSOptional = true
	if got := get(t, newRunner(t, o), q); got != "7" {
		t.Error(got)
	}
}
