package lint

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, specs ...spectest.Mapping) *router.Router {
	t.Helper()
	r, err := router.New(spectest.Specs(specs...), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// keys returns the keys of a row of which the router needs one column.
func keys(r *router.Router, table *event.Table, v event.Value) []string {
	var b event.Batch
	r.Route(&b, &event.Change{Table: table, Tx: &event.Tx{}, Op: event.Insert, After: []event.Value{v}})
	all := []string{}
	for i := range b.Len() {
		all = append(all, b.Key(i))
	}
	return all
}

// number and text are values as the canal hands them over.
func number(n int64) event.Value { return event.Value{Kind: event.Int, Num: uint64(n)} }
func text(s string) event.Value  { return event.Value{Kind: event.Text, Text: []byte(s)} }

// Bind and Route belong to one goroutine; everything else may be asked meanwhile. The race detector watches.
func TestARouterCanBeCheckedWhileItRoutes(t *testing.T) {
	r, table := mustNew(t, spectest.Keys("{id}").If("row.id != 0").Of("id"), spectest.Keys("x").On("shop.*")),
		spectest.Product()
	if _, err := r.Bind(table); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			Check(r, spectest.Product())
			Shared(r, []*event.Table{spectest.Product()}, nil)
			Remarks(r)
			Touches(r)
			r.Wants("shop", "other")
		}
	}()
	made := 0
	for i := range int64(1000) {
		made += len(keys(r, table, number(i)))
	}
	<-done
	if made != 1999 {
		t.Errorf("%d keys", made)
	}
}
