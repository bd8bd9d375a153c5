package main

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// scalingRebalance is how long keys live on when the members of a group change.
func (b *benchmark) scalingRebalance() *section {
	s := &section{
		name: "scaling-rebalance", title: "how long a key lives on after its commit while members change: 64 partitions, 2 " +
			"invalidators",
		rounds: 2, noWarmUp: true,
	}
	const soon, session = 4 * time.Second, 14 * time.Second
	for _, x := range []struct {
		name   string
		length time.Duration
		event  func(context.Context, *fleet) error
	}{
		{"nothing", soon, func(context.Context, *fleet) error { return nil }},
		{"one joins", soon, func(ctx context.Context, f *fleet) error {
			_, err := f.invalidator(ctx, 0)
			return err
		}},
		{"six join at once", soon, func(ctx context.Context, f *fleet) error {
			for range 6 {
				if _, err := f.invalidator(ctx, 0); err != nil {
					return err
				}
			}
			return nil
		}},
		{"one leaves (SIGTERM)", soon, func(_ context.Context, f *fleet) error { return f.end(syscall.SIGTERM) }},
		{"one is killed (-9)", session, func(_ context.Context, f *fleet) error { return f.end(syscall.SIGKILL) }},
		{"one is killed and started again", session, func(ctx context.Context, f *fleet) error {
			if err := f.end(syscall.SIGKILL); err != nil {
				return err
			}
			_, err := f.invalidator(ctx, 0)
			return err
		}},
	} {
		s.contenders = append(s.contenders,
			fleetContender(x.name, shape{64, 1, 2, 1}, func(ctx context.Context, f *fleet) ([]measure, error) {
				return rebalance(ctx, f, x.length, x.event)
			}))
	}
	return s
}

// rebalance has something happen to a fleet at work.
func rebalance(ctx context.Context, f *fleet, length time.Duration,
	event func(context.Context, *fleet) error,
) (_ []measure, err error) {
	db, err := f.b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	w, err := newWatch(ctx, "product:", f.b.workload.rows, f.redis[0].Client())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	r, err := f.reader(ctx, "main", db, "now", "2s")
	if err != nil {
		return nil, err
	}
	if err := f.streaming(ctx, r); err != nil {
		return nil, err
	}
	p := pace{rate: 500, length: length}
	var committed []time.Time
	var g errgroup.Group
	g.Go(func() (err error) {
		committed, err = p.load(ctx, db, nil)
		return err
	})
	g.Go(func() error {
		if err := pause(ctx, warmUp+time.Second); err != nil {
			return err
		}
		return event(ctx, f)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	ms, err := w.since(ctx, committed, p.count(warmUp)+1)
	if err != nil {
		return nil, err
	}
	if err := f.finished(ctx, p.transactions()); err != nil {
		return nil, err
	}
	slices.Sort(ms)
	soon, _ := slices.BinarySearch(ms, 100)
	return []measure{
		{name: "p50 ms", value: ms[len(ms)/2]},
		{name: "longest s", value: ms[len(ms)-1] / 1000},
		{name: "% of keys later than 100 ms", value: 100 * float64(len(ms)-soon) / float64(len(ms))},
	}, nil
}
