package rebuild

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func valuesOfEachForm(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key, name varchar(20), price decimal(10,2))",
		"insert into shop.t values (1, 'Jar', 9.90), (2, null, null), (3, 'Pot', 0)")
	const all = "SELECT id, name, price FROM t WHERE id >= :low AND id <= :high ORDER BY id"
	one := as(t, event.FormJSON, all)
	list := as(t, event.FormJSON, all, many)
	numbers := as(t, event.FormJSON, all, func(q *Query) { q.DecimalNumbers = true })
	hash := as(t, event.FormHash, "SELECT name, price FROM t WHERE id = :id")
	fields := as(t, event.FormHash, "SELECT id, name FROM t WHERE id <= :id", many)
	text := as(t, event.FormString, "SELECT name FROM t WHERE id = :id")
	most := as(t, event.FormString, "SELECT max(price) FROM t WHERE id > :id")
	r := newRunner(t, options(s, one, list, numbers, hash, fields, text, most))
	for _, c := range []struct {
		q      Query
		params []string
		want   string
	}{
		{one, []string{"1", "1"}, `{"id":1,"name":"Jar","price":"9.90"}`},
		{one, []string{"2", "2"}, `{"id":2,"name":null,"price":null}`},
		{one, []string{"7", "9"}, "missing"},
		{one, []string{"NULL", "1"}, "missing"}, // nothing is equal to NULL
		{list, []string{"2", "3"}, `[{"id":2,"name":null,"price":null},{"id":3,"name":"Pot","price":"0.00"}]`},
		{list, []string{"7", "9"}, "[]"},
		{numbers, []string{"1", "1"}, `{"id":1,"name":"Jar","price":9.90}`},
		{hash, []string{"1"}, "name|Jar|price|9.90"},
		{hash, []string{"3"}, "name|Pot|price|0.00"},
		{hash, []string{"2"}, "missing"}, // all columns are NULL
		{hash, []string{"9"}, "missing"},
		{fields, []string{"3"}, "1|Jar|3|Pot"}, // 2 is NULL
		{fields, []string{"0"}, "missing"},
		{text, []string{"1"}, "Jar"},
		{text, []string{"2"}, "missing"},
		{text, []string{"9"}, "missing"},
		{most, []string{"2"}, "0.00"},
		{most, []string{"9"}, "missing"}, // a row, which holds NULL
	} {
		if got := get(t, r, c.q, c.params...); got != c.want {
			t.Errorf("%s %v %q\n got %s\nwant %s", c.q.Text, c.q.As, c.params, got, c.want)
		}
	}
}

// Parameters are texts, whatever the column: the server compares them as the column is compared.
func parametersFindTheirRows(t *testing.T, s *testbed.Server) {
	s.Exec(t, `create table shop.t (id int primary key auto_increment, big bigint unsigned, dec_ decimal(30,5), name varchar(20) collate utf8mb4_general_ci,
		latin varchar(20) character set latin1, raw binary(4), blob_ varbinary(9), day date, at datetime(3), stamp timestamp(6) null, kind enum('a','é'), score double)`,
		`insert into shop.t (big, dec_, name, latin, raw, blob_, day, at, stamp, kind, score) values
		 (18446744073709551615, 9007199254740993.00001, 'Ann', 'é', x'00ff00fe', x'c3', '2024-05-06', '2024-05-06 07:08:09.123', '2024-05-06 07:08:09.123456', 'é', 1.5),
		 (9007199254740993, 1, 'bob', 'o', x'41424344', x'c3a9', '2024-05-07', '2024-05-06 07:08:09', '2024-05-06 07:08:09', 'a', 0.1),
		 (9007199254740992, 2, 'a''b"c\\', '''', x'00000000', '', null, null, null, null, null)`)
	find := func(column, value string) string {
		t.Helper()
		q := as(t, event.FormJSON, "SELECT id FROM t WHERE "+column+" = :v ORDER BY id", many)
		return get(t, newRunner(t, options(s, q)), q, value)
	}
	for _, c := range []struct{ column, value, want string }{
		{"big", "18446744073709551615", `[{"id":1}]`},
		{"big", "9007199254740993", `[{"id":2}]`},
		{"dec_", "9007199254740993.00001", `[{"id":1}]`},
		{"name", "ANN", `[{"id":1}]`},
		{"name", `a'b"c\`, `[{"id":3}]`},
		{"latin", "é", `[{"id":1}]`},
		{"raw", "\x00\xff\x00\xfe", `[{"id":1}]`},
		{"raw", "ABCD", `[{"id":2}]`},
		{"blob_", "\xc3", `[{"id":1}]`},
		{"blob_", "é", `[{"id":2}]`},
		{"blob_", "", `[{"id":3}]`},
		{"day", "2024-05-06", `[{"id":1}]`},
		{"at", "2024-05-06 07:08:09.123", `[{"id":1}]`},
		{"stamp", "2024-05-06 07:08:09.123456", `[{"id":1}]`},
		{"kind", "é", `[{"id":1}]`},
		{"score", "1.5", `[{"id":1}]`},
		{"big", "NULL", "[]"},
	} {
		if got := find(c.column, c.value); got != c.want {
			t.Errorf("%s = %q: %s, want %s", c.column, c.value, got, c.want)
		}
	}
	// Bytes stay bytes.
	raw := as(t, event.FormJSON, "SELECT hex(:v) AS h, cast(:v AS binary) AS b")
	if got := get(t, newRunner(t, options(s, raw)), raw, "\x00\xff\xc3",
		"\x00\xff\xc3"); got != `{"h":"00FFC3","b":"AP/D"}` {
		t.Error(got)
	}
	// One parameter several times, others between, NULL in one place and not in the other.
	q := as(t, event.FormJSON, "SELECT :a AS a, :b AS b, :a IS NULL AS c, ':a' AS d, CONCAT(:b, :b) AS e")
	r := newRunner(t, options(s, q))
	for range 2 {
		if got := get(t, r, q, "NULL", "ü", "NULL", "x", "y"); got != `{"a":null,"b":"ü","c":1,"d":":a","e":"xy"}` {
			t.Error(got)
		}
	}
	if got := get(t, r, q, "NULL", "NULL", "NULL", "NULL", "NULL"); got != `{"a":null,"b":null,"c":1,"d":":a","e":null}` {
		t.Error(got)
	}
}

func queriesThatCannotBeRun(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key, name varchar(20))", "insert into shop.t values (1, 'a'), (2, 'b')",
		"create table shop.secret (id int)", "create user reader identified by 'pw'", "grant select on shop.t to reader",
		"create database open", "grant select on open.* to reader")
	for _, c := range []struct {
		q     Query
		parts []string
	}{
		{as(t, event.FormJSON, "SELECT nme FROM t"), []string{"nme", "freshet.yaml:3:5", "use names that exist"}},
		{as(t, event.FormJSON, "SELECT a FROM open.nowhere"), []string{"open.nowhere", "use names that exist"}},
		{as(t, event.FormJSON, "SELECT id FROM t WHERE ("), []string{"correct its SQL"}},
		{
			as(t, event.FormJSON, "SELECT id FROM t", func(q *Query) { q.Schema = "" }),
			[]string{"write the schema before each table"},
		},
		{as(t, event.FormJSON, "SELECT id FROM t", func(q *Query) { q.Schema = "absent" }), []string{"absent"}},
		{as(t, event.FormJSON, "SELECT id FROM secret"), []string{"denied", "GRANT SELECT"}},
		{as(t, event.FormJSON, "SELECT id FROM t"), []string{"more than one row", "rows: many"}},
		{as(t, event.FormJSON, "SELECT id, name AS id FROM t", many), []string{"two columns called `id`", "AS"}},
		{as(t, event.FormString, "SELECT id, name FROM t WHERE id = 1"), []string{"it has 2 columns", "as: string"}},
		{as(t, event.FormHash, "SELECT id FROM t", many), []string{"it has 1 columns", "as a hash need two"}},
		{
			as(t, event.FormHash, "SELECT nullif(id, 2) AS f, name FROM t ORDER BY id", many),
			[]string{"the name of a field, is NULL"},
		},
		{as(t, event.FormJSON, "SELECT (SELECT id FROM t) AS a"), []string{"error 1242", "run it by hand"}},
		{as(t, event.FormJSON, "SELECT id FROM t WHERE id = (SELECT id FROM t WHERE id < :id)"), []string{"error 1242"}},
	} {
		o := options(s, c.q)
		o.User, o.Password = "reader", credential.Text("pw")
		r := newRunner(t, o)
		var values []string
		if len(c.q.Params) > 0 {
			values = []string{"123456"}
		}
		wants(t, fails(t, r, c.q, values...), true, c.parts...)
		// The session is none the worse for it, or a new one is made.
		wants(t, fails(t, r, c.q, values...), true, c.parts...)
	}
}

// What a server says of a value is not told: errors are shown, and kept.
func TestErrorsKeepParametersToThemselves(t *testing.T) {
	t.Parallel()
	s := server(t, testbed.FlavorMySQL)
	q := as(t, event.FormJSON, "SELECT uuid_to_bin(:id) AS id")
	r := newRunner(t, options(s, q))
	var id []byte
	if err := s.DB().QueryRowContext(t.Context(), "SELECT uuid_to_bin(?)", "confidential").Scan(&id); err == nil ||
		!strings.Contains(err.Error(), "confidential") {
		t.Fatalf("the server does not quote the value: %v", err)
	}
	wants(t, fails(t, r, q, "confidential"), true, "error 1411 (HY000)")
}

func TestWhatTheServerCannotBeAskedFor(t *testing.T) {
	q := as(t, event.FormJSON, "SELECT :a AS a")
	o := Options{Address: "127.0.0.1:1", User: "u", Queries: []Query{q}}
	r := newRunner(t, o)
	for _, c := range []struct {
		source, id string
		params     event.Fields
		want       string
	}{
		{"other", q.ID, params("x"), `the source "other"`},
		{DefaultSource, "0123456789abcdef", params("x"), "not in this process's configuration"},
		{DefaultSource, q.ID, params(), "asked for with 0 parameters and has 1"},
		{DefaultSource, q.ID, params("x", "y"), "asked for with 2 parameters and has 1"},
		{DefaultSource, q.ID, event.Fields{9}, "damaged"},
	} {
		_, _, err := one(t.Context(), r, c.source, c.id, c.params, nil)
		if e, ok := err.(*Error); !ok || !e.Permanent() || !strings.Contains(e.Error(), c.want) {
			t.Errorf("%v, want a permanent error with %q", err, c.want)
		}
	}
	wants(t, fails(t, r, q, "x"), false, "127.0.0.1:1", "it is run again")
}

func TestOptionsSayAllThatIsWrong(t *testing.T) {
	_, err := New(Options{
		Pool: -1,
		Queries: []Query{
			{},
			as(t, event.FormString, "SELECT 1", many),
			as(t, event.FormJSON, "SELECT 1", func(q *Query) { q.Timeout = -1 }),
		},
	})
	for _, want := range []string{
		"no address", "no user", "a limit is negative", "has no text or no fingerprint",
		"a string cannot hold many rows", "its timeout is negative",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
}
