package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

// forgetting is a running freshet that forgets keys because it is asked to, or doubts what Redis holds.
type forgetting struct {
	source *testbed.Server
	client *admin.Client
	pid    int
}

// whileForgetting runs freshet for as long as f takes.
func (b *benchmark) whileForgetting(ctx context.Context, s setting, f func(context.Context, *forgetting) error) error {
	const token = "of the benchmark"
	if s.source == nil {
		source, err := b.liveMySQL(ctx)
		if err != nil {
			return err
		}
		s.source = source
	}
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	run := func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
		all, err := together(s)(ctx, b)
		for _, cmd := range all {
			cmd.Env = append(os.Environ(), "FRESHET_ADMIN_LISTEN="+listen, "FRESHET_ADMIN_TOKEN="+token)
		}
		return all, err
	}
	return b.while(ctx, run, func(ctx context.Context, pids []int) error {
		return f(ctx, &forgetting{source: s.source, client: admin.NewClient("http://"+listen, token, nil), pid: pids[0]})
	})
}

// begun makes the keys of rows, and returns once freshet deletes and what belongs to its start is over.
func (f *forgetting) begun(ctx context.Context, b *benchmark, c cached) error {
	rdb := b.redis.Client()
	if err := c.make(ctx, rdb, c.mapped); err != nil {
		return err
	}
	for begin := time.Now(); ; {
		if _, err := f.source.DB().ExecContext(ctx, touch(1)); err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		n, err := rdb.Exists(ctx, "product:1").Result()
		if err != nil {
			return err
		}
		if n == 0 {
			return pause(ctx, settle)
		}
		if time.Since(begin) > goneWithin {
			return fmt.Errorf("%w: nothing is deleted after %s", errInvalid, goneWithin)
		}
	}
}

// forget asks for keys to be forgotten, and returns once they are, with the most memory that was seen meanwhile.
func (f *forgetting) forget(ctx context.Context, s admin.Scope) (peak usage, err error) {
	asked, err := f.client.Invalidate(ctx, s)
	if err != nil {
		return peak, err
	}
	return f.answered(ctx, func(d admin.Doubt) bool { return d.ID == asked.ID })
}

// answered returns once there is no doubt any more that is one of those, with the most memory that was seen meanwhile.
func (f *forgetting) answered(ctx context.Context, those func(admin.Doubt) bool) (peak usage, err error) {
	for {
		now, err := usageOf(f.pid)
		if err != nil {
			return peak, err
		}
		if now.resident > peak.resident {
			peak = now
		}
		all, err := f.client.ListDoubts(ctx)
		if err != nil {
			return peak, err
		}
		i := slices.IndexFunc(all, those)
		switch {
		case i < 0:
			return peak, nil
		case all[i].Stuck:
			return peak, fmt.Errorf("%w: %s", errInvalid, all[i].Answer)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return peak, err
		}
	}
}

// live measures from commit to key gone, with or without a scope at the same time. The scope is about product:{id},
// what is measured are other keys of the same rows.
func (c cached) live(name string, scoped bool, still string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		p := b.livePace()
		ms, err := c.latency(ctx, b, p, scoped)
		return percentiles(ms, reference{of: still}), err
	}}
}

// livePace is at which pace transactions commit while keys are forgotten.
func (b *benchmark) livePace() pace {
	return pace{rate: 200, length: max(4*time.Second, time.Duration(30*float64(time.Second)*min(1, b.scale)))}
}

// latency returns the latencies in milliseconds of what was committed while the scope ran, or after the warm-up.
func (c cached) latency(ctx context.Context, b *benchmark, p pace, scoped bool) (ms []float64, err error) {
	const prefix = "live:"
	rdb, rows := b.redis.Client(), p.transactions()+1
	live := func(id int) []any { return []any{"set", prefix + strconv.Itoa(id), "cached"} }
	gone := func(id int) []any { return []any{"unlink", prefix + strconv.Itoa(id)} }
	if err := pipeline(ctx, rdb, live, 1, rows+1); err != nil {
		return nil, err
	}
	w, err := newWatch(ctx, prefix, rows, rdb)
	if err != nil {
		return nil, err
	}
	s := setting{mappings: productKeys + "  - table: shop.product\n    keys: [\"" + prefix + "{id}\"]\n"}
	err = b.whileForgetting(ctx, s, func(ctx context.Context, f *forgetting) error {
		if err := f.begun(ctx, b, c); err != nil {
			return err
		}
		var committed []time.Time
		from, to, err := f.meanwhile(ctx, scoped, func(ctx context.Context) (err error) {
			committed, err = p.load(ctx, f.source, nil)
			return err
		})
		if err != nil {
			return err
		}
		for id := 1; id < len(committed); id++ {
			if committed[id].Before(from) || committed[id].After(to) {
				continue
			}
			at, err := w.await(ctx, id)
			if err != nil {
				return err
			}
			ms = append(ms, at.Sub(committed[id]).Seconds()*1000)
		}
		return nil
	})
	return ms, errors.Join(err, w.close(ctx), pipeline(context.WithoutCancel(ctx), rdb, gone, 1, rows+1))
}

// meanwhile has keys forgotten, if they are to be, from the end of the load's warm-up on. It returns when that began
// and ended, at the latest with the load.
func (f *forgetting) meanwhile(ctx context.Context, scoped bool, load func(context.Context) error) (
	from, to time.Time, err error,
) {
	g, ctx := errgroup.WithContext(ctx)
	scope, over := context.WithCancel(ctx)
	defer over()
	from = time.Now().Add(warmUp)
	g.Go(func() error {
		defer over()
		return load(ctx)
	})
	g.Go(func() error {
		var err error
		if pause(scope, warmUp) == nil && scoped {
			_, err = f.forget(scope, admin.Scope{Templates: []string{"product:{id}"}})
		} else {
			<-scope.Done()
		}
		to = time.Now()
		if scope.Err() != nil { // the load is over
			return nil
		}
		return err
	})
	err = g.Wait()
	return from, to, err
}
