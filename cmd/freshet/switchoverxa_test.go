package main

import (
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// XA transactions are prepared on a primary, one before freshet has read anything, and committed, or rolled back, on
// its replica, which has taken over, as planned or after a crash.
func TestXATransactionsThatAreCommittedAfterAFailoverLeaveNoStaleKey(t *testing.T) {
	t.Parallel()
	for how, crash := range testbed.SomeOf(t, map[string]bool{"as planned": false, "after a crash": true}) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, source *testbed.Server) {
				r := newRoles(newPair(t, source))
				prepare := func(xid string, id int) {
					t.Helper()
					c, err := source.DB().Conn(t.Context())
					testbed.Must(t, err)
					for _, q := range []string{
						"XA START '" + xid + "'", fmt.Sprintf("UPDATE shop.product SET price = 1000 + id WHERE id = %d", id),
						"XA END '" + xid + "'", "XA PREPARE '" + xid + "'",
					} {
						_, err := c.ExecContext(t.Context(), q)
						testbed.Must(t, err)
					}
					_ = c.Raw(func(any) error { return driver.ErrBadConn }) // MariaDB gives it up with its session
				}
				prepare("before", 1)
				running := r.run()
				prepare("committed", 2)
				prepare("rolled back", 3)
				prepare("committed later", 4)
				source.Exec(t, "UPDATE shop.product SET price = 7 WHERE id = 5")
				r.hasAll(r.replica)
				defer r.fill()()
				for id := 1; id < 5; id++ {
					key := fmt.Sprintf("product:%d", id)
					testbed.Eventually(t, patience, "readers fill "+key, func() bool { return r.cached(key) })
				}
				if crash {
					r.primary.Store(nil)
					testbed.Must(t, source.Kill())
					r.promote()
					r.primary.Store(r.of[r.source])
				} else {
					r.exchange(0, false)
				}
				r.source.Exec(t, "XA COMMIT 'before'", "XA COMMIT 'committed'", "XA ROLLBACK 'rolled back'")
				running.Kill9()
				running = r.start("run")
				r.await("it is connected", func(st *app.Status) bool { return st.Source != nil && st.Source.Connected })
				r.source.Exec(t, "XA COMMIT 'committed later'", "UPDATE shop.product SET price = 8 WHERE id = 5")
				now := time.Now()
				r.await("all is finished", func(st *app.Status) bool {
					return st.State == app.Fresh && st.FreshAsOf.After(now) && st.InFlight+st.Pending == 0 && st.RebuildQueue == 0
				})
				want := pricesOn(t, r.source)
				if want[1] != 1001 || want[2] != 1002 || want[3] == 1003 || want[4] != 1004 || want[5] != 8 {
					t.Fatalf("the rows are %v", want)
				}
				_, views := r.views()
				if stale := r.stalePrices(); len(stale)+len(views) > 0 {
					t.Errorf("products %v and views %v are stale", stale, views)
				}
				running.Stop(t, patience)
			})
		})
	}
}
