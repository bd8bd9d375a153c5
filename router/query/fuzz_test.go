package query

import (
	"errors"
	"testing"
)

// FuzzParse looks for panics, and for answers that contradict themselves: the prepared text must have as many
// placeholders as there are parameters, and be what it is prepared as.
func FuzzParse(f *testing.F) {
	for _, sql := range []string{
		"SELECT a FROM t WHERE id = :id",
		"SELECT 'it''s \\' :a', \"\\\"\", `a``:b`, :`c``d` -- :e\n#\n/* :f */ /*+ :g */ ::h @i:=:j;",
		"WITH a AS (SELECT :x) SELECT * FROM a FOR UPDATE", "((SELECT 1)) INTO @a", "SELECT /*! :a */", "SELECT '\xff\x00",
		"/*+", "/*/",
		"WITH", ":", ":`", "'\\", "--", "SELECT - -1, 1/ *2",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		q, err := Parse(sql)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(sql) || e.Reason == "" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		for _, p := range q.Params {
			if sql[p.Offset] != ':' || p.Name == "" {
				t.Fatalf("parameter %+v", p)
			}
		}
		l, marks := lexer{src: q.Text}, 0
		for {
			tok, err := l.next()
			if err != nil {
				t.Fatalf("the prepared text %q: %v", q.Text, err)
			}
			if tok.kind == endOfText {
				break
			}
			if tok.kind == mark {
				marks++
			}
		}
		if marks != len(q.Params) {
			t.Fatalf("%d placeholders for %d parameters in %q", marks, len(q.Params), q.Text)
		}
		if again, err := Parse(q.Text); marks == 0 && (err != nil || again.Text != q.Text) {
			t.Fatalf("%q is prepared as %+v, %v", q.Text, again, err)
		}
	})
}
