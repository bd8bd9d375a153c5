package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// liveRun is writers that change shop.product as fast as the server takes it, with freshet following.
type liveRun struct {
	bulk, single int // connections that change 1000 rows in a transaction, and one
	length       time.Duration
}

// liveSection measures whether freshet falls behind a server that is written to at its full speed.
//
// How far it is behind is asked by probes: rows of another table that are inserted all the while, each with a key in
// Redis that its commit makes stale. They stand in the binlog among all others.
func (b *benchmark) liveSection() *section {
	length := max(4*time.Second, time.Duration(20*float64(time.Second)*min(1, b.scale)))
	run := func(name string, l liveRun) *contender {
		l.length = length
		return &contender{name: name, run: l.run}
	}
	return &section{
		name:  "live",
		title: fmt.Sprintf("following writers at the server's full speed for %s, second_delete 2s", length),
		contenders: []*contender{
			run("bulk updates", liveRun{bulk: 3}),
			run("bulk updates and single rows", liveRun{bulk: 1, single: 6}),
			run("single rows", liveRun{single: 8}),
		},
		rounds: 3, noWarmUp: true,
	}
}

const liveMapping = productKeys + `  - table: shop.probe
    keys: ["probe:{id}"]
`

// run has freshet follow the writers, and then finish.
func (l liveRun) run(ctx context.Context, b *benchmark) ([]measure, error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := source.DB().ExecContext(ctx,
		"CREATE TABLE IF NOT EXISTS shop.probe (id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT)"); err != nil {
		return nil, err
	}
	if err := b.populate(ctx); err != nil {
		return nil, err
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var m []measure
	start := func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
		cmd, err := b.command(ctx, setting{source: source, secondDelete: "2s", mappings: liveMapping})
		if err == nil {
			cmd.Env = append(os.Environ(), "FRESHET_ADMIN_LISTEN="+listen)
		}
		return []*exec.Cmd{cmd}, err
	}
	err = b.while(ctx, start, func(ctx context.Context, pids []int) (err error) {
		m, err = l.follow(ctx, b, source, listen, pids[0])
		return err
	})
	return m, err
}

// follow writes, probes and samples, until everything is finished.
func (l liveRun) follow(ctx context.Context, b *benchmark, source *testbed.Server, listen string, pid int) ([]measure,
	error,
) {
	p := prober{source: source, rdb: b.redis.Client()}
	if err := p.awaitBegun(ctx); err != nil {
		return nil, err
	}
	var rows atomic.Int64
	var lags []time.Duration
	var pending int64
	var peak float64
	writing, stop := context.WithTimeout(ctx, l.length)
	defer stop()
	watching, enough := context.WithCancel(ctx)
	var watchers errgroup.Group
	watchers.Go(func() error { peak = peakMemory(watching, pid); return nil })
	watchers.Go(func() error { pending = mostPending(watching, listen); return nil })
	g, writers := errgroup.WithContext(writing)
	l.write(writers, g, source, b.workload.rows, &rows)
	g.Go(func() error {
		for writers.Err() == nil {
			lag, err := p.probe(ctx)
			if err != nil {
				return err
			}
			lags = append(lags, lag)
		}
		return nil
	})
	begin := time.Now()
	err := g.Wait()
	took := time.Since(begin)
	var last time.Duration
	if err == nil {
		last, err = p.probe(ctx)
	}
	if err == nil {
		err = awaitFinished(ctx, listen)
	}
	enough()
	if err := errors.Join(err, watchers.Wait()); err != nil {
		return nil, err
	}
	return l.measures(lags, last, float64(rows.Load())/took.Seconds(), pending, peak), nil
}

// measures says how far behind freshet was: all the while, in the middle, and when the writers had just stopped.
func (l liveRun) measures(lags []time.Duration, last time.Duration, rate float64, pending int64,
	peak float64,
) []measure {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	n := len(lags)
	middle := median(milliseconds(lags[n/3 : n-n/3]))
	late := median(milliseconds(lags[n-(n+3)/4:]))
	slices.Sort(lags)
	return []measure{
		{name: "rows/s written", value: rate},
		{name: "lag p50 ms", value: ms(lags[n/2])},
		{name: "lag p99 ms", value: ms(lags[n*99/100])},
		{name: "lag in the middle ms", value: middle},
		{name: "lag in the last quarter ms", value: late},
		{name: "lag at the end ms", value: ms(last), goal: "≤ 1000"},
		{name: "pending keys, most", value: float64(pending)},
		{name: "resident MB", value: peak},
	}
}

func milliseconds(all []time.Duration) []float64 {
	var ms []float64
	for _, d := range all {
		ms = append(ms, d.Seconds()*1000)
	}
	return ms
}

// write starts the writers. Each has its own part of the rows, so that none waits for another's locks.
func (l liveRun) write(ctx context.Context, g *errgroup.Group, source *testbed.Server, rows int,
	written *atomic.Int64,
) {
	all := l.bulk + l.single
	for i := range all {
		lo, n, many := 1+i*(rows/all), rows/all, 1
		if i < l.bulk {
			many = min(1000, n)
		}
		g.Go(func() error {
			for ctx.Err() == nil {
				from := lo + rand.IntN(n-many+1)
				if err := update(context.WithoutCancel(ctx), source.DB(), from, from+many-1); err != nil {
					return err
				}
				written.Add(int64(many))
			}
			return nil
		})
	}
}

// prober makes a key, and then the row whose commit makes it stale.
type prober struct {
	source *testbed.Server
	rdb    *redis.Client
}

// awaitBegun changes a row until its key is gone: freshet has begun to read.
func (p *prober) awaitBegun(ctx context.Context) error {
	id, key, err := p.insert(ctx, p.source.DB())
	for begin := time.Now(); err == nil; {
		if _, err = p.source.DB().ExecContext(ctx, "UPDATE shop.probe SET n = n + 1 WHERE id = ?", id); err != nil {
			return err
		}
		var left int64
		if left, err = p.rdb.Exists(ctx, key).Result(); err != nil || left == 0 {
			return err
		}
		if time.Since(begin) > goneWithin {
			return fmt.Errorf("%w: nothing is deleted after %s", errInvalid, goneWithin)
		}
		err = pause(ctx, 50*time.Millisecond)
	}
	return err
}

// insert makes a row, and its key.
func (p *prober) insert(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
},
) (id int64, key string, err error) {
	r, err := db.ExecContext(ctx, "INSERT INTO shop.probe (n) VALUES (0)")
	if err != nil {
		return 0, "", err
	}
	if id, err = r.LastInsertId(); err != nil {
		return 0, "", err
	}
	key = "probe:" + strconv.FormatInt(id, 10)
	return id, key, p.rdb.Set(ctx, key, 1, 0).Err()
}

// probe returns how long after its commit a key is deleted.
func (p *prober) probe(ctx context.Context) (time.Duration, error) {
	tx, err := p.source.DB().BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	_, key, err := p.insert(ctx, tx) // the key is there before anybody hears of the row
	if err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	for begin := time.Now(); ; {
		n, err := p.rdb.Exists(ctx, key).Result()
		took := time.Since(begin)
		switch {
		case err != nil:
			return 0, err
		case n == 0:
			return took, nil
		case took > goneWithin:
			return 0, fmt.Errorf("%w: %s is still there %s after its commit", errInvalid, key, took)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// mostPending returns the most keys that waited for their final delete at a time.
func mostPending(ctx context.Context, listen string) int64 {
	most := int64(0)
	for pause(ctx, 100*time.Millisecond) == nil {
		if s, err := statusOf(ctx, listen); err == nil {
			most = max(most, s.Pending)
		}
	}
	return most
}

// awaitFinished waits until no key waits any more.
func awaitFinished(ctx context.Context, listen string) error {
	for begin := time.Now(); ; {
		s, err := statusOf(ctx, listen)
		if err != nil || s.Pending+s.InFlight == 0 {
			return err
		}
		if time.Since(begin) > goneWithin {
			return fmt.Errorf("%w: %d keys are not finished %s after the last write", errInvalid, s.Pending+s.InFlight,
				goneWithin)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
