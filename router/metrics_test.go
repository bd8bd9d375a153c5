package router

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
)

func TestEveryMappingIsCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r, err := New(spectest.Specs(
		spectest.Keys("{id}:{sku}", "{id}").Of("name"),
		spectest.Keys("{id}:{0..1}").On("shop.*").If("row.name == 'x'").For(spec.Events{Update: true}),
	), Options{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(t, r, spectest.Product())
	f.change(nil, row{"id": 1, "sku": null{}, "name": "x"})
	f.change(row{"id": 1, "sku": "a", "name": "x"}, row{"id": 1, "sku": "b", "name": "x"})
	f.change(row{"id": 1, "sku": "a", "name": "x"}, row{"id": 1, "sku": "a", "name": "x"})
	f.change(row{"id": 1, "sku": "a", "name": "x"}, row{"id": 1, "sku": "a", "name": "y"})
	f.change(row{"id": 2}, row{"id": 2})
	want := `
freshet_router_absent_keys_total{mapping="1",table="shop.product"} 2
freshet_router_absent_keys_total{mapping="2",table="shop.*"} 0
freshet_router_filtered_rows_total{by="columns",mapping="1",table="shop.product"} 1
freshet_router_filtered_rows_total{by="columns",mapping="2",table="shop.*"} 0
freshet_router_filtered_rows_total{by="events",mapping="1",table="shop.product"} 0
freshet_router_filtered_rows_total{by="events",mapping="2",table="shop.*"} 1
freshet_router_filtered_rows_total{by="when",mapping="1",table="shop.product"} 0
freshet_router_filtered_rows_total{by="when",mapping="2",table="shop.*"} 1
freshet_router_keys_total{mapping="1",table="shop.product"} 7
freshet_router_keys_total{mapping="2",table="shop.*"} 6
freshet_router_long_keys_total{mapping="1",table="shop.product"} 0
freshet_router_long_keys_total{mapping="2",table="shop.*"} 0
freshet_router_null_keys_total{mapping="1",table="shop.product"} 1
freshet_router_null_keys_total{mapping="2",table="shop.*"} 0
freshet_router_predicate_errors_total{mapping="1",table="shop.product"} 0
freshet_router_predicate_errors_total{mapping="2",table="shop.*"} 1
freshet_router_rows_total{mapping="1",table="shop.product"} 5
freshet_router_rows_total{mapping="2",table="shop.*"} 5`
	r.Publish()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			got.WriteString("\n" + f.GetName() + "{")
			for i, l := range m.Label {
				if i > 0 {
					got.WriteByte(',')
				}
				got.WriteString(l.GetName() + `="` + l.GetValue() + `"`)
			}
			got.WriteString("} " + strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(m.Counter.String(), "value:")), " "))
		}
	}
	if !sameLines(got.String(), want) {
		t.Errorf("got%s\nwant%s", got.String(), want)
	}
}

func sameLines(got, want string) bool {
	w := strings.Split(strings.TrimSpace(want), "\n")
	g := strings.Split(strings.TrimSpace(got), "\n")
	if len(g) != len(w) {
		return false
	}
	for i := range w {
		// What follows the value is when the counter was created.
		if !strings.HasPrefix(g[i]+" ", w[i]+" ") {
			return false
		}
	}
	return true
}

func TestMetricsAreWellFormed(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if _, err := New(spectest.Specs(spectest.Keys("{id}")), Options{Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if _, err := New(spectest.Specs(spectest.Keys("{id}")), Options{Registerer: reg}); err == nil {
		t.Error("the same metrics were registered twice")
	}
	if _, err := New(spectest.Specs(spectest.Keys("{id")),
		Options{Registerer: prometheus.NewPedanticRegistry()}); err == nil {
		t.Error("no error")
	}
}

func TestTheMetricsOfActionsAreLinted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if _, err := New(spectest.Specs(spectest.Everything(spectest.Keys("k:{id}")), spectest.Keys("k:{id}")),
		Options{Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	// A mapping that only deletes has none of them.
	for name, want := range map[string]int{
		"freshet_router_forgotten_values_total": int(reasons),
		"freshet_router_unsent_notices_total":   3,
	} {
		if n, err := testutil.GatherAndCount(reg, name); n != want || err != nil {
			t.Errorf("%s: %d series, %v, want %d", name, n, err, want)
		}
	}
}

func TestRowsThatDoNotPauseAreCountedFromTimeToTime(t *testing.T) {
	r := mustNew(t, spectest.Keys("{id}", "all"))
	f := newFeed(t, r, spectest.Product())
	c := r.mappings[0].meters
	for n := 1; n <= 2*tallyMost; n++ {
		f.change(nil, row{"id": n})
		if rows, keys := testutil.ToFloat64(c.rows.shown), testutil.ToFloat64(c.keys.shown); rows <= float64(n-tallyMost) ||
			keys <= float64(2*n-tallyMost) {
			t.Fatalf("after %d rows of two keys each, %v rows and %v keys are shown", n, rows, keys)
		}
	}
	f.change(nil, row{"id": 1})
	r.Publish()
	r.Publish()
	if rows, keys := testutil.ToFloat64(c.rows.shown), testutil.ToFloat64(c.keys.shown); rows != 2*tallyMost+1 ||
		keys != 2*rows {
		t.Errorf("%v rows and %v keys, want %d and twice that", rows, keys, 2*tallyMost+1)
	}
}
