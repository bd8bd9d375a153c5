package ddl

import (
	"fmt"
	"testing"
)

func TestWhatAStatementMayCall(t *testing.T) {
	for sql, want := range map[string]string{
		"insert into t (a, b) values (1, 'f(1)'), (f(2), G (3))": "[db.t db.values db.f db.g]",
		"update t set a = other.`F`(1) /* h(1) */ -- i(1)":       "[other.f]",
		"delete from t where a.b = f(f(1)) and c in (2)":         "[db.f db.in]",
		"create table t as select f(1)":                          "[db.f]",
		"create table t (a varchar(9), key (a))":                 "[]",
		"create view v as select f(1)":                           "[]",
		"create procedure p() update t set a = f(1)":             "[]",
		"alter table t add b int default (1)":                    "[]",
		"insert into t () values (f(1), 'open":                   "[db.t db.values db.f]",
	} {

		st := Parse([]byte(sql), &Session{Schema: []byte("db")})
		if got := fmt.Sprint(st.Calls); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	many := "insert into t values ("
	for i := range maxCalls + 1 {
		many += fmt.Sprintf("f%d(1),", i)
	}
	if st := Parse([]byte(many+"1)"), &Session{Schema: []byte("db")}); !st.Unclear || len(st.Calls) != maxCalls {
		t.Errorf("%d calls, unclear %v", len(st.Calls), st.Unclear)
	}
}

func TestWhatARoutineDoes(t *testing.T) {
	for body, want := range map[string]string{
		"return concat(replace('a','b','c'), insert('a',1,1,'b'))": "false [db.concat db.replace db.insert]",
		"begin select a into b from t for update; return b; end":   "false []",
		"begin insert into t values (1); return 1; end":            "true []",
		"begin insert ignore t select 1; return 1; end":            "true []",
		"begin replace t set a=1; return 1; end":                   "true []",
		"begin update t set a=1; return 1; end":                    "true []",
		"begin delete from t; return 1; end":                       "true []",
		"begin call p(); return 1; end":                            "true []",
		"begin return 'begin delete from t'; /* delete */ end":     "false []",
		"return other.f(1)":                                        "false [other.f]",
		"return 'that does not end":                                "true []",
	} {
		writes, called := Routine([]byte(body), &Session{Schema: []byte("db")})
		if got := fmt.Sprint(writes, called); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
