package main

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// A replica of MySQL that applies in parallel, with replica_preserve_commit_order=OFF, has later transactions and not
// yet an earlier one. It is read, or readers fill from it, and freshet is killed over it.
func TestAReplicaThatCommitsInAnyOrderLeavesNoStaleKey(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprint("it is read ", read), func(t *testing.T) {
			t.Parallel()
			const products = 20
			s := newSite(t, testbed.MySQL(t))
			for id := range products {
				s.write(id)
			}
			replica := testbed.MySQL(t, "--replica-parallel-workers=4", "--replica-preserve-commit-order=OFF")
			replica.Exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, "+
				"SOURCE_USER='root', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1", s.source.Port), "START REPLICA")
			s.hasAll(replica)
			s.mappings = `
  - {table: shop.product, keys: ["product:{id}"]}
  - {table: shop.product, keys: ["view:{id}"], rebuild: {query: "SELECT price FROM shop.product WHERE id = :id", as: string}}`
			if read {
				s.sourceAt = replica.Addr
			} else {
				s.sourceMore = fmt.Sprintf(", fill_from: [%q], fill_timeout: 10m", replica.Addr)
			}
			p := &pair{s, replica}
			r := p.run()
			defer p.fillFrom(replica, products)()
			chance := testbed.Seeded(t)
			for round := range testbed.Cut(2, 10) {
				late := chance.IntN(products)
				apply := p.skip(late)
				p.write(late)
				for id := range products {
					if id != late {
						p.write(id)
					}
				}
				testbed.Eventually(t, patience, "the replica has the others", func() bool {
					want, got := pricesOn(t, p.source), pricesOn(t, replica)
					got[late] = want[late]
					return fmt.Sprint(got) == fmt.Sprint(want)
				})
				if got := pricesOn(t, replica)[late]; got == pricesOn(t, p.source)[late] {
					t.Fatalf("the replica has product %d as well", late)
				}
				if round%2 == 0 {
					r.Kill9()
					r = p.start("run")
				}
				p.await("it is connected", func(st *app.Status) bool { return st.Source != nil && st.Source.Connected })
				// Readers have the old price again, which may be stale only for as long as the replica has it.
				key := "product:" + strconv.Itoa(late)
				testbed.Eventually(t, patience, "readers fill the cache", func() bool { return p.cached(key) })
				apply()
				p.hasAll(replica)
				now := time.Now()
				p.await("all is finished", func(st *app.Status) bool {
					return st.State == app.Fresh && st.FreshAsOf.After(now) && st.InFlight+st.Pending == 0 && st.RebuildQueue == 0
				})
				stale := p.stalePrices()
				n, views := p.views()
				t.Logf("round %d: %d views, %d products and views are stale", round, n, len(stale)+len(views))
				if len(stale)+len(views) > 0 {
					t.Errorf("round %d: products %v and views %v are stale", round, stale, views)
				}
				if st := p.status(); len(st.Doubts)+len(st.EndedDoubts) > 0 {
					t.Errorf("round %d: in doubt %+v, was %+v", round, st.Doubts, st.EndedDoubts)
				}
			}
			r.Stop(t, patience)
		})
	}
}

// skip has the replica not apply what changes a product, until the returned function is called.
func (p *pair) skip(id int) (apply func()) {
	p.t.Helper()
	c, err := p.replica.DB().Conn(p.t.Context())
	testbed.Must(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	for _, statement := range []string{"BEGIN", fmt.Sprintf("SELECT * FROM shop.product WHERE id = %d FOR UPDATE", id)} {
		_, err := c.ExecContext(p.t.Context(), statement)
		testbed.Must(p.t, err)
	}
	return func() {
		_, err := c.ExecContext(p.t.Context(), "ROLLBACK")
		testbed.Must(p.t, err)
	}
}
