package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// pace is a steady rate of transactions, each of which changes a row of its own. Each has its time: one that is late,
// because the source was busy, does not put off those after it.
type pace struct {
	rate   int // in a second
	length time.Duration
}

const (
	warmUp  = 2 * time.Second // at the same rate, and not counted
	writers = 4
	// goneWithin is how long a key may live on after its commit, and how long freshet may take to begin.
	goneWithin = time.Minute
	// liveRate is how many transactions a second are made wherever latency is measured.
	liveRate = 1000
)

// transactions returns how many a run makes.
func (p pace) transactions() int { return p.count(warmUp) + p.count(p.length) }

func (p pace) count(d time.Duration) int { return int(float64(p.rate) * d.Seconds()) }

// latencySection measures from when a client knows that its transaction has committed until another client hears from
// Redis that the key is gone. It can be negative: the binlog is ahead of the reply.
func (b *benchmark) latencySection() *section {
	p := pace{rate: liveRate, length: max(time.Second, time.Duration(10*float64(time.Second)*min(1, b.scale)))}
	const bare, bareKafka = "bare reader", "bare reader through Kafka"
	through := func(name string, run programs, of ...reference) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			ms, err := b.latency(ctx, run, p)
			return percentiles(ms, of...), err
		}}
	}
	kafka := setting{log: throughKafka, secondDelete: "200ms"}
	return &section{
		name:  "latency",
		title: fmt.Sprintf("commit to key gone, at %d transactions of one row a second", p.rate),
		// The broker compiles its own program meanwhile, which has been done for long where a broker runs for days.
		setup: func(ctx context.Context, b *benchmark) error {
			_, err := b.latency(ctx, liveThroughKafka, p)
			return err
		},
		contenders: []*contender{
			through(bare, live),
			{name: "floor: UNLINK by the writer", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				ms, err := b.latencyFloor(ctx, p)
				return percentiles(ms), err
			}},
			through("embedded, none", together(setting{secondDelete: "none"}), reference{bare, "≤ 1.5"}),
			through("embedded, 200ms", together(setting{secondDelete: "200ms"}), reference{bare, "≤ 1.5"}),
			through("embedded, 2s", together(setting{secondDelete: "2s"}), reference{bare, "≤ 1.5"}),
			through(bareKafka, liveThroughKafka, reference{of: bare}),
			through("Kafka, 200ms, one process", together(kafka), reference{bare, "≤ 4"}, reference{of: bareKafka}),
			through("Kafka, 200ms, two processes", apart(kafka), reference{bare, "≤ 4"}, reference{of: bareKafka}),
		},
		noWarmUp: true,
	}
}

// reference is what a latency is divided by, and the goal of that, if there is one.
type reference struct{ of, goal string }

// percentiles makes measures of latencies, which it sorts.
func percentiles(ms []float64, others ...reference) (m []measure) {
	n := len(ms)
	if n == 0 {
		return nil
	}
	slices.Sort(ms)
	if len(others) == 0 {
		others = []reference{{}}
	}
	for _, o := range others {
		m = append(m, measure{name: "p50 ms", value: ms[n/2], of: o.of, goal: o.goal},
			measure{name: "p99 ms", value: ms[n*99/100], of: o.of, goal: o.goal})
	}
	return append(m, measure{name: "max ms", value: ms[n-1]})
}

// latency has processes follow the load once and returns the latencies in milliseconds.
func (b *benchmark) latency(ctx context.Context, run programs, p pace) ([]float64, error) {
	return b.latencyAfter(ctx, run, p, nil)
}

// latencyAfter is latency after something that is done to the source when the processes have begun; nil: nothing is.
func (b *benchmark) latencyAfter(
	ctx context.Context, run programs, p pace, before func(context.Context, *testbed.Server) error,
) (ms []float64, err error) {
	err = b.watched(ctx, func(source *testbed.Server, w *watch) error {
		return b.while(ctx, run, func(ctx context.Context, _ []int) error {
			if err := awaitFirst(ctx, source, w); err != nil {
				return err
			}
			if before != nil {
				if err := before(ctx, source); err != nil {
					return err
				}
			}
			committed, err := p.load(ctx, source, nil)
			if err != nil {
				return err
			}
			ms, err = w.since(ctx, committed, p.count(warmUp)+1)
			return err
		})
	})
	return ms, err
}

// latencyFloor has the writers themselves delete the key, as soon as they know of the commit: what is left is what it
// takes to send UNLINK and to hear of it.
func (b *benchmark) latencyFloor(ctx context.Context, p pace) (ms []float64, err error) {
	err = b.watched(ctx, func(source *testbed.Server, w *watch) error {
		committed, err := p.load(ctx, source, b.redis.Client())
		if err != nil {
			return err
		}
		ms, err = w.since(ctx, committed, p.count(warmUp)+1)
		return err
	})
	return ms, err
}

// watched fills Redis and watches it while f runs.
func (b *benchmark) watched(ctx context.Context, f func(*testbed.Server, *watch) error) error {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return err
	}
	if err := b.populate(ctx); err != nil {
		return err
	}
	w, err := newWatch(ctx, "product:", b.workload.rows, b.redis.Client())
	if err != nil {
		return err
	}
	return errors.Join(f(source, w), w.close(ctx))
}

// awaitFirst changes the last row until its key is gone: the contender has begun to delete.
func awaitFirst(ctx context.Context, source *testbed.Server, w *watch) error {
	last := len(w.gone) - 1
	for !w.isGone(last) {
		if time.Since(w.begin) > goneWithin {
			return fmt.Errorf("%w: nothing is deleted after %s", errInvalid, goneWithin)
		}
		if _, err := source.DB().ExecContext(ctx, touch(last)); err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// load makes the transactions and returns when each was known to have committed, by the row's id, which begin at 1.
// With rdb it also deletes their keys.
func (p pace) load(ctx context.Context, source *testbed.Server, rdb *redis.Client) ([]time.Time, error) {
	committed := make([]time.Time, 1+p.transactions())
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range writers {
		g.Go(func() error {
			conn, err := source.DB().Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			for id := int(next.Add(1)); id < len(committed); id = int(next.Add(1)) {
				at := begin.Add(time.Duration(id) * time.Second / time.Duration(p.rate))
				if err := pause(ctx, time.Until(at)); err != nil {
					return err
				}
				if committed[id], err = commit(ctx, conn, id); err != nil {
					return err
				}
				if rdb == nil {
					continue
				}
				if err := rdb.Unlink(ctx, "product:"+strconv.Itoa(id)).Err(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if took := time.Since(begin); took > (warmUp+p.length)*11/10 {
		return nil, fmt.Errorf("%w: the source took %d transactions a second, not %d", errInvalid,
			int(float64(p.transactions())/took.Seconds()), p.rate)
	}
	return committed, nil
}

func commit(ctx context.Context, conn *sql.Conn, id int) (time.Time, error) {
	_, err := conn.ExecContext(ctx, touch(id))
	return time.Now(), err
}

func touch(id int) string {
	return "UPDATE shop.product SET stock = stock + 1, updated_at = NOW(3) WHERE id = " + strconv.Itoa(id)
}

// since returns for the rows from first on how long after their commit their key was gone, in milliseconds, once all
// are.
func (w *watch) since(ctx context.Context, committed []time.Time, first int) ([]float64, error) {
	var ms []float64
	for id := first; id < len(committed); id++ {
		at, err := w.await(ctx, id)
		if err != nil {
			return nil, err
		}
		ms = append(ms, at.Sub(committed[id]).Seconds()*1000)
	}
	return ms, nil
}
