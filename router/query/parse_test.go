package query

import (
	"errors"
	"strings"
	"testing"
)

// names returns the names of the parameters, joined.
func names(q *Query) string {
	var all []string
	for _, p := range q.Params {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestParseFindsTheParameters(t *testing.T) {
	for _, c := range []struct{ sql, text, params string }{
		{"SELECT 1", "SELECT 1", ""},
		{"SELECT a FROM t WHERE id = :id", "SELECT a FROM t WHERE id = ?", "id"},
		{"SELECT a FROM t WHERE x=:x AND (y=:y OR x>:x)", "SELECT a FROM t WHERE x=? AND (y=? OR x>?)", "x y x"},
		{"select a from t where a=:_a$9 limit:n", "select a from t where a=? limit?", "_a$9 n"},
		{"SELECT :größe", "SELECT ?", "größe"},
		{"SELECT :`row-no`, :`a``b`", "SELECT ?, ?", "row-no a`b"},

		// What stands in quotes is text.
		{"SELECT ':a', \":b\", `:c`, :d", "SELECT ':a', \":b\", `:c`, ?", "d"},
		{
			`SELECT 'it''s :a', 'it\'s :b', "say \":c\"", "a"":d", :e`,
			`SELECT 'it''s :a', 'it\'s :b', "say \":c\"", "a"":d", ?`, "e",
		},
		{"SELECT `a\\`, :b, `c``:d`", "SELECT `a\\`, ?, `c``:d`", "b"},
		{`SELECT '\\', :a`, `SELECT '\\', ?`, "a"},
		{"SELECT '?', :a", "SELECT '?', ?", "a"},
		{"SELECT '  two  ',\n\t:a", "SELECT '  two  ', ?", "a"},

		// Comments are gone; hints stay.
		{"SELECT 1 -- :a\n, :b", "SELECT 1 , ?", "b"},
		{"SELECT 1 # it's :a\n, :b", "SELECT 1 , ?", "b"},
		{"SELECT/* :a ' */1,:b--\n", "SELECT 1,?", "b"},
		{"SELECT 1--:a", "SELECT 1- -?", "a"},
		{"SELECT 1--/* :b */:a", "SELECT 1- - ?", "a"},
		{"SELECT 1 --", "SELECT 1", ""},
		{"SELECT /*+ MAX_EXECUTION_TIME(9) :a */ :b", "SELECT /*+ MAX_EXECUTION_TIME(9) :a */ ?", "b"},
		{"/* of /* one */ SELECT 1", "SELECT 1", ""},

		// Not parameters.
		{"SELECT @a := 1, @b:=:b", "SELECT @a := 1, @b:=?", "b"},
		{"SELECT a::b", "SELECT a::b", ""},
		{"SELECT j->'$.a', j->>\"$.b:c\"", "SELECT j->'$.a', j->>\"$.b:c\"", ""},

		// One statement that reads.
		{"SELECT 1;", "SELECT 1", ""},
		{"SELECT 1 ; ; -- that's it", "SELECT 1", ""},
		{"(SELECT 1) UNION ALL (SELECT :a)", "(SELECT 1) UNION ALL (SELECT ?)", "a"},
		{"WITH a AS (SELECT :x) SELECT * FROM a", "WITH a AS (SELECT ?) SELECT * FROM a", "x"},
		{"(WITH a AS (SELECT :x) SELECT * FROM a)", "(WITH a AS (SELECT ?) SELECT * FROM a)", "x"},
		{
			"WITH RECURSIVE `delete` (n) AS (SELECT 1) SELECT REPLACE(n, 1, 2) FROM `delete`",
			"WITH RECURSIVE `delete` (n) AS (SELECT 1) SELECT REPLACE(n, 1, 2) FROM `delete`", "",
		},
		{"SELECT t.into, t.lock, @into, 'INTO' FROM t", "SELECT t.into, t.lock, @into, 'INTO' FROM t", ""},
		{"SELECT a FROM t USE INDEX FOR JOIN (i)", "SELECT a FROM t USE INDEX FOR JOIN (i)", ""},
	} {
		q, err := Parse(c.sql)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		if q.Text != c.text || names(q) != c.params {
			t.Errorf("%s\n is prepared as %s (%s)\n     expected %s (%s)", c.sql, q.Text, names(q), c.text, c.params)
		}
		for _, p := range q.Params {
			if c.sql[p.Offset] != ':' {
				t.Errorf("%s: the offset %d of %s is not its colon", c.sql, p.Offset, p.Name)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		sql, at, reason string
	}{
		{"", "", "the query is empty"},
		{" -- nothing\n;", "", "the query is empty"},
		{"UPDATE t SET a = 1", "UPDATE", "begins with SELECT"},
		{"'SELECT'", "'SELECT'", "begins with SELECT"},
		{"SET STATEMENT a=1 FOR SELECT 1", "SET", "begins with SELECT"},
		{"SELECT 1; SELECT 2", "SELECT 2", "only one statement"},
		{"WITH a AS (SELECT 1) DELETE FROM t", "DELETE", "this one would DELETE"},
		{"with a as (select 1) update t set x=1", "update", "this one would UPDATE"},
		{"WITH a AS (SELECT 1)", "WITH", "no SELECT after it"},
		{"SELECT 1 INTO OUTFILE '/tmp/x'", "INTO", "INTO is not allowed"},
		{"SELECT a FROM t FOR UPDATE", "UPDATE", "must not lock rows"},
		{"SELECT a FROM t for /*+ so */ -- really\n share", "share", "must not lock rows"},
		{"SELECT a FROM t LOCK IN SHARE MODE", "LOCK", "must not lock rows"},
		{"WITH a AS (SELECT 1 FROM t LOCK IN SHARE MODE) SELECT 1", "LOCK", "must not lock rows"},
		{"SELECT ?", "?", "write :column"},
		{"SELECT a FROM t WHERE a = : b", ": b", "no column after it"},
		{"SELECT :1", ":1", "no column after it"},
		{"SELECT ::a, :", ":", "no column after it"},
		{"SELECT :``", ":``", "no column after it"},
		{"SELECT 'a", "'a", "the ' is not closed"},
		{`SELECT "a\"`, `"a`, `the " is not closed`},
		{"SELECT `a", "`a", "the ` is not closed"},
		{"SELECT :`a", "`a", "the ` is not closed"},
		{"SELECT 1 /* a", "/* a", "the comment is not closed"},
		{"SELECT 1 /*! + :a */", "/*!", "that some servers execute"},
		{"SELECT 1 /*M!100100 + :a */", "/*M!", "that some servers execute"},
		{"SELECT 'a\x00'", "\x00", "not UTF-8"},
		{"SELECT '\xff'", "\xff", "not UTF-8"},
		{"SELECT \x01\x00", "\x00", "not UTF-8"},
		{"SELECT 1" + strings.Repeat(",:a", MaxParams+1), "", "more than 256 times"},
		{"SELECT '" + strings.Repeat("a", MaxText) + "'", "", "longer than 65536 bytes"},
	} {
		_, err := Parse(c.sql)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.60s: %v; expected an error with %q", c.sql, err, c.reason)
			continue
		}
		if at := strings.LastIndex(c.sql, c.at); c.at != "" && e.Offset != at {
			t.Errorf("%s: the error is at %d, expected at %d", c.sql, e.Offset, at)
		}
	}
}

func TestTheReplacementCharacterIsUTF8(t *testing.T) {
	if _, err := Parse("SELECT '\ufffd'"); err != nil {
		t.Fatal(err)
	}
}

func TestIDsTellQueriesApart(t *testing.T) {
	parse := func(sql string, words ...string) string {
		q, err := Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		if words != nil {
			q.Identify(words[0], words[1], words[2], words[3])
		}
		return q.ID
	}
	same := parse("SELECT a FROM t WHERE b = :b")
	if len(same) != 16 || same != parse("SELECT a -- of it\nFROM   t WHERE b = :other;") {
		t.Errorf("layout or names of parameters changed the fingerprint %q", same)
	}
	seen := map[string]bool{same: true}
	for _, id := range []string{
		parse("SELECT a FROM t WHERE b = ':b'"),
		parse("SELECT a FROM t WHERE b = :b", "shop", "json", "one", "string"),
		parse("SELECT a FROM t WHERE b = :b", "shop2", "json", "one", "string"),
		parse("SELECT a FROM t WHERE b = :b", "shop", "hash", "one", "string"),
		parse("SELECT a FROM t WHERE b = :b", "shop", "json", "many", "string"),
		parse("SELECT a FROM t WHERE b = :b", "shop", "json", "one", "number"),
		ID("ab", "c"), ID("a", "bc"), ID("abc"), ID(),
	} {
		if seen[id] {
			t.Errorf("the fingerprint %s is that of two queries", id)
		}
		seen[id] = true
	}
}
