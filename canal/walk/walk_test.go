package walk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Starting a server costs more than most of these: they share one of each flavor.
func TestTablesAreWalked(t *testing.T) {
	for _, source := range []*testbed.Server{testbed.MySQL(t), testbed.MariaDB(t)} {
		for name, test := range map[string]func(*testing.T, *testbed.Server){
			"every row, by keys of every type": everyRowOnce, "a chunk reads its rows": chunkReadsItsRows,
			"large rows": largeRows, "conditions": conditions, "refusals": refusedTables, "another key": anotherKey,
			"a hidden key": hiddenKey, "a row again": rowAgain, "up to a place": upToAPlace,
			"a table that is dropped": droppedMeanwhile,
		} {
			t.Run(string(source.Flavor)+"/"+name, func(t *testing.T) {
				source.Exec(t, "DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
				test(t, source)
			})
		}
	}
}

// over returns a walk over a table of schema shop, for all of its columns.
func over(source *testbed.Server, table, where string) *Walk {
	return New(Options{
		Schema: "shop", Table: table, Where: where,
		Connect: func(context.Context) (Conn, func(), error) {
			c, err := client.Connect(source.Addr, source.User, source.Password, "")
			if err != nil {
				return nil, nil, err
			}
			return c, func() { _ = c.Close() }, nil
		},
		Bind: func(t *event.Table) (needs []event.Need, err error) {
			for i := range t.Columns {
				needs = append(needs, event.Need{Column: i, Text: true})
			}
			return needs, nil
		},
	}, Place{})
}

// droppingConn drops the table on another connection before it asks for the keys, unless that has to wait.
type droppingConn struct {
	Conn
	drop func()
}

func (c droppingConn) Execute(statement string, args ...any) (*mysql.Result, error) {
	if strings.Contains(statement, "information_schema.STATISTICS") {
		c.drop()
	}
	return c.Conn.Execute(statement, args...)
}

// A table that is dropped while it is asked about is not one without a key: that would be for good, and tools that
// change tables may put another one in its place.
func droppedMeanwhile(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
	w := over(source, "t", "")
	connect := w.o.Connect
	w.o.Connect = func(ctx context.Context) (Conn, func(), error) {
		c, closes, err := connect(ctx)
		return droppingConn{c, func() {
			db := source.DB()
			c, err := db.Conn(ctx)
			testbed.Must(t, err)
			defer c.Close()
			_, err = c.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1")
			testbed.Must(t, err)
			_, _ = c.ExecContext(ctx, "DROP TABLE shop.t")
		}}, closes, err
	}
	_, err := w.Chunk(t.Context(), Size{Rows: 10, Bytes: 1 << 20}, func(*event.Table, []event.Value) error { return nil })
	w.Close()
	var never Refusal
	if errors.As(err, &never) {
		t.Errorf("it is refused: %v", err)
	}
}

// all walks to the end, in chunks of some rows, and returns the last column of each row. Each chunk is a walk of its
// own, from the place of the one before, as after a restart.
func all(t *testing.T, source *testbed.Server, table, where string, size Size) (got []string, chunks int) {
	t.Helper()
	var at Place
	for {
		w := over(source, table, where)
		w.place = at
		c, err := w.Chunk(t.Context(), size, func(_ *event.Table, v []event.Value) error {
			got = append(got, string(v[len(v)-1].AppendText(nil)))
			return nil
		})
		w.Close()
		testbed.Must(t, err)
		chunks++
		if c.Last {
			return got, chunks
		}
		at = c.Place
	}
}

// keysOf are primary keys, with values in no order.
func keysOf(maria bool) map[string][]string {
	keys := map[string][]string{
		"a INT":                   {"(-2147483648)", "(-1)", "(0)", "(1)", "(2147483647)", "(7)"},
		"a BIGINT UNSIGNED":       {"(0)", "(9223372036854775807)", "(9223372036854775808)", "(18446744073709551615)"},
		"a INT UNSIGNED ZEROFILL": {"(0)", "(12)", "(4294967295)"},
		"a DECIMAL(20,6)":         {"(-1.5)", "(-1.499999)", "(0)", "(99999999999999.999999)"},
		"a VARCHAR(20) COLLATE utf8mb4_general_ci": {
			"('b')", "('A')", "('a b')", "('')", "('Ä1')", `('it''s')`, `('back\\slash')`, "('日本')", "('%_')",
		},
		"a VARCHAR(20) CHARACTER SET latin1": {"('b')", "('Ä')", "('z')", "('')", "('€')"},
		"a VARCHAR(20) CHARACTER SET utf16":  {"('b')", "('Ä')", "('日本')", "('')"},
		"a CHAR(5) CHARACTER SET utf8mb4":    {"('b')", "('Ä')", "('z z')", "('')"},
		"a VARCHAR(20) COLLATE utf8mb4_bin":  {"('b')", "('B')", "('a')", "('A')", "('ab')"},
		"a BINARY(4)":                        {"(x'00')", "(x'00000001')", "(x'ff')", "(x'27005c')"},
		"a VARBINARY(8)":                     {"(x'')", "(x'00')", "(x'0000')", "(x'ff')", "(x'275c22')"},
		"a DATE":                             {"('2024-02-29')", "('1000-01-01')", "('9999-12-31')"},
		"a DATETIME(6)":                      {"('2024-02-29 10:00:00.000001')", "('2024-02-29 10:00:00')", "('1000-01-01')"},
		"a TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01 00:00:00'": {"('2024-02-29 10:00:00.001')", "('2024-02-29 10:00:00')", "('1971-01-01')"},
		"a TIME(3)":           {"('-800:00:00.5')", "('00:00:00')", "('12:00:00.001')"},
		"a YEAR":              {"(1901)", "(2155)", "(2000)"},
		"a ENUM('z','a','m')": {"('a')", "('z')", "('m')"},
		"a BIT(64)":           {"(b'0')", "(b'1')", "(18446744073709551615)"},
		"a SMALLINT":          {}, // no rows
		"a VARCHAR(10) COLLATE utf8mb4_general_ci, b VARCHAR(10) COLLATE utf8mb4_general_ci": { // equal in a: the first three
			"('a', 'y')", "('A', 'X')", "('á', 'z')", "('B', 'x')", "('b', 'Y')", "('', 'x')", "('C', '')", "('c', 'x')",
		},
		"a INT, b VARCHAR(10)": {"(1, 'x')", "(1, 'y')", "(2, 'a')", "(0, 'z')", "(1, '')", "(2, '')"},
		"a INT, b INT, c INT": {
			"(1, 1, 1)", "(1, 1, 2)", "(1, 2, 0)", "(2, 0, 0)", "(1, 2, 1)", "(-1, 9, 9)", "(2, 0, 1)", "(2, 1, -1)",
		},
	}
	if maria {
		keys["a UUID"] = []string{
			"('123e4567-e89b-12d3-a456-426614174000')", "('ffffffff-ffff-1fff-bfff-ffffffffffff')",
			"('00000000-0000-1000-8000-000000000001')",
		}
		keys["a INET6"] = []string{"('::1')", "('2001:db8::1')", "('::')", "('::ffff:192.0.2.1')"}
	}
	return keys
}

func everyRowOnce(t *testing.T, source *testbed.Server) {
	for columns, rows := range keysOf(source.Flavor == testbed.FlavorMariaDB) {
		var names []string
		for c := range strings.SplitSeq(columns, ", ") {
			names = append(names, c[:1])
		}
		key := strings.Join(names, ", ")
		source.Exec(t, "DROP TABLE IF EXISTS shop.k", "CREATE TABLE shop.k ("+columns+", n INT, PRIMARY KEY ("+key+"))")
		var want []string
		for i, r := range rows {
			source.Exec(t, fmt.Sprintf("INSERT INTO shop.k (%s, n) VALUES %s, %d)", key, strings.TrimSuffix(r, ")"), i))
			want = append(want, strconv.Itoa(i))
		}
		for size := 1; size <= len(rows)+1; size++ {
			got, _ := all(t, source, "k", "", Size{Rows: size, Bytes: 1 << 20})
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d rows a chunk: walked %v, want %v", columns, size, got, want)
			}
		}
	}
}

// read returns how many rows the server has read so far, for all sessions.
func read(t *testing.T, source *testbed.Server) (n int) {
	t.Helper()
	for _, name := range []string{"Handler_read_next", "Handler_read_key", "Handler_read_rnd_next", "Handler_read_first"} {
		table := "performance_schema.global_status"
		if strings.Contains(strings.ToLower(source.QueryText(t, "SELECT VERSION()")), "mariadb") {
			table = "information_schema.GLOBAL_STATUS"
		}
		value, err := strconv.Atoi(source.QueryText(t, "SELECT VARIABLE_VALUE FROM "+table+" WHERE VARIABLE_NAME = ?", name))
		testbed.Must(t, err)
		n += value
	}
	return n
}

// A chunk in the middle of a table must not read what comes before it or after it.
func chunkReadsItsRows(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (a INT, b VARCHAR(20), n INT, PRIMARY KEY (a, b))",
		"INSERT INTO shop.k WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 999) "+
			"SELECT x.i DIV 500, CONCAT(LPAD(x.i, 4, '0'), LPAD(y.i, 4, '0')), x.i FROM s x, s y WHERE y.i < 40")
	for _, where := range []string{"", "n < 0"} {
		w := over(source, "k", where)
		w.place = Place{Key: []string{"a", "b"}, After: []string{"0", "_utf8mb4 x'" + fmt.Sprintf("%x", "04000000") + "'"}}
		testbed.Must(t, w.Try(t.Context())) // what the dictionary reads is cached
		before := read(t, source)
		asking := read(t, source) - before
		none := func(*event.Table, []event.Value) error { return nil }
		c, err := w.Chunk(t.Context(), Size{Rows: 100, Bytes: 1 << 20}, none)
		testbed.Must(t, err)
		w.Close()
		if n := read(t, source) - before - 2*asking; n > 3000 { // of 40,000
			t.Errorf("where %q: %d rows were read for a chunk of %d", where, n, c.Rows)
		}
		if c.Passed != 100 { // how far the walk is, though no row met the condition
			t.Errorf("where %q: it says that it has passed over %d rows", where, c.Passed)
		}
	}
}

func largeRows(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (id INT PRIMARY KEY, b LONGBLOB, n INT)")
	for i := range 10 {
		source.Exec(t, fmt.Sprintf("INSERT INTO shop.k VALUES (%d, REPEAT('x', 300000), %d)", i, i))
	}
	got, chunks := all(t, source, "k", "", Size{Rows: 100, Bytes: 1 << 20})
	if len(got) != 10 || chunks != 3 {
		t.Errorf("rows %v in %d chunks, want 10 in 3", got, chunks)
	}
}

func conditions(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (id INT PRIMARY KEY, n INT)",
		"INSERT INTO shop.k VALUES (1, 1), (2, 2), (3, 3), (4, NULL)")
	for where, want := range map[string]string{
		"n > 1":             "2 3",
		"n = 1 OR n = 3":    "1 3",
		"n = 1 -- that one": "1",
		"k.n IN (SELECT id FROM shop.k WHERE n < 3)": "1 2",
		"n > 100": "",
	} {
		got, _ := all(t, source, "k", where, Size{Rows: 2, Bytes: 1 << 20})
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %q, want %q", where, text, want)
		}
		testbed.Must(t, over(source, "k", where).Try(t.Context()))
	}
	for where, words := range map[string]string{
		"n >": "syntax", "nothing = 1": "nothing", "n = 1) -- ": "syntax",
		// The rest is no condition by itself, only with what stands around it.
		"n = 1) OR (n = 3": "syntax", "n = 1) UNION SELECT 1 FROM shop.k WHERE (n = 1": "syntax",
		"1 THEN 1 END OR CASE WHEN 1": "syntax",
	} {
		err := over(source, "k", where).Try(t.Context())
		if !Refused(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func refusedTables(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.plain (id INT, n INT)",
		"CREATE TABLE shop.nulls (id INT NULL UNIQUE, n INT)", "CREATE TABLE shop.parts (s TEXT NOT NULL, UNIQUE (s(5)), n INT)",
		"CREATE TABLE shop.floats (f FLOAT PRIMARY KEY, n INT)", "CREATE TABLE shop.sets (s SET('a','b') PRIMARY KEY, n INT)",
		"CREATE TABLE shop.good (id INT PRIMARY KEY, n INT)", "CREATE VIEW shop.seen AS SELECT * FROM shop.good")
	for table, words := range map[string]string{
		"plain": "has no key", "nulls": "has no key", "parts": "has no key", "floats": "has no key", "sets": "has no key",
		"seen": "is a view",
	} {
		err := over(source, table, "").Try(t.Context())
		var never Refusal
		if !errors.As(err, &never) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", table, err, words)
		}
	}
	if err := over(source, "none", "").Try(t.Context()); !IsMissing(err) {
		t.Errorf("no table: %v", err)
	}
	testbed.Must(t, over(source, "good", "").Try(t.Context()))
	if got, _ := all(t, source, "good", "", Size{Rows: 10, Bytes: 1}); len(got) != 0 {
		t.Errorf("an empty table has rows %v", got)
	}
}

// Any unique key will do, and a key that changes under a walk has it begin again.
func anotherKey(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (a INT NOT NULL, b INT NOT NULL UNIQUE, n INT)",
		"INSERT INTO shop.k VALUES (1, 30, 1), (2, 20, 2), (3, 10, 3)")
	w := over(source, "k", "")
	defer w.Close()
	var got []string
	each := func(_ *event.Table, v []event.Value) error {
		got = append(got, string(v[2].AppendText(nil)))
		return nil
	}
	step := func(rows int) Chunk {
		c, err := w.Chunk(t.Context(), Size{Rows: rows, Bytes: 1 << 20}, each)
		testbed.Must(t, err)
		return c
	}
	step(2)
	source.Exec(t, "ALTER TABLE shop.k ADD PRIMARY KEY (a)")
	step(2)
	source.Exec(t, "ALTER TABLE shop.k ADD COLUMN d INT")
	if c := step(9); !c.Last {
		t.Error("rows are left")
	}
	if text := strings.Join(got, " "); text != "3 2 1 2 3" {
		t.Errorf("walked %s", text)
	}
}

// A key that the server does not use is in its list all the same.
func hiddenKey(t *testing.T, source *testbed.Server) {
	hidden := "INVISIBLE"
	if source.Flavor == testbed.FlavorMariaDB {
		hidden = "IGNORED"
	}
	source.Exec(t, "CREATE TABLE shop.k (a INT NOT NULL, b INT NOT NULL, n INT, UNIQUE z (a), UNIQUE a (b) "+hidden+")",
		"INSERT INTO shop.k VALUES (1, 30, 1), (2, 20, 2)",
		"CREATE TABLE shop.none (a FLOAT NOT NULL, b INT NOT NULL, n INT, UNIQUE z (a), UNIQUE a (b) "+hidden+")")
	testbed.Must(t, over(source, "k", "").Try(t.Context()))
	if got, _ := all(t, source, "k", "", Size{Rows: 1, Bytes: 1 << 20}); strings.Join(got, " ") != "1 2" {
		t.Errorf("walked %v", got)
	}
	var never Refusal
	if err := over(source, "none", "").Try(t.Context()); !errors.As(err, &never) {
		t.Errorf("no other key: %v", err)
	}
}

func upToAPlace(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b))",
		"INSERT INTO shop.k VALUES (1, 1), (1, 2), (2, 1), (2, 2), (3, 1)")
	for name, x := range map[string]struct {
		until Place
		rows  int
	}{
		"within":                   {Place{Key: []string{"a", "b"}, After: []string{"2", "1"}}, 3},
		"a row that is gone":       {Place{Key: []string{"a", "b"}, After: []string{"1", "9"}}, 2},
		"after the last row":       {Place{Key: []string{"a", "b"}}, 5},
		"of a key that is another": {Place{Key: []string{"a"}, After: []string{"1"}}, 5},
	} {
		for size := 1; size <= 6; size++ {
			w := over(source, "k", "")
			w.o.Until = x.until
			rows := 0
			for last := false; !last; {
				c, err := w.Chunk(t.Context(), Size{Rows: size, Bytes: 1 << 20},
					func(*event.Table, []event.Value) error { return nil })
				testbed.Must(t, err)
				rows, last = rows+c.Rows, c.Last
			}
			w.Close()
			if rows != x.rows {
				t.Errorf("%s, %d at a time: %d rows, want %d", name, size, rows, x.rows)
			}
		}
	}
}

func rowAgain(t *testing.T, source *testbed.Server) {
	source.Exec(t, "CREATE TABLE shop.k (id INT PRIMARY KEY)", "INSERT INTO shop.k VALUES (1), (2), (3)")
	w := over(source, "k", "")
	defer w.Close()
	failed := errors.New("no")
	n := 0
	_, err := w.Chunk(t.Context(), Size{Rows: 10, Bytes: 1 << 20}, func(*event.Table, []event.Value) error {
		if n++; n == 2 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) {
		t.Fatalf("got %v", err)
	}
	c, err := w.Chunk(t.Context(), Size{Rows: 10, Bytes: 1 << 20}, func(*event.Table, []event.Value) error { return nil })
	testbed.Must(t, err)
	if c.Rows != 3 || !c.Last {
		t.Errorf("%+v", c)
	}
}

// A type that a later server adds has a text that is known to nobody here. What is only compared may be of it.
func TestAColumnOfAnUnknownTypeIsRefusedWhereItsTextIsNeeded(t *testing.T) {
	tbl := &table{Table: event.Table{Schema: "shop", Name: "t", Columns: []event.Column{{Name: "x", Type: "xmltype"}}}}
	var never Refusal
	if err := tbl.printable([]event.Need{{Column: 0, Text: true}}); !errors.As(err, &never) ||
		!strings.Contains(err.Error(), "the text of column x of shop.t, a XMLTYPE, is not known") {
		t.Errorf("got %v", err)
	}
	if err := tbl.printable([]event.Need{{Column: 0}}); err != nil {
		t.Errorf("only compared: %v", err)
	}
}
