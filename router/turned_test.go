package router

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// A row that begins or ceases to be what `when` asks for has changed, whichever columns `columns` names.
func TestAChangeOfWhatWhenSaysCountsWhateverColumnsSays(t *testing.T) {
	live := row{"id": 1, "name": "a", "status": "live", "price": dec("1.00")}
	with := func(name string, v any) row {
		r := row{}
		for n, v := range live {
			r[n] = v
		}
		r[name] = v
		return r
	}
	draft := with("status", "dead")
	rebuild := func(m *spectest.Mapping) { m.Rebuild = spectest.FromRow(event.FormJSON, "name") }
	set := func(m *spectest.Mapping) {
		m.Set = &spec.Set{Key: spectest.Text("live", 9), Member: spectest.Text("{id}", 9)}
	}
	only := func(when string) spectest.Mapping { return spectest.Keys("k:{id}").Of("name").If(when) }
	for _, c := range []struct {
		what    string
		m       spectest.Mapping
		old, is row
		want    string
	}{
		{"a row ceases to match: rebuild", only("row.status == 'live'").With(rebuild), live, draft, "rebuild remove k:1\n"},
		{
			"a row begins to match: rebuild", only("row.status == 'live'").With(rebuild), draft, live,
			"rebuild put k:1 <{\"name\":\"a\"}>\n",
		},
		{
			"a row ceases to match: set", only("row.status == 'live'").With(set), live, draft,
			"delete forget k:1\nset remove live <1>\n",
		},
		{
			"a row ceases to match: delete", only("row.status == 'live' || old.status == 'live'"), live, draft,
			"delete forget k:1\n",
		},
		{"a row begins to match: delete", only("row.status == 'live'"), draft, live, "delete forget k:1\n"},
		{"another column", only("row.status == 'live'").With(rebuild), live, with("price", dec("2.00")), ""},
		{"a column of when, which says the same", only("row.price < 5"), live, with("price", dec("2.00")), ""},
		{
			"a column of when is NULL, which has no order", only("row.price < 5"), with("price", null{}), live,
			"delete forget k:1\n",
		},
		{
			"a column of when is absent", only("row.status == 'live' || old.status == 'live'"),
			row{"id": 1, "name": "a"},
			live,
			"delete forget k:1\n",
		},
		{"a predicate over both images says the same of each", only("old.status != row.status"), live, draft, ""},
	} {
		f := newFeed(t, mustNew(t, c.m), spectest.Product())
		f.change(c.old, c.is)
		got := f.items()
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.what, d)
		}
	}
}

// A `when` of which the table lacks a column counts as true, and so does every change of it.
func TestAWhenThatCannotBeEvaluatedMayAlwaysHaveChanged(t *testing.T) {
	r := mustNew(t, spectest.Keys("k:{id}").Of("name").If("row.nothing == 1"))
	table := spectest.Product()
	if _, err := r.Bind(table); err == nil {
		t.Fatal("a column that the table lacks was bound")
	}
	f := &feed{t: t, r: r, table: table}
	f.change(row{"id": 1, "name": "a", "price": dec("1.00")}, row{"id": 1, "name": "a", "price": dec("2.00")})
	if got := f.items(); got != "delete forget k:1\n" {
		t.Error(got)
	}
}
