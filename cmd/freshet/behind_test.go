package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// takenOver is a site whose source has a replica that takes over while it lags.
type takenOver struct {
	*site
	replica *testbed.Server
	between *proxy.Proxy
}

const behindProducts = 20

func newTakenOver(s *site) *takenOver {
	s.t.Helper()
	for id := range behindProducts {
		s.write(id)
	}
	o := &takenOver{s, logsToo(s.t, s.source), proxy.Start(s.t, s.source.Addr)}
	s.sourceAt = o.between.Addr()
	o.hasAll(o.replica)
	return o
}

// logsToo returns a replica of a server that can become the source.
func logsToo(t *testing.T, source *testbed.Server) *testbed.Server {
	t.Helper()
	if source.Flavor == testbed.FlavorMySQL {
		return replicaOf(t, source, 0)
	}
	r := testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--log-slave-updates")
	r.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
		"MASTER_USE_GTID=slave_pos", source.Port), "START SLAVE")
	return r
}

// takeOver has all products change, which the replica lacks, and the address then lead to that. Readers fill the cache
// from it until stop is called. seen is who must know of the doubt.
func (o *takenOver) takeOver(seen *site) (stop func()) {
	o.t.Helper()
	stopReplica(o.t, o.replica)
	for id := range behindProducts {
		o.cache(fmt.Sprintf("product:%d", id))
		o.write(id)
	}
	for id := range behindProducts {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	seen.await("all is finished", func(st *app.Status) bool {
		return st.State == app.Fresh && st.InFlight+st.Pending == 0
	})
	o.between.Aim(o.replica.Addr)
	o.between.Reset()
	stop = o.fillFrom(o.replica, behindProducts)
	seen.await("it is in doubt", behindIn)
	testbed.Eventually(o.t, patience, "the cache is filled", func() bool {
		for id := range behindProducts {
			if !o.cached(fmt.Sprintf("product:%d", id)) {
				return false
			}
		}
		return true
	})
	o.t.Logf("while it lags: %d of %d keys are stale", len(o.stalePrices()), behindProducts)
	return stop
}

// behindIn reports whether a server that lags is in doubt, and nobody has asked for the answer.
func behindIn(st *app.Status) bool {
	return st.State != app.Fresh && slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool {
		return d.Cause == alarm.ServerBehind && !d.Asked
	})
}

// catchUp has the replica catch up, and waits until nothing is in doubt at any of the sites.
func (o *takenOver) catchUp(stop func(), all ...*site) {
	o.t.Helper()
	if n := len(o.stalePrices()); n != behindProducts {
		o.t.Errorf("%d keys are stale before it has caught up, want %d: they were forgotten too early", n, behindProducts)
	}
	startReplica(o.t, o.replica)
	o.hasAll(o.replica)
	undoubted(all...)
	stop()
	if stale := o.stalePrices(); len(stale) > 0 {
		o.t.Errorf("%v are stale in the end", stale)
	}
	// It is the source from now on.
	o.cache("product:3")
	o.replica.Exec(o.t, "UPDATE shop.product SET price = 4711 WHERE id = 3")
	o.gone("product:3")
}

// A server takes over that lags, and readers fill the cache from it. Nobody does anything about that.
func TestWhatWasCachedFromAServerThatLagsIsForgotten(t *testing.T) {
	eitherLog(t, whatWasCachedFromAServerThatLagsIsForgotten, whatWasCachedFromAServerThatLagsIsForgottenAroundKafka)
}

func whatWasCachedFromAServerThatLagsIsForgotten(t *testing.T) {
	t.Parallel()
	for what, restarts := range testbed.SomeOf(t, map[string]bool{
		"freshet runs on": false, "freshet is killed meanwhile": true,
	}) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			either(t, func(t *testing.T, source *testbed.Server) {
				o := newTakenOver(newSite(t, source))
				r := o.run()
				o.cache("other:1")
				stop := o.takeOver(o.site)
				if restarts {
					r.Kill9()
					o.start("run")
					o.await("it knows of it", behindIn)
				}
				o.catchUp(stop, o.site)
				o.kept("other:1")
			})
		})
	}
}

func whatWasCachedFromAServerThatLagsIsForgottenAroundKafka(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newTakenOver(newSite(t, source).around(t, testbed.SharedKafka(t)))
		reader, a := o.part("reader"), o.part("invalidator")
		reader.start("reader")
		a.start("invalidator")
		for _, p := range []*site{reader, a} {
			p.awaitFresh()
		}
		o.cache("other:1")
		stop := o.takeOver(reader)
		a.await("the invalidator knows of it", behindIn)
		o.catchUp(stop, reader, a)
		o.kept("other:1")
	})
}

// Somebody asks for the answer while the server lags: readers cache the same once more.
func TestAnAnswerThatIsAskedForWhileAServerLagsIsNotTheLast(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newTakenOver(newSite(t, source))
		o.run()
		o.cache("other:1")
		stop := o.takeOver(o.site)
		id := o.status().Doubts[0].ID
		o.ask("doubts", "answer", id)
		o.await("it is answered, and in doubt again", func(st *app.Status) bool {
			return behindIn(st) && slices.ContainsFunc(st.EndedDoubts, func(d doubt.Ended) bool { return d.ID == id })
		})
		testbed.Eventually(t, patience, "readers have cached the same once more", func() bool {
			return len(o.stalePrices()) == behindProducts
		})
		o.catchUp(stop, o.site)
		o.kept("other:1")
	})
}
