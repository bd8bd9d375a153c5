package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

// roles is a pair whose servers exchange their roles, as planned, while an application writes rows and fills the cache.
type roles struct {
	*pair
	// reader reads the binlog, deletes finishes the keys.
	reader, deletes *site
	// moves leads to the primary, where freshet is given one address; nil: it is given those of both servers.
	moves *proxy.Proxy
	// primary is where the application writes; nil while there is none. It fills the cache from there, or from any of
	// the fill servers.
	primary atomic.Pointer[sql.DB]
	fills   []*sql.DB
	of      map[*testbed.Server]*sql.DB
}

func newRoles(p *pair) *roles {
	p.t.Helper()
	p.source.Exec(p.t, "CREATE USER application", "GRANT SELECT, UPDATE ON shop.* TO application")
	r := &roles{pair: p, reader: p.site, deletes: p.site, of: map[*testbed.Server]*sql.DB{}}
	for _, s := range []*testbed.Server{p.source, p.replica} {
		r.of[s] = p.application(s)
	}
	r.primary.Store(r.of[p.source])
	return r
}

// application logs in as a user whom read_only keeps from writing.
func (p *pair) application(s *testbed.Server) *sql.DB {
	p.t.Helper()
	c, err := mysql.ParseDSN(s.DSN(""))
	testbed.Must(p.t, err)
	c.User, c.Passwd, c.Logger = "application", "", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	testbed.Must(p.t, err)
	db := sql.OpenDB(connector)
	p.t.Cleanup(func() { _ = db.Close() })
	return db
}

// write changes products until the returned function is called. What a server refuses is not written.
func (r *roles) write() (stop func()) {
	return r.flock(2, func(ctx context.Context, chance *rand.Rand) {
		if db := r.primary.Load(); db != nil {
			_, _ = db.ExecContext(ctx, "UPDATE shop.product SET price = price + 1 WHERE id = ?", chance.IntN(failoverProducts))
		}
		_ = retry.Sleep(ctx, 5*time.Millisecond)
	})
}

// fillFor is how long a reader takes at most from reading a row until it puts it into the cache.
const fillFor = 400 * time.Millisecond

// fill has readers fill the cache until the returned function is called.
func (r *roles) fill() (stop func()) {
	client := r.redis.Client()
	return r.flock(2, func(ctx context.Context, chance *rand.Rand) {
		id := chance.IntN(failoverProducts)
		key, db := "product:"+strconv.Itoa(id), r.primary.Load()
		if len(r.fills) > 0 {
			db = r.fills[chance.IntN(len(r.fills))]
		}
		if db == nil || client.Exists(ctx, key).Val() == 1 {
			_ = retry.Sleep(ctx, time.Millisecond)
			return
		}
		began := time.Now()
		var price string
		err := db.QueryRowContext(ctx, "SELECT price FROM shop.product WHERE id = ?", id).Scan(&price)
		if err == nil && time.Since(began) < fillFor {
			client.Set(ctx, key, price, 0)
		}
	})
}

func (r *roles) flock(n int, do func(context.Context, *rand.Rand)) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var g sync.WaitGroup
	for range n {
		chance := testbed.Seeded(r.t)
		g.Go(func() {
			for ctx.Err() == nil {
				do(ctx, chance)
			}
		})
	}
	return func() {
		cancel()
		g.Wait()
	}
}

// exchange has the primary take no more writes and the other server get all that it has and take them, and then the
// former primary follow that one: at once, or only when freshet has noticed.
func (r *roles) exchange(nth int, late bool) {
	r.t.Helper()
	was, next := r.source, r.replica
	r.primary.Store(nil)
	if was.Flavor == testbed.FlavorMariaDB {
		was.Exec(r.t, "SET GLOBAL read_only = 1")
		if left := next.QueryText(r.t, "SELECT MASTER_GTID_WAIT(?, 60)", was.GTIDs(r.t)); left != "0" {
			r.t.Fatalf("the replica does not follow: %s", left)
		}
		next.Exec(r.t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	} else {
		was.Exec(r.t, "SET GLOBAL super_read_only = 1")
		if left := next.QueryText(r.t, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 60)", was.GTIDs(r.t)); left != "0" {
			r.t.Fatalf("the replica does not follow: %s", left)
		}
		next.Exec(r.t, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL super_read_only = 0", "SET GLOBAL read_only = 0")
	}
	if r.moves != nil {
		r.moves.Aim(next.Addr)
	}
	r.source, r.replica = next, was
	r.primary.Store(r.of[next])
	if late {
		id := next.QueryText(r.t, map[testbed.Flavor]string{
			testbed.FlavorMySQL: "SELECT @@server_uuid", testbed.FlavorMariaDB: "SELECT @@server_id",
		}[next.Flavor])
		r.reader.await("the new primary is read", func(st *app.Status) bool {
			return strings.HasSuffix(st.Source.Server, id)
		})
	}
	r.follow(was, next, nth)
}

// follow has a former primary follow the new one, in one of the ways in which that is done.
func (r *roles) follow(was, next *testbed.Server, nth int) {
	r.t.Helper()
	if was.Flavor == testbed.FlavorMySQL {
		was.Follow(r.t, next)
		return
	}
	by := []string{"slave_pos", "current_pos", "slave_pos, MASTER_DEMOTE_TO_SLAVE=1"}[nth%3]
	if nth%3 == 0 {
		was.Exec(r.t, "SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos")
	}
	was.Exec(r.t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
		"MASTER_USE_GTID=%s, MASTER_CONNECT_RETRY=1", next.Port, by), "START SLAVE")
}

// right waits until all is finished that was written, while readers go on, and compares what is cached with the rows.
func (r *roles) right(what string) {
	r.t.Helper()
	now := time.Now()
	r.deletes.await("all is finished after "+what, func(st *app.Status) bool {
		return st.State == app.Fresh && st.FreshAsOf.After(now) && st.InFlight+st.Pending == 0 && st.RebuildQueue == 0
	})
	stale := r.stalePrices()
	n, views := r.views()
	if len(stale)+len(views) > 0 {
		r.t.Errorf("after %s: products %v and views %v are stale", what, stale, views)
	}
	for _, s := range []*site{r.reader, r.deletes} {
		if st := s.status(); len(st.Doubts)+len(st.EndedDoubts) > 0 {
			r.t.Errorf("after %s: in doubt %+v, was in doubt %+v", what, st.Doubts, st.EndedDoubts)
		}
	}
	st := r.reader.status()
	r.t.Logf("after %s: %d products and %d views are cached, %d stale; server %s is read, at %s", what, r.size()-int64(n), n,
		len(stale)+len(views), st.Source.Server, st.Source.Address)
}

// back has the servers exchange their roles, and again, under load.
func (r *roles) back() {
	r.t.Helper()
	chance := testbed.Seeded(r.t)
	defer r.fill()()
	for nth := range testbed.Cut(2, 8) {
		stop := r.write()
		for _, exchanged := range []bool{false, true} {
			if exchanged {
				r.exchange(nth, chance.IntN(2) == 0)
			}
			before := r.reader.rows()
			testbed.Eventually(r.t, patience, "much is read", func() bool { return r.reader.rows() > before+200 })
		}
		stop()
		r.right(fmt.Sprint("exchange ", nth+1))
	}
}

// switchovers are how freshet finds the primary, where the application fills its cache from, and where queries run.
var switchovers = map[string]func(*roles){
	"two addresses": func(*roles) {},
	"an address that moves": func(r *roles) {
		r.moves = proxy.Start(r.t, r.source.Addr)
		r.env = []string{"FRESHET_SOURCE_ADDRESSES=" + r.moves.Addr()}
	},
	"queries on the replica, which is the primary by turns": func(r *roles) {
		r.mappings = strings.Replace(r.mappings, "as: string", fmt.Sprintf("server: %q, as: string", r.replica.Addr), 1)
	},
	"readers of both": func(r *roles) {
		for _, db := range r.of {
			r.fills = append(r.fills, db)
		}
		r.sourceMore = fmt.Sprintf(", fill_from: [%q, %q], fill_timeout: 1m", r.source.Addr, r.replica.Addr)
	},
}

// A primary is made read only, its replica gets all and takes writes, and the former primary follows it; and the same
// back. Nothing was lost, so nothing is in doubt.
func TestAPlannedSwitchoverLeavesNoStaleKey(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*roles){}
	for how, set := range switchovers {
		cases[how] = func(r *roles) {
			set(r)
			running := r.run()
			r.back()
			running.Stop(r.t, patience)
		}
		cases[how+", around Kafka"] = func(r *roles) {
			set(r)
			r.aroundKafka()
		}
	}
	for _, d := range []database{
		{"mysql", func(t *testing.T) *testbed.Server { return testbed.MySQL(t) }},
		{"mariadb", func(t *testing.T) *testbed.Server {
			return testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--log-slave-updates")
		}},
	} {
		for how, run := range testbed.SomeOf(t, cases) {
			t.Run(d.name+", "+how, func(t *testing.T) {
				t.Parallel()
				run(newRoles(newPair(t, d.start(t))))
			})
		}
	}
}

// aroundKafka is back with a reader and an invalidator, which runs the queries.
func (r *roles) aroundKafka() {
	r.t.Helper()
	r.site = r.around(r.t, testbed.SharedKafka(r.t))
	r.reader, r.deletes = r.part("reader"), r.part("invalidator")
	r.deletes.readsRows, r.deletes.extra = true, "mappings: "+r.mappings+"\n"
	reading, deleting := r.reader.start("reader"), r.deletes.start("invalidator")
	r.reader.awaitFresh()
	r.deletes.awaitFresh()
	r.back()
	deleting.Stop(r.t, patience)
	reading.Stop(r.t, patience)
}
