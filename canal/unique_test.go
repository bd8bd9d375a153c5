package canal

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestUniqueIndexesAreAskedFor(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s,
			"create table DB.t (id int primary key, a int, b varchar(200), c int, unique key both_of_them (b(10), a), unique key third (c), key plain (a))",
			"create table DB.u (a int, key (a))", "create table DB.v (id int primary key)")
		t1 := &event.Table{Schema: d.name, Name: "t"}
		u := &event.Table{Schema: d.name, Name: "u"}
		o := d.options()
		got, err := UniqueIndexes(t.Context(), o, []*event.Table{t1, u})
		if err != nil {
			t.Fatal(err)
		}
		indexes := got[t1]
		slices.SortFunc(indexes, slices.Compare[[]string])
		if d := cmp.Diff([][]string{{"b", "a"}, {"c"}, {"id"}}, indexes); d != "" || len(got) != 1 {
			t.Errorf("%s of %d tables", d, len(got))
		}
	})
}
