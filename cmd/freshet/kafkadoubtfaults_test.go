package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// faultsD is the second delete: readers take at most half of it from the database to Redis.
const faultsD = time.Second

// unsure are tables whose rows change, and are truncated, dropped and renamed, and two groups of invalidators with a
// Redis each that readers fill.
type unsure struct {
	*site
	kafka      *testbed.KafkaCluster
	rnd        *rand.Rand
	members    []*member
	partitions int
	sites      []*site // one of each group
	values     bool    // freshet writes them

	stop    context.CancelFunc
	working sync.WaitGroup
	price   atomic.Int64
	done    sync.Map // how often each was done
}

// member is one process.
type member struct {
	*site
	run *testbed.Running
}

var unsureTables = []string{"product", "copy", "other"}

const unsureRows = 40

func newUnsure(t *testing.T, source *testbed.Server, values bool) *unsure {
	t.Helper()
	kafka := testbed.Kafka(t)
	s := newSite(t, source).around(t, kafka)
	s.mappings = fmt.Sprintf(`[{table: "shop.*", keys: ["{table}:{id}"], second_delete: %s}]`, faultsD)
	if values {
		s.mappings = fmt.Sprintf(`[{table: "shop.*", keys: ["{table}:{id}"], second_delete: %s, rate_limit: 40,
  rebuild: {from: row, as: string, value: "{price}"}}]`, faultsD)
	}
	for _, table := range unsureTables[1:] {
		s.source.Exec(t, "CREATE TABLE shop."+table+" (id INT PRIMARY KEY, price INT NOT NULL)")
	}
	s.readsRows = true
	d := &unsure{site: s, kafka: kafka, rnd: testbed.Seeded(t), partitions: topicPartitions, values: values}
	other := s.otherGroup()
	other.redisMore = `, key_prefix: "eu:"`
	d.sites = []*site{s, other}
	parts := []*site{s.part("reader"), s.part("reader"), s.part("invalidator"), s.part("invalidator"), other}
	if d.rnd.IntN(2) == 0 {
		parts = []*site{s.part("run"), s.part("run"), other}
	}
	for _, p := range parts {
		d.members = append(d.members, &member{site: p, run: p.start(p.role)})
	}
	return d
}

func (p *site) prefix() string {
	if strings.Contains(p.redisMore, "key_prefix") {
		return "eu:"
	}
	return ""
}

// count counts what was done.
func (d *unsure) count(what string) {
	n, _ := d.done.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// load changes rows and fills the caches until d.stop.
func (d *unsure) load() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	for range 2 {
		seed := d.rnd.Uint64()
		d.working.Go(func() { d.writes(ctx, rand.New(rand.NewPCG(seed, 1))) })
	}
	seed := d.rnd.Uint64()
	d.working.Go(func() { d.defines(ctx, rand.New(rand.NewPCG(seed, 1))) })
}

// fills fills the cache of a site until ctx ends.
func (d *unsure) fills(ctx context.Context, s *site, rnd *rand.Rand) {
	redis := s.redis.Client()
	for ctx.Err() == nil {
		table, id := unsureTables[rnd.IntN(3)], rnd.IntN(unsureRows)
		began := time.Now()
		var price int64
		query := fmt.Sprintf("SELECT price FROM shop.%s WHERE id = %d", table, id)
		if d.source.DB().QueryRowContext(ctx, query).Scan(&price) != nil {
			pause(ctx, 2*time.Millisecond)
			continue
		}
		if rnd.IntN(3) == 0 {
			pause(ctx, time.Duration(rnd.Int64N(int64(faultsD*2/5))))
		}
		if time.Since(began) > faultsD/2 {
			continue
		}
		_ = redis.Set(ctx, fmt.Sprintf("%s%s:%d", s.prefix(), table, id), price, 0).Err()
		d.count("fill")
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (d *unsure) try(ctx context.Context, what, statement string) {
	if d.source.ExecContext(ctx, statement) == nil {
		d.count(what)
	}
}

// writes changes rows.
func (d *unsure) writes(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		table, id := unsureTables[rnd.IntN(3)], rnd.IntN(unsureRows)
		price := d.price.Add(1)
		if rnd.IntN(5) == 0 {
			d.try(ctx, "row", fmt.Sprintf("DELETE FROM shop.%s WHERE id = %d", table, id))
		} else {
			d.try(ctx, "row", fmt.Sprintf("REPLACE INTO shop.%s (id, price) VALUES (%d, %d)", table, id, price))
		}
		pause(ctx, time.Duration(rnd.IntN(10))*time.Millisecond)
	}
}

// defines does what no row events show.
func (d *unsure) defines(ctx context.Context, rnd *rand.Rand) {
	wide := map[string]bool{}
	for ctx.Err() == nil {
		table := unsureTables[rnd.IntN(3)]
		switch rnd.IntN(6) {
		case 0, 1:
			d.try(ctx, "truncate", "TRUNCATE shop."+table)
		case 2:
			d.try(ctx, "rename", "RENAME TABLE shop.product TO shop.tmp, shop.copy TO shop.product, shop.tmp TO shop.copy")
		case 3:
			d.try(ctx, "drop", "DROP TABLE shop."+table)
			// Also once the load is over: what comes then looks for the table.
			for d.source.ExecContext(d.t.Context(), "CREATE TABLE IF NOT EXISTS shop."+table+
				" (id INT PRIMARY KEY, price INT NOT NULL)") != nil && d.t.Context().Err() == nil {
				pause(d.t.Context(), 10*time.Millisecond)
			}
		case 4:
			of := "BIGINT"
			if wide[table] {
				of = "INT"
			}
			wide[table] = !wide[table]
			d.try(ctx, "alter", fmt.Sprintf("ALTER TABLE shop.%s MODIFY price %s NOT NULL", table, of))
		case 5:
			d.logsAStatement(ctx, table)
		}
		pause(ctx, time.Duration(rnd.IntN(1500))*time.Millisecond)
	}
}

// logsAStatement changes all rows of a table in a statement that is logged as one.
func (d *unsure) logsAStatement(ctx context.Context, table string) {
	conn, err := d.source.DB().Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION binlog_format = STATEMENT"); err != nil {
		return
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("UPDATE shop.%s SET price = price + 1000000", table)); err == nil {
		d.count("statement")
	}
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION binlog_format = ROW")
}

// lasts is how long a fault lasts: mostly short, one time in three past the session of 10 s.
func (d *unsure) lasts() time.Duration {
	if d.rnd.IntN(3) == 0 {
		return 11*time.Second + time.Duration(d.rnd.IntN(4000))*time.Millisecond
	}
	return time.Duration(100+d.rnd.IntN(3000)) * time.Millisecond
}

// hurt does something to a process or a server, and undoes it.
func (d *unsure) hurt() string {
	m := d.members[d.rnd.IntN(len(d.members))]
	what := m.role + " of " + m.listen
	switch d.rnd.IntN(16) {
	case 9:
		d.kafka.DeleteTopic(d.t, d.topic+".doubts")
		return "the topic of doubts is deleted"
	case 10:
		if d.partitions < 12 {
			d.partitions++
			d.kafka.AddPartitions(d.t, d.topic, d.partitions)
		}
		return fmt.Sprintf("the topic has %d partitions", d.partitions)
	case 11:
		return d.ask("invalidate", "--all")
	case 12:
		s, later := d.sites[d.rnd.IntN(2)], d.lasts()
		s.redis.Do(d.t, "save")
		<-time.After(later)
		testbed.Must(d.t, s.redis.Kill())
		testbed.Must(d.t, s.redis.Start(context.Background()))
		return fmt.Sprintf("a redis goes back by %s", later)
	case 13:
		return d.ask("redo", "--since", fmt.Sprintf("%ds", 1+d.rnd.IntN(60)))
	case 14:
		table := "shop." + unsureTables[d.rnd.IntN(3)]
		return d.ask("invalidate", "--table", table, "--where", fmt.Sprintf("id < %d", d.rnd.IntN(unsureRows)))
	case 15:
		if d.values {
			return d.ask("warm", "--table", "shop."+unsureTables[d.rnd.IntN(3)])
		}
		return d.ask("invalidate", "--pattern", "*1*")
	case 0, 1, 2:
		m.run.Kill9()
		down := time.Duration(0)
		if d.rnd.IntN(2) == 0 {
			down = d.lasts()
		}
		<-time.After(down)
		m.run = m.start(m.role)
		return fmt.Sprintf("%s is killed, and away for %s", what, down)
	case 3, 4:
		d := d.lasts()
		m.run.Signal(syscall.SIGSTOP)
		<-time.After(d)
		m.run.Signal(syscall.SIGCONT)
		return fmt.Sprintf("%s hangs for %s", what, d)
	case 5:
		testbed.Must(d.t, d.kafka.Broker(1).Kill())
		testbed.Must(d.t, d.kafka.Broker(1).Start(context.Background()))
		return "the broker is killed"
	case 6:
		last := d.lasts()
		testbed.Must(d.t, d.kafka.Broker(1).Pause())
		<-time.After(last)
		testbed.Must(d.t, d.kafka.Broker(1).Resume())
		return fmt.Sprintf("the broker hangs for %s", last)
	case 7:
		s, last := d.sites[d.rnd.IntN(2)], d.lasts()
		testbed.Must(d.t, s.redis.Pause())
		<-time.After(last)
		testbed.Must(d.t, s.redis.Resume())
		return fmt.Sprintf("a redis hangs for %s", last)
	default:
		last := d.lasts()
		testbed.Must(d.t, d.source.Pause())
		<-time.After(last)
		testbed.Must(d.t, d.source.Resume())
		return fmt.Sprintf("the source hangs for %s", last)
	}
}

// ask gives an order to all invalidators, which need not have carried it out then.
func (d *unsure) ask(words ...string) string {
	what := strings.Join(words, " ")
	for _, m := range d.members {
		if m.role != "reader" {
			r := m.start(words...)
			d.t.Logf("%s: %d", what, r.Wait(d.t, patience))
		}
	}
	return what
}

// settled waits until all processes say that all is well.
func (d *unsure) settled() {
	d.t.Helper()
	now, said := time.Now(), ""
	defer func() {
		if d.t.Failed() {
			d.t.Log(said)
		}
	}()
	testbed.Eventually(d.t, 3*patience, "all is well", func() bool {
		var lines []string
		for _, m := range d.members {
			st := m.status()
			switch {
			case st == nil:
				lines = append(lines, m.role+" "+m.listen+" does not answer")
			case len(st.Doubts) > 0, st.State != app.Fresh && st.State != app.Standby, st.InFlight+st.Pending > 0,
				st.State == app.Fresh && !st.FreshAsOf.After(now):
				lines = append(lines, fmt.Sprintf("%s %s: %s: %s", m.role, m.listen, st.State, st.Sentence))
			}
		}
		said = strings.Join(lines, "\n")
		return said == ""
	})
}

// verify compares each cached value with its row.
func (d *unsure) verify() {
	d.t.Helper()
	rows := map[string]string{}
	for _, table := range unsureTables {
		all, err := d.source.DB().QueryContext(d.t.Context(), "SELECT id, price FROM shop."+table)
		testbed.Must(d.t, err)
		for all.Next() {
			var id, price string
			testbed.Must(d.t, all.Scan(&id, &price))
			rows[table+":"+id] = price
		}
		testbed.Must(d.t, all.Err())
		all.Close()
	}
	for _, s := range d.sites {
		n := 0
		for _, key := range s.allCached() {
			if strings.HasPrefix(key, s.prefix()+"freshet:") {
				continue
			}
			value, err := s.redis.Client().Get(d.t.Context(), key).Result()
			testbed.Must(d.t, err)
			n++
			if is := rows[strings.TrimPrefix(key, s.prefix())]; is != value {
				d.t.Errorf("stale in group %s: %s is %q, and its row has %q", s.group, key, value, is)
			}
		}
		d.t.Logf("group %s: %d keys are cached", s.group, n)
	}
}

// throughFaults hurts the processes and the servers, and looks at all keys once all processes say that all is well.
func throughFaults(t *testing.T, source *testbed.Server, values bool) {
	d := newUnsure(t, source, values)
	d.source.DB().SetMaxOpenConns(20)
	d.settled()
	filling, full := context.WithCancel(context.Background())
	var fillers sync.WaitGroup
	for _, s := range d.sites {
		for range 3 {
			if values { // which freshet writes itself
				break
			}
			seed := d.rnd.Uint64()
			fillers.Go(func() { d.fills(filling, s, rand.New(rand.NewPCG(seed, 1))) })
		}
	}
	defer fillers.Wait()
	defer full()
	rounds, faults := 1, 3
	if os.Getenv("FRESHET_SOAK") != "" {
		rounds, faults = 10, 5
	}
	for round := range rounds {
		d.load()
		for range faults {
			t.Logf("%d: %s", round, d.hurt())
			<-time.After(time.Duration(d.rnd.IntN(2000)) * time.Millisecond)
		}
		d.stop()
		d.working.Wait()
		d.settled()
		if round == rounds-1 {
			full()
			fillers.Wait()
			d.settled()
		}
		if d.verify(); t.Failed() {
			break
		}
	}
	d.done.Range(func(what, n any) bool {
		t.Logf("%s: %d", what, n.(*atomic.Int64).Load())
		return true
	})
	for _, m := range d.members {
		if code := m.run.Stop(t, patience); code != exitDone {
			t.Errorf("%s: exit code %d", m.role, code)
		}
	}
}

// Whatever is killed or hangs: once all processes say that all is well, no key is older than its row.
func TestDoubtsAreAnsweredInEachGroupThroughFaults(t *testing.T) {
	t.Parallel()
	if os.Getenv("FRESHET_SOAK") == "" {
		throughFaults(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"), false)
		return
	}
	for what, values := range map[string]bool{"readers fill the cache": false, "freshet writes values": true} {
		t.Run(what, func(t *testing.T) {
			both(t, func(t *testing.T, source *testbed.Server) { throughFaults(t, source, values) })
		})
	}
}
