package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// clusterSection is catching up with a cluster for Redis.
func (b *benchmark) clusterSection() *section {
	var c *cluster
	changes := b.workload.changes()
	const bareByNode = "bare probe, by node"
	l := backlog{changes: changes, source: b.mysql}
	holding := func(name string, run func(context.Context, *testbed.Server) ([]measure, error)) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			source, err := l.source(ctx)
			if err != nil {
				return nil, err
			}
			if err := c.fill(ctx, b.workload.rows); err != nil {
				return nil, err
			}
			m, err := run(ctx, source)
			if err != nil {
				return nil, err
			}
			return m, c.allGone(ctx)
		}}
	}
	freshet := func(name, secondDelete, goal string) *contender {
		return holding(name, func(ctx context.Context, source *testbed.Server) ([]measure, error) {
			caught, err := b.catchUp(ctx, setting{
				source: source, start: "earliest", redis: c.setting(), secondDelete: secondDelete,
			}, changes)
			if err != nil {
				return nil, err
			}
			m := l.measures(caught.rate(), caught.cpu, bareByNode, goal)
			return m, nil
		})
	}
	return &section{
		name: "catch-up-cluster", title: fmt.Sprintf("catching up with MySQL, a cluster of %d masters holding the keys", clusterMasters),
		setup: func(ctx context.Context, b *benchmark) (err error) {
			c, err = b.cluster(ctx)
			return err
		},
		contenders: []*contender{
			holding(bareByNode, func(ctx context.Context, source *testbed.Server) ([]measure, error) {
				before := ownCPU()
				took, err := c.bare(ctx, source, changes)
				if err != nil {
					return nil, err
				}
				return l.measures(float64(changes)/took.Seconds(), ownCPU()-before, "", ""), nil
			}),
			freshet("freshet, second_delete none", "none", "≥ 0.8"),
			freshet("freshet, second_delete 200ms", "200ms", ""),
		},
	}
}

// clusterStoppedSection asks what the others notice of a master that hangs, and whether anything is lost.
func (b *benchmark) clusterStoppedSection() *section {
	s := &clusterStopped{pace: pace{
		rate: liveRate / 2, length: max(5*time.Second, time.Duration(60*float64(time.Second)*min(1, b.scale))),
	}}
	const quiet = "all masters answer"
	return &section{
		name: "cluster-stopped",
		title: fmt.Sprintf("commit to key gone on two masters, at %d transactions of one row a second, while the third is stopped for %s",
			s.pace.rate, s.pace.length+warmUp),
		setup: func(ctx context.Context, b *benchmark) (err error) {
			s.cluster, err = b.cluster(ctx)
			return err
		},
		contenders: []*contender{
			{name: quiet, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				return s.run(ctx, b, false, reference{})
			}},
			{name: "one is stopped", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				return s.run(ctx, b, true, reference{quiet, "≤ 1.2"})
			}},
			{name: "one is stopped, and more waits than fits", run: s.overflow},
		},
		noWarmUp: true,
	}
}

// clusterStopped has freshet follow a live load on a cluster, of which one master may be stopped meanwhile.
type clusterStopped struct {
	cluster *cluster
	pace    pace
}

// stopped is which of the masters is.
const stopped = clusterMasters - 1

// begin fills the cluster, and runs freshet while f runs, with its memory.
func (s *clusterStopped) begin(
	ctx context.Context, b *benchmark, env []string, f func(ctx context.Context, source *testbed.Server, w *watch) error,
) (peak float64, err error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.cluster.fill(ctx, b.workload.rows); err != nil {
		return 0, err
	}
	w, err := newWatch(ctx, "product:", b.workload.rows, s.cluster.clients()...)
	if err != nil {
		return 0, err
	}
	start := func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
		cmd, err := b.command(ctx, setting{source: source, redis: s.cluster.setting(), secondDelete: "2s"})
		if err == nil {
			cmd.Env = append(os.Environ(), env...)
		}
		return []*exec.Cmd{cmd}, err
	}
	err = b.while(ctx, start, func(ctx context.Context, pids []int) error {
		if err := awaitFirst(ctx, source, w); err != nil {
			return err
		}
		watching, enough := context.WithCancel(ctx)
		var watcher errgroup.Group
		watcher.Go(func() error { peak = peakMemory(watching, pids[0]); return nil })
		err := f(ctx, source, w)
		enough()
		return errors.Join(err, watcher.Wait())
	})
	return peak, errors.Join(err, w.close(ctx))
}

// run returns how long the keys of the other masters take, and the most memory of freshet. In the end no key may be
// left that a transaction has changed.
func (s *clusterStopped) run(ctx context.Context, b *benchmark, stop bool, of reference) ([]measure, error) {
	var ms []float64
	first := s.pace.count(warmUp) + 1
	peak, err := s.begin(ctx, b, nil, func(ctx context.Context, source *testbed.Server, w *watch) error {
		hung := s.cluster.masters[stopped]
		if stop {
			if err := hung.Pause(); err != nil {
				return err
			}
		}
		committed, err := s.pace.load(ctx, source, nil)
		for id := first; err == nil && id < len(committed); id++ {
			if s.cluster.of(fmt.Sprint("product:", id)) == stopped {
				continue
			}
			var at time.Time
			if at, err = w.await(ctx, id); err == nil {
				ms = append(ms, at.Sub(committed[id]).Seconds()*1000)
			}
		}
		if stop {
			err = errors.Join(err, hung.Resume())
		}
		for id := 1; err == nil && id < len(committed); id++ {
			_, err = w.await(ctx, id)
		}
		return err
	})
	m := percentiles(ms, of)
	if len(m) > 0 {
		m[0].goal = "" // a median that is a fraction of a millisecond says more of the machine
	}
	return append(m, measure{name: "resident MB", value: peak, goal: "≤ 100"}), err
}

// overflow changes more rows than may wait while a master is stopped. Reading pauses then, for all masters.
func (s *clusterStopped) overflow(ctx context.Context, b *benchmark) ([]measure, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	fits := b.workload.rows / 10
	env := []string{
		"FRESHET_ADMIN_LISTEN=" + listen, fmt.Sprintf("FRESHET_INVALIDATOR_MAX_PENDING=%d", fits),
		fmt.Sprintf("FRESHET_INVALIDATOR_MAX_IN_FLIGHT=%d", fits),
	}
	peak, err := s.begin(ctx, b, env, func(ctx context.Context, source *testbed.Server, w *watch) error {
		hung := s.cluster.masters[stopped]
		if err := hung.Pause(); err != nil {
			return err
		}
		err := updateAll(ctx, source.DB(), b.workload.rows)
		if err == nil {
			err = awaitPaused(ctx, listen)
		}
		if err == nil {
			err = pause(ctx, s.pace.length)
		}
		if err = errors.Join(err, hung.Resume()); err != nil {
			return err
		}
		for id := 1; err == nil && id <= b.workload.rows; id++ {
			_, err = w.await(ctx, id)
		}
		if err == nil {
			err = awaitFinished(ctx, listen)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []measure{{name: "resident MB", value: peak, goal: "≤ 100"}}, s.cluster.allGone(ctx)
}
