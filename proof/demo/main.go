// Command demo shows freshet at work: a small shop on a private MariaDB and a private Redis, writers, cache-aside
// readers that are slow on purpose, and freshet as a process of its own. Half-way Redis is killed, and comes back with
// the data of a snapshot that was saved early: freshet does all changes since then once more. Later freshet is killed
// with -9 and started again. Products and lists are deleted when they change; prices are written again. At the end
// every cached key is compared with its row.
//
// With DEMO_KAFKA=1 there is an Apache Kafka broker too, and freshet is a reader and two invalidators; each of the four
// is killed with -9 once, in turn, two of them before Redis and two after it.
//
// It is steered by environment variables: DEMO_SECONDS (default 30, with Kafka 90; 0 means until Ctrl-C),
// DEMO_WITHOUT=1 (the same load without freshet) and DEMO_SINGLE=1 (freshet that waits for no slow reader). The exit
// code is 0 only if no cached key is stale. A MariaDB and a Redis of one's own are used when FRESHET_TEST_MARIADB and
// FRESHET_TEST_REDIS give their addresses: the schema freshet_demo_shop and the keys product:*, price:*, category:* and
// freshet:* are then written there, and that Redis is not killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

func main() {
	redis.SetLogger(&logging.VoidLogger{}) // it would say a hundred times that Redis is away
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	stale, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if stale > 0 {
		os.Exit(1)
	}
}

// The demo's second delete, and what it rests on: readers hold a fill up by at most slowest, and give it up when it
// took longer than limit.
const (
	secondDelete = "1s"
	slowest      = 500 * time.Millisecond
	limit        = 700 * time.Millisecond
	writers      = 4
	readers      = 64
)

// plan is what the environment asks for.
type plan struct {
	duration        time.Duration // 0: until interrupted
	without, single bool
	kafka           bool
}

func planned() (plan, error) {
	p := plan{
		duration: 30 * time.Second, without: os.Getenv("DEMO_WITHOUT") == "1", single: os.Getenv("DEMO_SINGLE") == "1",
		kafka: os.Getenv("DEMO_KAFKA") == "1",
	}
	if p.kafka {
		p.duration = 90 * time.Second // it takes a session of the consumer group until the others notice that a part is gone
	}
	if text := os.Getenv("DEMO_SECONDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return p, fmt.Errorf("DEMO_SECONDS=%s: write a whole number of seconds, or 0 for until Ctrl-C", text)
		}
		p.duration = time.Duration(n) * time.Second
	}
	return p, nil
}

func run(interrupted context.Context) (stale int, err error) {
	p, err := planned()
	if err != nil {
		return 0, err
	}
	// What follows Ctrl-C, the comparison and the cleaning up, must not be cut short by it.
	ctx := context.WithoutCancel(interrupted)
	st, err := build(ctx, p)
	if st != nil {
		defer func() { err = errors.Join(err, st.close()) }()
	}
	if err != nil {
		return 0, err
	}
	if err := st.load(ctx, interrupted); err != nil {
		return 0, err
	}
	return st.settle(ctx)
}

// stage is all that the demo has set up.
type stage struct {
	plan
	shop     *shop
	database *testbed.Server
	redis    *testbed.RedisServer
	cluster  *testbed.KafkaCluster // nil without Kafka
	freshets []*freshet
	meter    *meter
	dir      string
	// turns is how often Redis has gone away and come back. It is odd while Redis is away.
	turns atomic.Int64
}

func build(ctx context.Context, p plan) (s *stage, err error) {
	s = &stage{plan: p}
	if s.dir, err = os.MkdirTemp("", "freshet-demo"); err != nil {
		return nil, err
	}
	if s.database, err = testbed.StartMariaDB(ctx,
		testbed.Options{Shared: true, Args: []string{"--binlog-row-metadata=FULL"}}); err != nil {
		return s, err
	}
	if s.redis, err = testbed.StartRedis(ctx, testbed.Options{Shared: true}); err != nil {
		return s, err
	}
	fmt.Printf("MariaDB %s on %s, Redis %s on %s\n", s.database.Version, s.database.Addr, s.redis.Version, s.redis.Addr)
	s.database.DB().SetMaxOpenConns(writers + readers + 2)
	s.database.DB().SetMaxIdleConns(writers + readers + 2)
	s.shop = &shop{db: s.database.DB(), cache: s.redis.Client(), slow: slowest, limit: limit}
	if err := s.shop.create(ctx); err != nil {
		return s, err
	}
	if s.meter, err = newMeter(ctx, s.redis.Client()); err != nil {
		return s, err
	}
	if p.without {
		fmt.Println("without freshet: nothing deletes stale keys")
		return s, nil
	}
	return s, s.startFreshets(ctx)
}

// startFreshets starts what keeps the cache fresh.
func (s *stage) startFreshets(ctx context.Context) error {
	roles := [][2]string{{"run", "freshet run"}}
	if s.kafka {
		var err error
		if s.cluster, err = testbed.StartKafka(ctx, testbed.KafkaOptions{}); err != nil {
			return err
		}
		fmt.Printf("Kafka %s on %s\n", s.cluster.Version, s.cluster.Brokers()[0])
		roles = [][2]string{
			{"reader", "freshet reader"},
			{"invalidator", "freshet invalidator 1"},
			{"invalidator", "freshet invalidator 2"},
		}
	}
	binary, err := buildFreshet(ctx, s.dir)
	if err != nil {
		return err
	}
	for _, r := range roles {
		f, err := s.newFreshet(binary, r[0], r[1])
		if err != nil {
			return err
		}
		s.freshets = append(s.freshets, f)
		fmt.Printf("\n%s\n$ freshet %s -c %s\n", f.config, f.role, f.file)
	}
	fmt.Println()
	for _, f := range s.freshets {
		if err := f.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) close() error {
	var errs []error
	for _, f := range s.freshets {
		errs = append(errs, f.kill(), f.log.Close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.meter != nil {
		errs = append(errs, s.meter.close())
	}
	if s.shop != nil {
		ctx := context.Background()
		_, err := s.shop.db.ExecContext(ctx, schema[0])
		errs = append(errs, err, s.shop.forget(ctx))
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// load runs writers and readers for the demo's duration, and kills every part once.
func (s *stage) load(ctx, interrupted context.Context) error {
	running, cancel := context.WithCancel(interrupted)
	defer cancel()
	if s.duration > 0 {
		running, cancel = context.WithTimeout(interrupted, s.duration)
		defer cancel()
	}
	g, working := errgroup.WithContext(running)
	for range writers {
		g.Go(func() error { return s.write(ctx, working) })
	}
	for range readers {
		g.Go(func() error { return s.read(ctx, working) })
	}
	g.Go(func() error { return s.report(ctx, working) })
	if !s.without {
		g.Go(func() error { return s.strike(ctx, working) })
	}
	return g.Wait()
}

// until calls f again and again until working ends. What f has begun is finished, so it gets ctx.
func until(ctx, working context.Context, pause time.Duration, f func(context.Context) error) error {
	for working.Err() == nil {
		if err := f(ctx); err != nil {
			return err
		}
		wait(working, pause)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *stage) write(ctx, working context.Context) error {
	return until(ctx, working, 4*time.Millisecond, func(ctx context.Context) error {
		id, cached := s.meter.begin(), false
		if err := s.unlessAway(func() (err error) {
			cached, err = s.shop.cached(ctx, id)
			return err
		}); err != nil {
			return err
		}
		defer s.meter.wrote(id, cached)
		return s.shop.write(ctx, id)
	})
}

func (s *stage) read(ctx, working context.Context) error {
	return until(ctx, working, time.Millisecond, func(ctx context.Context) error {
		return s.unlessAway(func() error { return s.shop.read(ctx, random()) })
	})
}

// report prints a line a second, and every five seconds what has become of one product that was written a second ago.
func (s *stage) report(ctx, working context.Context) error {
	fmt.Println("   writes/s   deleted/s   rebuilt/s   commit → deleted p50       p99     keys cached   stale now")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	written, filled := 0, int64(0)
	for second := 1; ; second++ {
		select {
		case <-working.Done():
			return nil
		case <-tick.C:
		}
		if err := s.unlessAway(func() error {
			var err error
			written, filled, err = s.line(ctx, second%5 == 0, written, filled)
			return err
		}); err != nil {
			return err
		}
	}
}

// line prints what the last second brought, and what has become of a product if one is asked for that was written. It
// returns the product that was written last, and how many prices readers have filled.
func (s *stage) line(ctx context.Context, example bool, written int, filled int64) (int, int64, error) {
	m := s.meter.second()
	fills := s.shop.priceFills.Load()
	stale, cached, err := s.shop.compare(ctx)
	if err != nil {
		return m.last, fills, err
	}
	fmt.Printf("%11d %11d %11d   %20s  %8s  %14d  %10d\n", m.writes, m.deletes, max(0, m.sets-int(fills-filled)), m.p50,
		m.p99, cached, stale)
	if example && written > 0 {
		text, err := s.shop.example(ctx, written)
		if err != nil {
			return m.last, fills, err
		}
		fmt.Println(text)
	}
	return m.last, fills, nil
}

// settle stops all writing, lets readers fill what is missing, waits until freshet has nothing left to do, and
// compares.
func (s *stage) settle(ctx context.Context) (stale int, err error) {
	fmt.Println("*** writers stopped; reading every key once more, then waiting until freshet is done")
	s.shop.slow = time.Millisecond
	g, fill := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, o := range all() {
		g.Go(func() error { return s.shop.read(fill, o) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	now := time.Now()
	for _, f := range s.freshets {
		if err := f.finish(ctx, now); err != nil {
			return 0, err
		}
	}
	// The final deletes have emptied some keys again: what counts is what applications would be served now.
	for _, o := range all() {
		if err := s.shop.read(ctx, o); err != nil {
			return 0, err
		}
	}
	stale, cached, err := s.shop.compare(ctx)
	if err != nil {
		return 0, err
	}
	switch {
	case s.without:
		fmt.Println("Nothing told the cache about the writes.")
	case s.single && stale > 0:
		fmt.Println("Slow readers were not waited for: one that had read the old row filled the cache after the last delete.")
	}
	fmt.Printf("stale keys: %d of %d\n", stale, cached)
	return stale, nil
}
