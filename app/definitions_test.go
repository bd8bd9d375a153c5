package app

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// defining are the definitions that a reader keeps of the tables that its source has.
type defining struct {
	*definitions
	tables []*event.Table
}

func newDefining(t *testing.T, facts *doubttest.Memory, template string) *defining {
	t.Helper()
	specs := spectest.Specs(spectest.Keys(template).On("shop.*"))
	route, err := router.New(specs, router.Options{})
	must(t, err)
	must(t, operate.KeepMappings(t.Context(), facts, "shop", specs))
	d := &defining{definitions: newDefinitions(facts, "shop", quiet(t).options.Log, route.Mappings())}
	d.ask = func(context.Context) ([]*event.Table, error) { return d.tables, nil }
	d.have("product")
	return d
}

// have makes tables all that the source has.
func (d *defining) have(names ...string) {
	d.tables = nil
	for _, name := range names {
		columns := []event.Column{{Name: "id", Type: "int", Class: event.ClassInt}, {Name: "sku", Type: "int"}}
		d.tables = append(d.tables, &event.Table{Schema: "shop", Name: name, Columns: columns})
	}
}

// knows returns what invalidators learn.
func knows(t *testing.T, facts *doubttest.Memory) map[string]bool {
	t.Helper()
	l, err := operate.Learn(t.Context(), facts, "shop")
	must(t, err)
	all := map[string]bool{}
	for _, table := range l.Tables {
		all[table.Name] = true
	}
	return all
}

// A reader that was stopped, and does not know yet that another one leads, writes what it knows.
func TestWhatAFormerLeaderKeepsOfItsTablesDoesNotStay(t *testing.T) {
	facts := &doubttest.Memory{}
	former := newDefining(t, facts, "{table}:{id}")
	must(t, former.refresh(t.Context()))
	leading := newDefining(t, facts, "{table}:{id}:{sku}")
	leading.have("product", "review")
	must(t, leading.refresh(t.Context()))
	former.have("product", "user")
	must(t, former.refresh(t.Context()))
	must(t, leading.refresh(t.Context()))
	if all := knows(t, facts); !all["review"] || len(all) != 2 {
		t.Error(all)
	}
}

// A table that has another name for a moment: no row shows what it had then.
func TestATableThatIsRenamedHasTheColumnsThatItHad(t *testing.T) {
	facts := &doubttest.Memory{}
	d := newDefining(t, facts, "{table}:{id}")
	must(t, d.refresh(t.Context()))
	for _, tables := range [][]string{{"shop.product", "shop.product_2"}, {"shop.product_3", "shop.product_2"}} {
		what := doubt.Doubt{Cause: alarm.TruncatedTable, Tables: tables}
		d.describe(&what)
		if len(what.Definitions) != 2 {
			t.Errorf("%v: %+v", tables, what.Definitions)
		}
		for _, is := range what.Definitions {
			if !slices.Contains(tables, is.String()) || is.Column("id") < 0 {
				t.Errorf("%v: %+v", tables, is)
			}
		}
	}
	for _, other := range []doubt.Doubt{
		{Cause: alarm.RowsCascaded, Tables: []string{"shop.product", "shop.job"}},
		{Cause: alarm.TruncatedTable, Tables: []string{"shop.far", "shop.near"}},
	} {
		n := len(other.Definitions)
		d.describe(&other)
		if d.of["shop.job"] != nil || d.of["shop.far"] != nil || n != 0 {
			t.Errorf("%+v", other)
		}
	}
	must(t, d.keep(t.Context()))
	if all := knows(t, facts); !all["product_2"] || !all["product_3"] {
		t.Error(all)
	}
}

func TestOfTablesThatAreMadeAndDroppedForeverSomeAreKnown(t *testing.T) {
	facts := &doubttest.Memory{}
	d := newDefining(t, facts, "{table}:{id}")
	const tables = 3 * maxGone
	for n := range tables {
		d.have("product", fmt.Sprint("job_", n))
		must(t, d.look(t.Context()))
	}
	must(t, d.keep(t.Context()))
	all := knows(t, facts)
	if len(all) != maxGone+2 || !all["product"] || !all[fmt.Sprint("job_", tables-2)] || all["job_0"] {
		t.Errorf("%d are known", len(all))
	}
}
