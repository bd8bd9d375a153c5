package main

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// A commit waits for a semi-synchronous replica for longer than it takes until freshet says so. Its event is read long
// before, the key is deleted, and a reader caches what it still sees. freshet is killed meanwhile. The last delete
// comes once everybody sees the commit.
func TestACommitThatIsHeldThroughARestartLeavesNoStaleKey(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.write(1)
		r := s.run()
		s.cache("product:1")
		testbed.Must(t, source.HoldCommits(t.Context(), patience))
		committed := make(chan error, 1)
		go func() {
			committed <- source.ExecContext(context.WithoutCancel(t.Context()),
				"UPDATE shop.product SET price = 99 WHERE id = 1")
		}()
		s.gone("product:1")
		fill := func() {
			t.Helper()
			if price := pricesOn(t, source)[1]; price == 99 {
				t.Fatal("the commit is not held")
			}
			price := strconv.Itoa(pricesOn(t, source)[1])
			testbed.Must(t, s.redis.Client().Set(t.Context(), "product:1", price, 0).Err())
		}
		fill()
		s.await("it says that the commit is held", func(st *app.Status) bool {
			return slices.ContainsFunc(st.Alarms, func(a alarm.Record) bool { return a.Kind == alarm.NotVisible })
		})
		r.Kill9()
		r = s.start("run")
		s.gone("product:1") // it does not know any more that it has deleted it
		fill()
		s.await("the final delete waits", func(st *app.Status) bool { return st.Pending == 1 })
		if ids := s.stalePrices(); len(ids) > 0 || !s.cached("product:1") {
			t.Errorf("before everybody sees the commit: %v are stale", ids)
		}
		testbed.Must(t, source.ReleaseCommits(t.Context()))
		testbed.Must(t, <-committed)
		s.gone("product:1")
		s.awaitFresh()
		r.Stop(t, patience)
	})
}
