package router

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// wide returns a table of many columns.
func wide(n int) *event.Table {
	t := &event.Table{Schema: "shop", Name: fmt.Sprintf("wide_%d", n)}
	for i := range 300 {
		name := fmt.Sprintf("a_column_with_a_name_%d_%d", n, i)
		t.Columns = append(t.Columns, event.Column{Name: name, Type: fmt.Sprintf("varchar(%d)", n+1), Class: event.ClassText})
	}
	t.Columns[0].Name = "id"
	return t
}

func bindWide(t *testing.T, tables int) *Router {
	t.Helper()
	m := spectest.Keys("wide:{id}")
	m.Table = spectest.Text("shop.wide_*", 1)
	m.Rebuild = &spec.Rebuild{Pos: spec.At("f.yaml", 2, 1), FromRow: true, As: event.FormJSON}
	r := mustNew(t, m)
	for i := range tables {
		if _, err := r.Bind(wide(i)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestPlansAreBoundedInBytes(t *testing.T) {
	r := bindWide(t, 400)
	if r.plans.bytes > maxPlanBytes || len(r.plans.of) != len(r.plans.newest) {
		t.Errorf("%d plans (%d newest) of %d bytes are kept, want at most %d bytes", len(r.plans.of), len(r.plans.newest),
			r.plans.bytes, maxPlanBytes)
	}
	sum := 0
	for _, p := range r.plans.of {
		sum += p.bytes
	}
	if sum != r.plans.bytes {
		t.Errorf("the plans weigh %d, not %d", sum, r.plans.bytes)
	}
}

func TestTheWeightOfPlansIsTrue(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	r := bindWide(t, 50)
	grown := heap() - before
	if grown > 2*r.plans.bytes || grown < r.plans.bytes/2 {
		t.Errorf("%d plans take %d bytes, and are said to weigh %d", len(r.plans.of), grown, r.plans.bytes)
	}
	runtime.KeepAlive(r)
}
