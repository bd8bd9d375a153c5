package schema

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/ddl"
)

func TestStateSurvivesARestart(t *testing.T) {
	f := &fakeSource{}
	tr := tracker(t, f)
	apply(f, tr, "CREATE DATABASE shop CHARACTER SET gbk",
		"CREATE TABLE a (id INT(5) ZEROFILL, n VARCHAR(20), e ENUM('x','it''s'))",
		"CREATE TABLE b LIKE a", "CREATE TABLE _b_new (x INT)", "ALTER TABLE a DROP zz", "CREATE DATABASE other")
	if !tr.Changed() {
		t.Error("no change")
	}
	saved := tr.Encode()
	if tr.Changed() {
		t.Error("still changed")
	}
	if again := tr.Encode(); &again[0] != &saved[0] {
		t.Error("encoded again without a change")
	}
	apply(f, tr, "ALTER TABLE b ADD INDEX (id)", "INSERT INTO b VALUES (1)", "DROP TABLE unheard.of", "BEGIN")
	if tr.Changed() {
		t.Error("statements that change nothing made a change")
	}
	back, err := Decode(saved, tr.o)
	if err != nil {
		t.Fatal(err)
	}
	if back.Changed() {
		t.Error("changed by decoding")
	}
	if again := back.Encode(); !bytes.Equal(again, saved) {
		t.Errorf("encoded as\n%s\nthen as\n%s", saved, again)
	}
	for n, want := range map[string]status{"a": doubt, "b": known, "_b_new": known, "c": absent} {
		if got := back.get(ddl.Name{Schema: "shop", Table: n}).status; got != want {
			t.Errorf("%s: status %d, want %d", n, got, want)
		}
	}
	apply(f, back, "RENAME TABLE b TO a", "CREATE TABLE IF NOT EXISTS b (v VARCHAR(3))")
	if c := back.get(ddl.Name{Schema: "shop", Table: "b"}).def.columns[0]; c.charset != "gbk" {
		t.Errorf("a new table is in %s, want its schema's gbk", c.charset)
	}
}

func TestShardsShareTheirDefinition(t *testing.T) {
	tr, err := New(Options{Wanted: func(string, string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSource{}
	for i := range 500 {
		apply(f, tr, fmt.Sprintf("CREATE TABLE t_%d (id INT, a_rather_long_name_of_a_column INT, %s)", i, "x INT"))
	}
	if b := tr.Encode(); bytes.Count(b, []byte("a_rather_long_name")) != 1 {
		t.Errorf("%d bytes for 500 equal tables", len(b))
	}
}

func TestMemoryIsBounded(t *testing.T) {
	f := &fakeSource{}
	tr := tracker(t, f)
	apply(f, tr, "CREATE DATABASE shop", "CREATE TABLE a (id INT)")
	for i := range 3 * MaxOthers {
		apply(f, tr, fmt.Sprintf("CREATE TABLE scratch_%d (id INT)", i))
	}
	for i := range 2 * maxSchemas {
		apply(f, tr, fmt.Sprintf("CREATE DATABASE s%d", i))
	}
	if len(tr.tables) > MaxOthers+1 || len(tr.schemas) > maxSchemas {
		t.Errorf("%d tables, %d schemas", len(tr.tables), len(tr.schemas))
	}
	if e := tr.get(ddl.Name{Schema: "shop", Table: "a"}); e.status != known {
		t.Error("a wanted table was forgotten")
	}
	if e := tr.get(ddl.Name{Schema: "shop", Table: "scratch_0"}); e.status != doubt {
		t.Errorf("a forgotten table is %d, want doubt: it exists", e.status)
	}
	if e := tr.get(ddl.Name{Schema: "shop", Table: fmt.Sprintf("scratch_%d", 3*MaxOthers-1)}); e.status != known {
		t.Error("the newest of the others was forgotten")
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	o := Options{Wanted: func(string, string) bool { return true }}
	for _, e := range []struct{ state, want string }{
		{"{", "saved state"}, {`{"v":3}`, "another release"}, {`{"v":1,"tables":[{"s":"a","t":"b","d":0}]}`, "no definition"},
	} {
		if _, err := Decode([]byte(e.state), o); err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s: %v, want %s", e.state, err, e.want)
		}
	}
	if _, err := Decode(nil, o); err != nil {
		t.Errorf("no state: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a tracker of nothing")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"schemas":[{"s":"a","whole":true}],"defs":[{"c":[{"n":"a","t":"int"}]}],"tables":[{"s":"a","t":"b","d":0},{"s":"a","t":"c","d":-2}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := Decode(b, Options{Wanted: func(_, table string) bool { return len(table)%2 == 0 }})
		if err != nil {
			return
		}
		again, err := Decode(tr.Encode(), tr.o)
		if err != nil || !bytes.Equal(again.Encode(), tr.Encode()) {
			t.Fatalf("%s becomes %s: %v", b, tr.Encode(), err)
		}
	})
}

// manyTables returns the state of a tracker that has seen n tables made, and how often it was asked
// whether a table is wanted.
func manyTables(t testing.TB, n int) (state []byte, o Options, asked *int) {
	t.Helper()
	asked = new(int)
	o = Options{Wanted: func(string, string) bool { *asked++; return true }}
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSource{}
	for i := range n {
		apply(f, tr, fmt.Sprintf("CREATE TABLE t_%d (id INT, name VARCHAR(%d), price DECIMAL(10,2))", i, 1+i%50))
	}
	return tr.Encode(), o, asked
}

func TestEachTableIsLookedAtOnceHoweverManyThereAre(t *testing.T) {
	for _, n := range []int{1000, 4000} {
		state, o, asked := manyTables(t, n)
		if *asked > 2*n {
			t.Errorf("%d tables were made: %d looks", n, *asked)
		}
		*asked = 0
		tr, err := Decode(state, o)
		if err != nil {
			t.Fatal(err)
		}
		if *asked > 2*n || len(tr.tables) != n {
			t.Errorf("%d tables were decoded as %d: %d looks", n, len(tr.tables), *asked)
		}
	}
}

func TestEqualDefinitionsAreKeptOnce(t *testing.T) {
	tr, err := New(Options{Wanted: func(string, string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSource{}
	for i := range 500 {
		apply(f, tr, fmt.Sprintf("CREATE TABLE t_%d (id INT, n INT)", i))
	}
	kept := func(tr *Tracker) int {
		defs := map[*definition]bool{}
		for _, e := range tr.tables {
			defs[e.def] = true
		}
		return len(defs)
	}
	state := tr.Encode()
	if n := kept(tr); n != 1 {
		t.Errorf("%d definitions of 500 equal tables", n)
	}
	if tr, err = Decode(state, tr.o); err != nil || kept(tr) != 1 {
		t.Errorf("%d definitions of 500 equal tables after a restart (%v)", kept(tr), err)
	}
}

func BenchmarkDecodeState(b *testing.B) {
	for _, n := range []int{10_000, 40_000} {
		state, o, _ := manyTables(b, n)
		b.Run(fmt.Sprintf("tables=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Decode(state, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/table")
		})
	}
}
