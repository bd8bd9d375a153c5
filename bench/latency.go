package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/testbed"
)

// pace is a steady rate of transactions, each of which changes a row of its own.
type pace struct {
	rate   int // in a second
	length time.Duration
}

const (
	warmUp  = 2 * time.Second // at the same rate, and not counted
	writers = 4
	// goneWithin is how long a key may live on after its commit, and how long freshet may take to begin.
	goneWithin = time.Minute
)

// transactions returns how many a run makes.
func (p pace) transactions() int { return p.count(warmUp) + p.count(p.length) }

func (p pace) count(d time.Duration) int { return int(float64(p.rate) * d.Seconds()) }

// latencySection measures, for both event logs in turn, from when a client knows that its transaction has committed until
// its key is gone. It can be negative: the binlog is ahead of the reply.
func (b *benchmark) latencySection() *section {
	p := pace{rate: 1000, length: time.Duration(10 * float64(time.Second) * min(1, b.scale))}
	through := func(name string, log eventLog) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			all, err := b.latency(ctx, log, p)
			if err != nil {
				return nil, err
			}
			n := len(all)
			return []measure{
				{name: "p50 ms", value: all[n/2]}, {name: "p99 ms", value: all[n*99/100]}, {name: "max ms", value: all[n-1]},
			}, nil
		}}
	}
	return &section{
		name: "latency", title: fmt.Sprintf("commit to key gone, at %d transactions of one row a second", p.rate),
		contenders: []*contender{through("embedded", embedded), through("through Kafka", throughKafka)},
		rounds:     3, noWarmUp: true,
	}
}

// latency runs freshet under the load once and returns the latencies, sorted, in milliseconds.
func (b *benchmark) latency(ctx context.Context, l eventLog, p pace) (_ []float64, err error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.populate(ctx); err != nil {
		return nil, err
	}
	w := newWatch(b.workload.rows + 1)
	if err := w.subscribe(ctx, b.redis.Client()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()

	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, err := b.command(running, setting{source: source, log: l, secondDelete: "200ms"})
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = goneWithin
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		err := cmd.Wait()
		cancel(fmt.Errorf("freshet stopped: %w\n%s", err, &stderr))
	}()
	defer func() {
		cancel(nil)
		<-exited
	}()
	ms, err := b.load(running, source, p, w)
	if err != nil {
		return nil, errors.Join(err, context.Cause(running))
	}
	return ms, nil
}

// load waits until keys are deleted at all, makes the transactions, and waits until all their keys are gone.
func (b *benchmark) load(ctx context.Context, source *testbed.Server, p pace, w *watch) ([]float64, error) {
	canary := b.workload.rows
	for !w.isGone(canary) {
		if err := touch(ctx, source, canary); err != nil {
			return nil, err
		}
		if err := w.pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	committed := make([]time.Time, 1+p.transactions()) // by the row's id
	var next atomic.Int64
	var g errgroup.Group
	begin := time.Now()
	for range writers {
		g.Go(func() error {
			for id := int(next.Add(1)); id < len(committed); id = int(next.Add(1)) {
				at := begin.Add(time.Duration(id) * time.Second / time.Duration(p.rate))
				if err := w.pause(ctx, time.Until(at)); err != nil {
					return err
				}
				if err := touch(ctx, source, id); err != nil {
					return err
				}
				committed[id] = time.Now()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if took := time.Since(begin); took > (warmUp+p.length)*11/10 {
		return nil, fmt.Errorf("the source takes no %d transactions a second here: they took %s", p.rate, took)
	}
	var ms []float64
	for id := p.count(warmUp) + 1; id < len(committed); id++ {
		at, err := w.await(ctx, id)
		if err != nil {
			return nil, err
		}
		ms = append(ms, at.Sub(committed[id]).Seconds()*1000)
	}
	slices.Sort(ms)
	return ms, nil
}

func touch(ctx context.Context, source *testbed.Server, id int) error {
	_, err := source.DB().ExecContext(ctx, "UPDATE shop.product SET stock = stock + 1, updated_at = NOW(3) WHERE id = "+strconv.Itoa(id))
	return err
}

// watch notes when keys are deleted, as Redis tells it.
type watch struct {
	begin time.Time
	gone  []atomic.Int64 // by the row's id: nanoseconds after begin, 0 while the key is there
	rdb   *redis.Client
	sub   *redis.PubSub
	ended chan error
}

func newWatch(rows int) *watch {
	return &watch{begin: time.Now(), gone: make([]atomic.Int64, rows+1), ended: make(chan error, 1)}
}

func (w *watch) subscribe(ctx context.Context, rdb *redis.Client) error {
	w.rdb = rdb
	if err := rdb.ConfigSet(ctx, "notify-keyspace-events", "Eg").Err(); err != nil {
		return err
	}
	w.sub = rdb.Subscribe(ctx, "__keyevent@0__:del")
	if _, err := w.sub.Receive(ctx); err != nil { // the subscription's confirmation
		return err
	}
	go func() {
		for {
			m, err := w.sub.ReceiveMessage(ctx)
			if err != nil {
				w.ended <- err
				return
			}
			at := int64(time.Since(w.begin))
			if id, err := strconv.Atoi(strings.TrimPrefix(m.Payload, "product:")); err == nil && id < len(w.gone) {
				w.gone[id].CompareAndSwap(0, at)
			}
		}
	}()
	return nil
}

func (w *watch) close(ctx context.Context) error {
	err := w.sub.Close()
	<-w.ended
	return errors.Join(err, w.rdb.ConfigSet(ctx, "notify-keyspace-events", "").Err())
}

func (w *watch) isGone(id int) bool { return w.gone[id].Load() != 0 }

// await returns when the key of a row was deleted.
func (w *watch) await(ctx context.Context, id int) (time.Time, error) {
	for begin := time.Now(); !w.isGone(id); {
		if time.Since(begin) > goneWithin {
			return time.Time{}, fmt.Errorf("%w: product:%d is still there %s after its commit", errInvalid, id, goneWithin)
		}
		if err := w.pause(ctx, time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	return w.begin.Add(time.Duration(w.gone[id].Load())), nil
}

// pause waits for d, unless ctx ends first.
func (w *watch) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
