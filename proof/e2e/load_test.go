package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// The load's second delete, and the bound that its readers keep: they give a fill up that took longer. A quarter of the
// second delete is how late Redis may answer, without final deletes being repeated: more than a command has to wait for
// its turn on a busy machine, or they are repeated forever.
const (
	loadD     = "1600ms"
	fillSlow  = 600 * time.Millisecond
	fillLimit = time.Second
	products  = 2000
)

// load is writers and cache-aside readers racing with each other. Readers talk to Redis directly, so that the log of
// the proxy holds freshet's commands only.
type load struct {
	r                *rig
	into             atomic.Pointer[testbed.RedisServer] // where readers find and put values
	journal          journal
	writers, readers flock
	writes           atomic.Int64
	fills            atomic.Int64
	// away is set while a server is being hurt on purpose: clients' errors are then expected.
	away atomic.Bool
}

// pace is how long a writer or a reader rests after each thing that it does. In a cut a fraction of what the machine
// can do is enough: the suites that run next to it need the rest. With it, 28 clients read and write some hundred times
// a second, and each key is filled and made stale many times over between two faults.
func pace() time.Duration { return testbed.Cut(40*time.Millisecond, 2*time.Millisecond) }

// startLoad makes the schema and begins to write and read.
func startLoad(r *rig, seed uint64) *load {
	r.t.Helper()
	l := &load{r: r}
	l.start(4, 24, seed)
	return l
}

// start makes the rows and begins to write and read, with so many of each.
func (l *load) start(writers, readers int, seed uint64) {
	r := l.r
	r.t.Helper()
	rows := make([]string, products)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, %d, 'p')", i+1, i%20)
	}
	r.source.Exec(r.t, "INSERT INTO shop.product (id, category_id, name) VALUES "+strings.Join(rows, ","))
	l.writers.start(writers, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return l.loop(ctx, func() error { return l.write(rnd) })
	})
	l.fill(readers, seed)
	r.t.Cleanup(func() { _, _ = l.writers.stop(), l.readers.stop() })
}

// fill begins to read, with so many readers.
func (l *load) fill(readers int, seed uint64) {
	l.into.Store(l.r.redis)
	l.readers.start(readers, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+i)))
		return l.loop(ctx, func() error { return l.read(ctx, rnd) })
	})
}

// flock is goroutines that do the same until they are stopped.
type flock struct {
	cancel context.CancelFunc
	group  errgroup.Group
}

func (f *flock) start(n int, do func(ctx context.Context, i int) error) {
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	for i := range n {
		f.group.Go(func() error { return do(ctx, i) })
	}
}

func (f *flock) stop() error {
	if f.cancel != nil { // else none was started
		f.cancel()
	}
	return f.group.Wait()
}

func (l *load) loop(ctx context.Context, f func() error) error {
	for ctx.Err() == nil {
		if err := f(); err != nil && !l.away.Load() && ctx.Err() == nil {
			// A fault may have begun or ended while f ran: only an error that comes again in peace counts.
			if err = f(); err != nil && !l.away.Load() && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pace()):
		}
	}
	return nil
}

// stop ends the load and waits for it. Readers go on for a while after the writers, so that the cache is full of what
// may be stale: a fill only ever replaces what is missing.
func (l *load) stop() {
	l.r.t.Helper()
	err := l.writers.stop()
	<-time.After(2 * time.Second)
	if err := errors.Join(err, l.readers.stop()); err != nil {
		l.r.t.Fatalf("the load failed: %v", err)
	}
	l.r.t.Logf("%d transactions, %d fills", l.writes.Load(), l.fills.Load())
}

func (l *load) write(rnd *rand.Rand) error {
	// A commit whose reply is lost may have taken effect: its keys are unknown to the journal, but the comparison at
	// the end covers them. So no deadline here but a generous one.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	id := 1 + rnd.IntN(products)
	err := l.journal.transact(ctx, l.r.source.DB(), begin, commit, func(x *tx) error {
		switch rnd.IntN(20) {
		case 0:
			if err := x.change("shop.product", fmt.Sprintf("id = %d", id),
				fmt.Sprintf("DELETE FROM shop.product WHERE id = %d", id)); err != nil {
				return err
			}
			return x.change("shop.product", fmt.Sprintf("id = %d", id),
				fmt.Sprintf("INSERT INTO shop.product (id, category_id, name, version) VALUES (%d, %d, 'p', %d)", id, rnd.IntN(20),
					rnd.IntN(1<<30)))
		case 1:
			return x.change("shop.product", fmt.Sprintf("id = %d", id),
				fmt.Sprintf("UPDATE shop.product SET category_id = %d, version = version + 1 WHERE id = %d", rnd.IntN(20), id))
		case 2:
			where := fmt.Sprintf("id BETWEEN %d AND %d", id, id+5)
			return x.change("shop.product", where, "UPDATE shop.product SET version = version + 1 WHERE "+where+" ORDER BY id")
		default:
			return x.change("shop.product", fmt.Sprintf("id = %d", id),
				fmt.Sprintf("UPDATE shop.product SET version = version + 1 WHERE id = %d", id))
		}
	})
	if err == nil {
		l.writes.Add(1)
	} else if deadlock(err) {
		return nil
	}
	return err
}

// read is cache-aside, slow on purpose.
func (l *load) read(ctx context.Context, rnd *rand.Rand) error {
	key := fmt.Sprintf("product:%d", 1+rnd.IntN(products))
	if rnd.IntN(10) == 0 {
		key = fmt.Sprintf("category:%d:products", rnd.IntN(20))
	}
	rdb := l.into.Load().Client()
	err := rdb.Get(ctx, key).Err()
	if !errors.Is(err, redis.Nil) {
		return err
	}
	start := time.Now()
	value, err := rowOf(ctx, l.r.source.DB(), key)
	if err != nil {
		return err
	}
	if !inTime(ctx, rnd, start) {
		return nil
	}
	l.fills.Add(1)
	return rdb.Set(context.WithoutCancel(ctx), key, value, 0).Err()
}

// inTime is slow half of the time, and reports whether a fill that began at start may still be made.
func inTime(ctx context.Context, rnd *rand.Rand, start time.Time) bool {
	if rnd.IntN(2) == 0 {
		select {
		case <-time.After(time.Duration(rnd.Int64N(int64(fillSlow)))):
		case <-ctx.Done():
			return false
		}
	}
	return time.Since(start) <= fillLimit
}

// loadRig is a rig under load, with freshet running.
func loadRig(t *testing.T, source *testbed.Server, seed uint64) (*rig, *load) {
	t.Helper()
	r := newRig(t, source, "--appendonly", "yes", "--appendfsync", "no")
	return r, r.load(seed)
}

// load starts freshet, and a load.
func (r *rig) load(seed uint64) *load {
	r.t.Helper()
	crowded(r.source)
	r.cfg.d = loadD
	r.source.Exec(r.t, schema...)
	r.configure()
	r.run()
	return startLoad(r, seed)
}

// settle ends the load, waits until freshet is done, and verifies both what was deleted and what is cached. Readers
// fill the cache until then: a freshet that is far behind would leave nothing of what they filled before.
func settle(r *rig, l *load) {
	r.t.Helper()
	testbed.Must(r.t, l.writers.stop())
	r.finish(3 * time.Minute)
	l.stop()
	l.journal.verify(r, time.Time{})
	r.verifyCache()
	r.stop()
}

// Killed at random under load, again and again, it loses nothing and leaves nothing stale.
func TestKilledAtRandomUnderLoadItLosesNothing(t *testing.T) {
	underLoad(t, func(w world, rnd *rand.Rand) {
		kills := testbed.Cut(8, 200)
		for range kills {
			<-time.After(time.Duration(20+rnd.IntN(testbed.Cut(600, 1000))) * time.Millisecond)
			w.kill()
			if rnd.IntN(3) == 0 {
				<-time.After(time.Duration(rnd.IntN(500)) * time.Millisecond)
			}
			w.launch()
		}
		w.t.Logf("%d kills", kills)
		w.settle(false)
	})
}

// What a fault does to a server or to the line, and what undoes it.
type fault struct {
	name   string
	begin  func(*rig) error
	end    func(*rig) error
	server bool // clients of the server notice as well
	brief  time.Duration
}

var faults = []fault{
	{
		"the source hangs", func(r *rig) error { return r.source.Pause() }, func(r *rig) error { return r.source.Resume() },
		true, 2 * time.Second,
	},
	{
		"the source is killed", func(r *rig) error { return r.source.Kill() },
		func(r *rig) error { return r.source.Start(context.Background()) }, true, time.Second,
	},
	{
		"redis hangs", func(r *rig) error { return r.redis.Pause() }, func(r *rig) error { return r.redis.Resume() }, true,
		2 * time.Second,
	},
	{
		"redis is killed", func(r *rig) error { return r.redis.Kill() },
		func(r *rig) error { return r.redis.Start(context.Background()) }, true, time.Second,
	},
	{
		"the line to the source is cut", func(r *rig) error { r.binlog.Cut(); return nil },
		func(r *rig) error { return r.binlog.Resume() }, false, time.Second,
	},
	{
		"the line to the source goes silent", func(r *rig) error { r.binlog.Stall(3); return nil },
		func(r *rig) error { return r.binlog.Resume() }, false, 3 * time.Second,
	},
	{
		"the line to the source is reset", func(r *rig) error { r.binlog.Reset(); return nil },
		func(r *rig) error { return nil }, false, 0,
	},
	{
		"the line to redis is cut", func(r *rig) error { r.resp.Cut(); return nil },
		func(r *rig) error { return r.resp.Resume() }, false, time.Second,
	},
	{
		"the line to redis goes silent", func(r *rig) error { r.resp.Stall(3); return nil },
		func(r *rig) error { return r.resp.Resume() }, false, 3 * time.Second,
	},
	{
		"the line to redis is reset", func(r *rig) error { r.resp.Reset(); return nil }, func(r *rig) error { return nil },
		false, 0,
	},
}

// Whatever stops, hangs or is cut under load, nothing is lost and nothing stays stale.
func TestFaultsOfServersAndLinesUnderLoadLoseNothing(t *testing.T) {
	underLoad(t, func(w world, rnd *rand.Rand) {
		for range testbed.Cut(1, 5) {
			for _, i := range rnd.Perm(len(faults)) {
				f := faults[i]
				w.t.Log(f.name)
				w.load.away.Store(f.server)
				testbed.Must(w.t, f.begin(w.rig))
				<-time.After(f.brief + time.Duration(rnd.Int64N(int64(testbed.Cut(time.Second, 4*time.Second)))))
				testbed.Must(w.t, f.end(w.rig))
				w.finishUnderLoad()
				w.load.away.Store(false)
			}
		}
		w.settle(true)
	}, "--sync-binlog=1")
}

// finishUnderLoad waits until freshet has caught up with what is committed now, while the load goes on.
func (r *rig) finishUnderLoad() {
	r.t.Helper()
	r.finish(3 * time.Minute)
}

// Each write to Redis takes effect and its reply is lost, once: it is done again, which is harmless, and nothing is
// lost.
func TestEveryReplyOfRedisLostOnceLosesNothing(t *testing.T) {
	underLoad(t, func(w world, _ *rand.Rand) {
		l := loser{lost: map[string]bool{}}
		w.resp.OnCommand(l.lose)
		<-time.After(testbed.Cut(3*time.Second, 20*time.Second))
		w.resp.OnCommand(nil)
		w.t.Logf("%d replies lost", l.n())
		if l.n() < 10 {
			w.t.Fatalf("only %d replies were lost", l.n())
		}
		w.settle(false)
	})
}

// loser loses the first reply to a command with each key.
type loser struct {
	mu   sync.Mutex
	lost map[string]bool
}

// lose drops the reply of a command when it has a key whose reply was not lost before.
func (l *loser) lose(c proxy.Command) proxy.Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	action := proxy.Forward
	for _, k := range c.Keys {
		if !l.lost[k] {
			l.lost[k] = true
			action = proxy.DropReply
		}
	}
	return action
}

func (l *loser) n() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lost)
}

// deadlock reports whether the server chose a transaction as the victim of a deadlock: it did not commit.
func deadlock(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1213 || e.Number == 1205)
}
