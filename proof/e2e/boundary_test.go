package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// mix runs one transaction of every kind: single and multi-row, changed keys, several statements, savepoints, DDL in
// between, XA, non-transactional tables, unmapped tables. rounds repeats it.
func mix(r *rig, j *journal, rounds int) {
	t := r.t
	t.Helper()
	db := r.source.DB()
	do := func(b, e []string, body func(*tx) error) {
		t.Helper()
		testbed.Must(t, j.transact(t.Context(), db, b, e, body))
	}
	for n := range rounds {
		id := func(i int) int { return n*100 + i }
		do(begin, commit, func(x *tx) error {
			return x.change("shop.product", fmt.Sprintf("id BETWEEN %d AND %d", id(1), id(6)),
				fmt.Sprintf("INSERT INTO shop.product (id, category_id, name) VALUES "+
					"(%d,1,'a'),(%d,1,'b'),(%d,2,'c'),(%d,2,'d'),(%d,3,'e')",
					id(1), id(2), id(3), id(4), id(5)))
		})
		do(begin, commit, func(x *tx) error {
			if err := x.change("shop.product", fmt.Sprintf("id = %d", id(1)),
				fmt.Sprintf("UPDATE shop.product SET category_id = 7 WHERE id = %d", id(1))); err != nil {
				return err
			}
			if err := x.exec("SAVEPOINT s"); err != nil {
				return err
			}
			if err := x.exec(fmt.Sprintf("UPDATE shop.product SET category_id = 99 WHERE id = %d", id(2))); err != nil {
				return err
			}
			if err := x.exec("ROLLBACK TO s"); err != nil {
				return err
			}
			return x.change("shop.note", fmt.Sprintf("id = %d", id(1)),
				fmt.Sprintf("INSERT INTO shop.note VALUES (%d, 'n')", id(1)))
		})
		do(nil, nil, func(x *tx) error {
			return x.change("shop.product", fmt.Sprintf("id IN (%d, %d)", id(3), id(6)),
				fmt.Sprintf("UPDATE shop.product SET id = %d WHERE id = %d", id(6), id(3)))
		})
		do(nil, nil, func(x *tx) error { return x.exec("INSERT INTO shop.other (x) VALUES (1)") })
		do(nil, nil, func(x *tx) error {
			return x.exec(fmt.Sprintf("ALTER TABLE shop.product ADD COLUMN extra%d INT FIRST, RENAME COLUMN name TO name_%d", n,
				n))
		})
		do(nil, nil, func(x *tx) error {
			return x.change("shop.product", fmt.Sprintf("id = %d", id(4)),
				fmt.Sprintf("UPDATE shop.product SET category_id = 8, version = 2 WHERE id = %d", id(4)))
		})
		do(nil, nil, func(x *tx) error {
			return x.exec(fmt.Sprintf("ALTER TABLE shop.product DROP COLUMN extra%d, RENAME COLUMN name_%d TO name", n, n))
		})
		xid := fmt.Sprintf("'mix%d'", n)
		do([]string{"XA START " + xid}, []string{"XA END " + xid, "XA PREPARE " + xid, "XA COMMIT " + xid},
			func(x *tx) error {
				return x.change("shop.product", fmt.Sprintf("id = %d", id(5)),
					fmt.Sprintf("UPDATE shop.product SET version = 3 WHERE id = %d", id(5)))
			})
		do(nil, nil, func(x *tx) error {
			return x.change("shop.product", fmt.Sprintf("id = %d", id(2)),
				fmt.Sprintf("DELETE FROM shop.product WHERE id = %d", id(2)))
		})
	}
}

// Killed at every boundary of the stream, freshet loses no change: it is started afresh at the same place, the proxy
// lets n events pass and nothing more, freshet dies by SIGKILL, and then it is started again. With all actions Redis
// holds what an application may have read in between. In a soak the number of kills must be the number of events that
// the whole stream has.
func TestKilledAtEveryEventBoundaryItLosesNothing(t *testing.T) {
	oneSuite(t, func(t *testing.T, suite string, start func(testing.TB, ...string) *testbed.Server) {
		rnd := testbed.Seeded(t)
		r := newRig(t, start(t))
		// From before the tables were made: under the servers' default row metadata, columns that are altered after the
		// start are known only if the binlog has the statements that made them.
		r.cfg.d, r.cfg.start = loadD, r.placeNow()
		if suite == "actions" {
			r.killAtEachAction(rnd)
			return
		}
		r.source.Exec(t, schema...)
		var j journal
		mix(r, &j, testbed.Cut(1, 3))
		r.killAtEachEvent(rnd, testbed.Cut(6, 1), func() {}, func(began time.Time) { j.verify(r, began) })
	})
}

// killAtEachAction is killAtEachEvent of a stream that leads to every action.
func (r *rig) killAtEachAction(rnd *rand.Rand) {
	r.t.Helper()
	r.cfg.mappings = actionMappings
	r.source.Exec(r.t, actionSchema...)
	b := newBazaar(r, 1)
	b.few = true
	b.bazaarMix(rand.New(rand.NewPCG(rnd.Uint64(), 1)), testbed.Cut(1, 3))
	keys := b.changed()
	r.killAtEachEvent(rnd, testbed.Cut(12, 1), func() { b.poison(keys, rnd) }, func(began time.Time) {
		b.load.journal.verify(r, began)
		b.verifyChanged(keys)
	})
}

// killAtEachEvent reads the same stream from its beginning again and again, and is killed each time some events later.
// begin is called before each run, and verify at its end.
func (r *rig) killAtEachEvent(rnd *rand.Rand, step int, begin func(), verify func(began time.Time)) {
	r.t.Helper()
	dir := r.t.TempDir()
	attempt := func(name string, strike func()) {
		r.t.Helper()
		r.cfg.dir = filepath.Join(dir, name)
		r.configure()
		begin()
		r.resp.Forget()
		began := time.Now()
		strike()
		r.run()
		r.finish(3 * time.Minute)
		verify(began)
		r.kill()
	}
	attempt("whole", r.binlog.Restart)
	events := r.binlog.Events()
	if events < 30 {
		r.t.Fatalf("the stream has only %d events", events)
	}
	first, kills := 1+rnd.IntN(step), 0 // each time others
	for n := first; n <= events; n += step {
		attempt(fmt.Sprint(n), func() {
			r.killAfter(n, events, rnd)
			kills++
		})
	}
	r.t.Logf("%d kills at %d events", kills, events)
	if kills != (events-first)/step+1 {
		r.t.Fatalf("%d kills at %d events", kills, events)
	}
}

// killAfter launches freshet over a proxy that lets n events of the stream pass, and kills it there.
func (r *rig) killAfter(n, events int, rnd *rand.Rand) {
	r.t.Helper()
	r.binlog.HoldAfter(n)
	r.launch()
	select {
	case <-r.binlog.Held():
	case <-r.proc.exited:
		r.t.Fatalf("freshet ended before event %d: %v\n%s", n, r.proc.err, r.proc.stderr.String())
	case <-time.After(3 * time.Minute):
		r.t.Fatalf("event %d of %d never came\n%s", n, events, r.proc.stderr.String())
	}
	<-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond) // how far it gets with it is left to chance
	r.kill()
	r.binlog.Release()
}
