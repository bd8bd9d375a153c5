package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// replicaOf returns a replica of a server, which lags by some seconds.
func replicaOf(t *testing.T, source *testbed.Server, lag int) *testbed.Server {
	t.Helper()
	if source.Flavor == testbed.FlavorMariaDB {
		r := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
		r.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
			"MASTER_USE_GTID=slave_pos, MASTER_DELAY=%d", source.Port, lag), "START SLAVE")
		return r
	}
	r := testbed.MySQL(t)
	r.Exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', "+
		"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_DELAY=%d", source.Port, lag), "START REPLICA")
	return r
}

func stopReplica(t *testing.T, r *testbed.Server) {
	t.Helper()
	if r.Flavor == testbed.FlavorMariaDB {
		r.Exec(t, "STOP SLAVE")
		return
	}
	r.Exec(t, "STOP REPLICA")
}

func startReplica(t *testing.T, r *testbed.Server) {
	t.Helper()
	if r.Flavor == testbed.FlavorMariaDB {
		r.Exec(t, "START SLAVE")
		return
	}
	r.Exec(t, "START REPLICA")
}

// prices returns what a server has of the products.
func pricesOn(t *testing.T, s *testbed.Server) map[int]int {
	t.Helper()
	rows, err := s.DB().QueryContext(t.Context(), "SELECT id, price FROM shop.product")
	if err != nil {
		return nil // the table is not there yet
	}
	defer rows.Close()
	all := map[int]int{}
	for rows.Next() {
		var id, price int
		testbed.Must(t, rows.Scan(&id, &price))
		all[id] = price
	}
	testbed.Must(t, rows.Err())
	return all
}

// fillFrom has readers fill the cache from a server until the returned function is called.
func (s *site) fillFrom(server *testbed.Server, products int) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	db, client := server.DB(), s.redis.Client()
	var g sync.WaitGroup
	g.Go(func() {
		for id := 0; ctx.Err() == nil; id = (id + 1) % products {
			if id == 0 && retry.Sleep(ctx, time.Millisecond) != nil {
				return
			}
			key := "product:" + strconv.Itoa(id)
			if client.Exists(ctx, key).Val() == 1 {
				continue
			}
			var price string
			if db.QueryRowContext(ctx, "SELECT price FROM shop.product WHERE id = ?", id).Scan(&price) == nil {
				client.Set(ctx, key, price, 0)
			}
		}
	})
	return func() {
		cancel()
		g.Wait()
	}
}

// stale returns the products whose cached price is another one than the source has.
func (s *site) stalePrices() (ids []int) {
	s.t.Helper()
	for id, price := range pricesOn(s.t, s.source) {
		value, err := s.redis.Client().Get(s.t.Context(), "product:"+strconv.Itoa(id)).Int()
		if err == redis.Nil {
			continue
		}
		testbed.Must(s.t, err)
		if value != price {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *site) hasAll(replica *testbed.Server) {
	s.t.Helper()
	want := pricesOn(s.t, s.source)
	testbed.Eventually(s.t, patience, "the replica has all", func() bool {
		got := pricesOn(s.t, replica)
		if len(got) != len(want) {
			return false
		}
		for id, price := range want {
			if got[id] != price {
				return false
			}
		}
		return true
	})
}

// filledFromReplica names a new replica of the source, which has product 1, as what readers fill from.
func (s *site) filledFromReplica(timeout string) *testbed.Server {
	s.t.Helper()
	s.write(1)
	replica := replicaOf(s.t, s.source, 0)
	s.hasAll(replica)
	s.sourceMore = fmt.Sprintf(", fill_from: [%q], fill_timeout: %s", replica.Addr, timeout)
	return replica
}

// Readers fill from a replica that lags by 8 s: the final delete has to wait for it. What the replica writes itself, as
// an ANALYZE TABLE does, is not what it has yet to replicate.
func TestTheFinalDeleteWaitsForTheServersThatReadersFillFrom(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		const products = 20
		for _, named := range []bool{false, true} {
			s := newSite(t, source)
			for id := range products {
				s.write(id)
			}
			replica := replicaOf(t, source, 0)
			s.hasAll(replica)
			stopReplica(t, replica)
			if source.Flavor == testbed.FlavorMariaDB {
				replica.Exec(t, "CHANGE MASTER TO MASTER_DELAY=8")
			} else {
				replica.Exec(t, "CHANGE REPLICATION SOURCE TO SOURCE_DELAY=8")
			}
			for range 2 * products {
				replica.Exec(t, "ANALYZE TABLE shop.product")
			}
			startReplica(t, replica)
			if named {
				s.sourceMore = fmt.Sprintf(", fill_from: [%q]", replica.Addr)
			}
			r := s.run()
			stop := s.fillFrom(replica, products)
			testbed.Eventually(t, patience, "the cache is filled", func() bool { return len(s.allCached()) == products })
			for id := range products {
				s.write(id)
			}
			s.hasAll(replica)
			s.await("all is finished", func(st *app.Status) bool {
				return st.Rows >= products && st.InFlight+st.Pending == 0
			})
			stale := s.stalePrices()
			t.Logf("fill_from: %v: %d of %d keys are stale in the end", named, len(stale), products)
			if named != (len(stale) == 0) {
				t.Errorf("fill_from: %v: %v are stale", named, stale)
			}
			stop()
			if named && !s.status().Source.FillFrom[0].WaitedFor {
				t.Errorf("%+v", s.status().Source.FillFrom)
			}
			r.Stop(t, patience)
			source.Exec(t, "DROP DATABASE shop")
		}
	})
}

// leftOut is a site whose fill server was stopped, changes went by, and its reader has cached what it still has.
func (s *site) leftOut(replica *testbed.Server) {
	s.t.Helper()
	s.cache("product:1")
	s.write(1)
	s.gone("product:1")
	s.await("the replica is left out", func(st *app.Status) bool {
		return st.State == app.Doubtful && slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool {
			return d.Cause == alarm.FillServerLeftOut && d.Subject == replica.Addr
		})
	})
}

func TestAFillServerThatIsLeftOutAndComesBack(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		given := time.Now() // another test may have had it before: its binlog begins here
		s := newSite(t, source)
		replica := s.filledFromReplica("1s")
		testbed.Eventually(t, patience, "the binlog is older than what is done again",
			func() bool { return time.Since(given) > 10*time.Second })
		r := s.run()
		for what, restarts := range map[string]bool{"freshet runs on": false, "freshet is killed meanwhile": true} {
			stopReplica(t, replica)
			s.leftOut(replica)
			s.await("what it is not waited for is finished", func(st *app.Status) bool {
				return st.InFlight+st.Pending == 0 && !st.Source.FillFrom[0].WaitedFor && st.Checkpoint != nil &&
					st.Checkpoint.Position == strings.ReplaceAll(s.source.GTIDs(t), "\n", "")
			})
			s.cache("product:1") // a reader of the replica does that
			s.cache("product:2")
			if restarts {
				r.Kill9()
				r = s.start("run")
				s.await("it knows of it", func(st *app.Status) bool { return st.State == app.Doubtful })
			}
			if !s.cached("product:1") {
				t.Errorf("%s: the key was forgotten before the replica was back", what)
			}
			startReplica(t, replica)
			s.gone("product:1")
			s.await("it is fresh again", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
			if !s.cached("product:2") {
				t.Errorf("%s: a key was forgotten that did not change meanwhile", what)
			}
		}
		r.Stop(t, patience)
	})
}

// A fill server that is taken out of the configuration is waited for no longer, and its doubts are answered.
func TestAFillServerThatIsTakenOut(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		replica := s.filledFromReplica("1s")
		r := s.run()
		testbed.Must(t, replica.Kill())
		s.leftOut(replica)
		s.cache("product:1")
		r.Stop(t, patience)
		s.sourceMore = ""
		r = s.run()
		s.gone("product:1")
		s.await("it is fresh", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
		r.Stop(t, patience)
	})
}

// With Kafka the doubt reaches each group, which does the changes again for its own Redis.
func TestAroundKafkaAFillServerIsLeftOutAndComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	replica := s.filledFromReplica("1s")
	reader, a := s.part("reader"), s.part("invalidator")
	reading, invalidating := reader.start("reader"), a.start("invalidator")
	reader.awaitFresh()
	a.awaitFresh()
	stopReplica(t, replica)
	reader.leftOut(replica)
	a.await("the invalidator knows of it", func(st *app.Status) bool { return st.State == app.Doubtful })
	s.cache("product:1")
	startReplica(t, replica)
	s.gone("product:1")
	a.await("it is fresh again", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
	reader.await("the reader too", func(st *app.Status) bool { return len(st.Doubts) == 0 })
	invalidating.Stop(t, patience)
	reading.Stop(t, patience)
}

// What a reader has put into the topic is not finished: the next one waits for the fill servers to have it.
func TestAroundKafkaTheNextReaderWaitsForFillServersToo(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	replica := s.filledFromReplica("1h")
	reader, a := s.part("reader"), s.part("invalidator")
	reading, invalidating := reader.start("reader"), a.start("invalidator")
	reader.awaitFresh()
	a.awaitFresh()
	stopReplica(t, replica)
	s.cache("product:1")
	s.write(1)
	s.gone("product:1")
	reader.await("it is in the topic", func(st *app.Status) bool {
		return st.Checkpoint != nil && st.Checkpoint.Position == strings.ReplaceAll(s.source.GTIDs(t), "\n", "")
	})
	reading.Kill9()
	reading = reader.start("reader")
	reader.await("it has asked the fill server", func(st *app.Status) bool {
		return st.Source != nil && len(st.Source.FillFrom) == 1 && st.Source.FillFrom[0].Server != ""
	})
	testbed.Eventually(t, patience, "it waits, or all is finished", func() bool {
		return reader.status().Source.FillFrom[0].Lacking > 0 || a.status().InFlight+a.status().Pending == 0
	})
	s.cache("product:1") // a reader of the replica does that
	startReplica(t, replica)
	s.gone("product:1")
	if l := a.status().Doubts; len(l) > 0 {
		t.Errorf("it was waited for, and is in doubt: %+v", l)
	}
	invalidating.Stop(t, patience)
	reading.Stop(t, patience)
}
