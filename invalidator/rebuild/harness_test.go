package rebuild

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router/query"
)

// both runs a test on a server of each kind.
func both(t *testing.T, f func(t *testing.T, s *testbed.Server)) {
	for _, flavor := range []testbed.Flavor{testbed.FlavorMySQL, testbed.FlavorMariaDB} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			f(t, server(t, flavor))
		})
	}
}

// What must hold on a server of either kind, in a database of its own.
func TestOnServers(t *testing.T) {
	both(t, func(t *testing.T, s *testbed.Server) {
		for name, test := range map[string]func(*testing.T, *testbed.Server){
			"values of each form":                                valuesOfEachForm,
			"parameters find their rows":                         parametersFindTheirRows,
			"queries that cannot be run":                         queriesThatCannotBeRun,
			"a slow query is ended by the server":                aSlowQueryIsEndedByTheServer,
			"a killed query is transient":                        aKilledQueryIsTransient,
			"a query outlives the end of idle sessions":          aQueryOutlivesTheEndOfIdleSessions,
			"a large result is refused in bounded memory":        aLargeResultIsRefusedInBoundedMemory,
			"sessions read only, whatever the server's settings": sessionsReadOnly,
			"only committed data is read":                        onlyCommittedDataIsRead,
			"a locked table is not waited for":                   aLockedTableIsNotWaitedFor,
			"the pool is bounded":                                thePoolIsBounded,
			"the caller's context ends a query":                  theCallersContextEndsAQuery,
			"close ends what runs":                               closeEndsWhatRuns,
			"idle sessions are closed":                           idleSessionsAreClosed,
			"check tries all queries":                            checkTriesAllQueries,
			"check says where queries run":                       checkSaysWhereQueriesRun,
			"types are the same together":                        typesAreTheSameTogether,
			"queries asked together":                             queriesAskedTogether,
			"expressions are the same together":                  expressionsAreTheSameTogether,
			"a table is altered below queries asked together":    aTableIsAlteredBelowQueriesAskedTogether,
			"parameters of others make no difference":            parametersOfOthersMakeNoDifference,
			"no key has the row of another":                      noKeyHasTheRowOfAnother,
			"each key is answered for itself":                    eachKeyIsAnsweredForItself,
			"statements for several keys are bounded":            statementsForSeveralKeysAreBounded,
			"metrics count queries":                              metricsCountQueries,
		} {
			t.Run(name, func(t *testing.T) {
				s.Exec(t, "drop database shop", "create database shop character set utf8mb4")
				test(t, s)
			})
		}
	})
}

func server(t *testing.T, flavor testbed.Flavor, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.MySQL
	if flavor == testbed.FlavorMariaDB {
		s = testbed.MariaDB
	}
	db := s(t, args...)
	db.Exec(t, "create database shop character set utf8mb4")
	return db
}

// as makes a query.
func as(t testing.TB, form event.Form, sql string, change ...func(*Query)) Query {
	t.Helper()
	parsed, err := query.Parse(sql)
	testbed.Must(t, err)
	q := Query{Query: *parsed, Schema: "shop", As: form, Table: "shop.t", Where: "freshet.yaml:3:5"}
	for _, f := range change {
		f(&q)
	}
	q.Identify(q.Schema, form.String(), map[bool]string{false: "one", true: "many"}[q.Many],
		map[bool]string{false: "string", true: "number"}[q.DecimalNumbers])
	return q
}

func many(q *Query) { q.Many = true }

// options are those for a server.
func options(s *testbed.Server, queries ...Query) Options {
	return Options{Address: s.Addr, User: s.User, Password: credential.Text(s.Password), Queries: queries}
}

func newRunner(t testing.TB, o Options) *Runner {
	t.Helper()
	r, err := New(o)
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, r.Close()) })
	return r
}

// params makes fields; "NULL" is null.
func params(values ...string) event.Fields {
	var f []byte
	for _, v := range values {
		if v == "NULL" {
			f = event.AppendNull(f)
		} else {
			f = event.AppendField(f, v)
		}
	}
	return f
}

// one runs a query for one key.
func one(ctx context.Context, r *Runner, source, id string, params event.Fields, after *event.GTIDSet) (
	value event.Fields, missing bool, err error,
) {
	r.Query(ctx, source, id, []event.Fields{params}, after, func(_ int, v event.Fields, m bool, e error) bool {
		value, missing, err = v, m, e
		return true
	})
	return value, missing, err
}

// get runs a query and returns its value, its fields divided by |; "missing" if there is none.
func get(t testing.TB, r *Runner, q Query, values ...string) string {
	t.Helper()
	value, missing, err := one(t.Context(), r, DefaultSource, q.ID, params(values...), nil)
	switch {
	case err != nil:
		t.Fatalf("%s %q: %v", q.Text, values, err)
	case missing:
		return "missing"
	}
	return joined(t, value)
}

func joined(t testing.TB, value event.Fields) string {
	t.Helper()
	fields, err := value.All()
	testbed.Must(t, err)
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = string(f)
	}
	return strings.Join(texts, "|")
}

// fails runs a query that fails, and returns the error.
func fails(t testing.TB, r *Runner, q Query, values ...string) *Error {
	t.Helper()
	value, missing, err := one(t.Context(), r, DefaultSource, q.ID, params(values...), nil)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%s %q: %.100q %v %v, want an error", q.Text, values, value, missing, err)
	}
	for _, v := range values {
		if len(v) > 3 && strings.Contains(e.Error(), v) {
			t.Errorf("the error names the parameter %q: %v", v, e)
		}
	}
	return e
}

// wants checks an error.
func wants(t testing.TB, e *Error, permanent bool, parts ...string) {
	t.Helper()
	if e.Permanent() != permanent {
		t.Errorf("%v: permanent is %v", e, e.Permanent())
	}
	for _, part := range append(parts, "mapping 1 (shop.t)") {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%v\ndoes not say %q", e, part)
		}
	}
}
