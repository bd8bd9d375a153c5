package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

const (
	// redoChanges is how many row changes are done again. At the default rate it would take more than an hour, so there
	// slowChanges are.
	redoChanges = 10_000_000
	slowChanges = 200_000
	// liveChanges is how many row changes freshet is behind when it catches up while others are done again.
	liveChanges = 3_000_000
	// bystanders is how many keys there are in Redis that no change is about. Half of them are read.
	bystanders = 100_000
	// defaultRate is that of scope_rate, in keys a second.
	defaultRate = 2000
)

// setBack is a Redis that comes back with a snapshot, after which so many row changes were made.
type setBack struct {
	source  *testbed.Server
	rows    int
	changes int // at least, of the rows after those that are spared
	spared  int // rows, from 1 on, that are not changed: live transactions are about these
	others  cached
}

// setBacks returns one for a redo at any rate, and one for the default rate, which lasts longer than the live
// transactions.
func (b *benchmark) setBacks() (s, slow setBack) {
	p := b.livePace()
	s = setBack{
		rows: b.workload.rows, changes: max(int(redoChanges*b.scale), slowChanges/4), spared: p.transactions() + 1,
		others: cached{all: bystanders},
	}
	slow = s
	lasts := warmUp + p.length + 3*time.Second
	slow.changes = max(int(slowChanges*min(1, b.scale)), int(defaultRate*lasts.Seconds()))
	return s, slow
}

// redoSection measures what it takes to do changes again, and what readers and live changes notice of it.
func (b *benchmark) redoSection() *section {
	const quiet, first, still = "quiet", "catching up with them", "deletes, no redo"
	const alone = "catching up with others, no redo"
	s, slow := b.setBacks()
	return &section{
		name: "redo",
		title: fmt.Sprintf("doing %s row changes again for a Redis with older data, or %s at the default rate, and %d GETs "+
			"a second meanwhile", number(float64(s.changes)), number(float64(slow.changes)), readRate),
		setup: func(ctx context.Context, b *benchmark) error { return b.ownRedis(ctx) },
		contenders: []*contender{
			s.quiet(quiet),
			s.first(first),
			s.again("redo, unlimited", "scope_rate: 1000000000\n", reference{of: quiet}, first),
			slow.again("redo, default rate", "", reference{quiet, "≤ 1.5"}, ""),
			slow.live(still, false, ""),
			slow.live("deletes during a redo", true, still),
			slow.behind(alone, false, "", int(liveChanges*b.scale)),
			slow.behind("catching up with others during a redo", true, alone, int(liveChanges*b.scale)),
		},
		rounds: 1, noWarmUp: true,
	}
}

// quiet reads while nothing else goes on, with what Redis holds for the others.
func (s setBack) quiet(name string) *contender {
	q := s.others.quiet(name)
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		if err := s.fill(ctx, b); err != nil {
			return nil, err
		}
		return q.run(ctx, b)
	}}
}

// first has freshet read the same changes for the first time: the keys are deleted, and nothing is held back.
func (s setBack) first(name string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		if err := s.open(ctx, b); err != nil {
			return nil, err
		}
		var gtids string
		if err := s.source.DB().QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&gtids); err != nil {
			return nil, err
		}
		made, err := s.change(ctx)
		if err != nil {
			return nil, err
		}
		c, err := b.catchUp(ctx, setting{source: s.source, start: "gtid:" + gtids}, made)
		if err != nil {
			return nil, err
		}
		return []measure{{name: "s", value: c.seconds}, {name: "changes/s", value: c.rate()}}, s.check(ctx, b)
	}}
}

// again sends Redis back, and measures how long the answer takes.
func (s setBack) again(name, rate string, quiet reference, first string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) (m []measure, err error) {
		if err := s.open(ctx, b); err != nil {
			return nil, err
		}
		err = b.whileForgetting(ctx, setting{source: s.source, more: rate}, func(ctx context.Context, f *forgetting) error {
			made, err := s.outdate(ctx, b, f)
			if err != nil {
				return err
			}
			before, err := usageOf(f.pid)
			if err != nil {
				return err
			}
			if err := b.restartRedis(ctx); err != nil {
				return err
			}
			var took time.Duration
			peak := before
			ms, err := s.others.during(ctx, b, func(ctx context.Context) error {
				begin := time.Now()
				if err := f.doubted(ctx); err != nil {
					return err
				}
				peak, err = f.answered(ctx, older)
				took = time.Since(begin)
				return err
			})
			m = append([]measure{
				{name: "s", value: took.Seconds()},
				{name: "changes/s", value: float64(made) / took.Seconds(), of: first},
				{name: "MB more", value: peak.resident - before.resident},
			}, ms.measures(quiet.of, quiet.goal)...)
			return err
		})
		if err != nil {
			return nil, err
		}
		return m, s.check(ctx, b)
	}}
}

// alongside measures something else while changes are done again at the same time, or without that.
func (s setBack) alongside(name string, again bool,
	measures func(ctx context.Context, b *benchmark, f *forgetting) ([]measure, error),
) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) (m []measure, err error) {
		if err := s.open(ctx, b); err != nil {
			return nil, err
		}
		err = b.whileForgetting(ctx, setting{source: s.source}, func(ctx context.Context, f *forgetting) error {
			if _, err := s.outdate(ctx, b, f); err != nil {
				return err
			}
			if again {
				if err := errors.Join(b.restartRedis(ctx), f.doubted(ctx)); err != nil {
					return err
				}
			}
			var err error
			m, err = measures(ctx, b, f)
			return err
		})
		return m, err
	}}
}

// live measures from commit to key gone, of other rows than those of the redo.
func (s setBack) live(name string, again bool, still string) *contender {
	return s.alongside(name, again, func(ctx context.Context, b *benchmark, f *forgetting) ([]measure, error) {
		ms, err := s.latency(ctx, b, f, again)
		return percentiles(ms, reference{of: still}), err
	})
}

// behind measures how fast the live stream catches up with so many changes. freshet is stopped while they are made.
func (s setBack) behind(name string, again bool, alone string, changes int) *contender {
	return s.alongside(name, again, func(ctx context.Context, b *benchmark, f *forgetting) ([]measure, error) {
		made, took, err := s.catchUp(ctx, b, f, changes)
		if err != nil {
			return nil, err
		}
		if all, err := f.client.ListDoubts(ctx); err != nil || again != slices.ContainsFunc(all, older) {
			return nil, errors.Join(err, fmt.Errorf("%w: the redo was over before the live stream had caught up", errInvalid))
		}
		return []measure{
			{name: "s", value: took.Seconds()},
			{name: "changes/s", value: float64(made) / took.Seconds(), of: alone},
		}, nil
	})
}

// catchUp has freshet be so many changes behind, and returns how long it takes it to finish them.
func (s setBack) catchUp(ctx context.Context, b *benchmark, f *forgetting, changes int,
) (made int, took time.Duration, err error) {
	const last = 1
	if err := b.redis.Client().Set(ctx, "product:"+strconv.Itoa(last), "cached", 0).Err(); err != nil {
		return 0, 0, err
	}
	if err := syscall.Kill(f.pid, syscall.SIGSTOP); err != nil {
		return 0, 0, err
	}
	s.changes = changes
	if made, err = s.change(ctx); err == nil {
		_, err = s.source.DB().ExecContext(ctx, touch(last))
	}
	begin := time.Now()
	if err := errors.Join(err, syscall.Kill(f.pid, syscall.SIGCONT)); err != nil {
		return 0, 0, err
	}
	err = until(ctx, 5*goneWithin, "the live stream has caught up", func() (bool, error) {
		n, err := b.redis.Client().Exists(ctx, "product:"+strconv.Itoa(last)).Result()
		return n == 0, err
	})
	return made, time.Since(begin), err
}

// latency returns the latencies in milliseconds of what was committed after the warm-up, and before the redo was over
// if there is one.
func (s setBack) latency(ctx context.Context, b *benchmark, f *forgetting, again bool) (ms []float64, err error) {
	p, rdb := b.livePace(), b.redis.Client()
	key := func(id int) []any { return []any{"set", "product:" + strconv.Itoa(id), "cached"} }
	if err := pipeline(ctx, rdb, key, 1, s.spared); err != nil {
		return nil, err
	}
	w, err := newWatch(ctx, "product:", s.spared, rdb)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	from, to := time.Now().Add(warmUp), time.Time{}
	var committed []time.Time
	g, working := errgroup.WithContext(ctx)
	loaded, done := context.WithCancel(working)
	g.Go(func() (err error) {
		defer done()
		committed, err = p.load(working, s.source, nil)
		return err
	})
	g.Go(func() (err error) {
		if again {
			_, err = f.answered(loaded, older)
		} else {
			<-loaded.Done()
		}
		to = time.Now()
		if loaded.Err() != nil {
			return nil
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for id := 1; id < s.spared; id++ {
		if committed[id].Before(from) || committed[id].After(to) {
			continue
		}
		at, err := w.await(ctx, id)
		if err != nil {
			return nil, err
		}
		ms = append(ms, at.Sub(committed[id]).Seconds()*1000)
	}
	return ms, nil
}

// open fills Redis, and starts the source if it is not there yet.
func (s *setBack) open(ctx context.Context, b *benchmark) (err error) {
	s.source, err = b.ownSource(ctx, "rows to change, on MySQL", workload{rows: s.rows}.load)
	return errors.Join(err, s.fill(ctx, b))
}

// fill has Redis hold the keys of all rows, and the others.
func (s setBack) fill(ctx context.Context, b *benchmark) error {
	return errors.Join(fillRedis(ctx, b.redis, s.rows+1), s.others.make(ctx, b.redis.Client(), s.others.all))
}

// outdate has Redis save a snapshot, and then makes the changes that it lacks. It returns how many once freshet has
// finished them.
func (s setBack) outdate(ctx context.Context, b *benchmark, f *forgetting) (made int, err error) {
	rdb := b.redis.Client()
	if err := f.begun(ctx, b, s.others); err != nil {
		return 0, err
	}
	if err := until(ctx, goneWithin, "Redis has a stamp", func() (bool, error) {
		stamps, err := rdb.Keys(ctx, "freshet:stamp:*").Result()
		return len(stamps) > 0, err
	}); err != nil {
		return 0, err
	}
	if err := rdb.Save(ctx).Err(); err != nil {
		return 0, err
	}
	if made, err = s.change(ctx); err != nil {
		return 0, err
	}
	return made, s.awaitGone(ctx, b)
}

// change changes all rows that are not spared as often as it takes, and returns how many changes that made.
func (s setBack) change(ctx context.Context) (made int, err error) {
	for made < s.changes {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(longLoaders)
		for lo := s.spared + 1; lo <= s.rows && made < s.changes; lo += longUpdate {
			hi := min(lo+longUpdate-1, s.rows, lo+s.changes-made-1)
			made += hi - lo + 1
			g.Go(func() error { return update(ctx, s.source.DB(), lo, hi) })
		}
		if err := g.Wait(); err != nil {
			return made, err
		}
	}
	return made, nil
}

// awaitGone changes the last of the spared rows, and waits until its key is gone: then those of all changes before are.
func (s setBack) awaitGone(ctx context.Context, b *benchmark) error {
	if _, err := s.source.DB().ExecContext(ctx, touch(s.spared)); err != nil {
		return err
	}
	err := until(ctx, 5*goneWithin, "the changes are finished", func() (bool, error) {
		n, err := b.redis.Client().Exists(ctx, "product:"+strconv.Itoa(s.spared)).Result()
		return n == 0, err
	})
	return errors.Join(err, pause(ctx, settle))
}

// check is nil if the keys of changed rows are gone, and no others but those of the rows that were touched.
func (s setBack) check(ctx context.Context, b *benchmark) error {
	changed := cached{mapped: s.changed()}
	left := int64(0)
	for from := 0; from < changed.mapped; from += block {
		var keys []string
		for i := from; i < min(from+block, changed.mapped); i++ {
			keys = append(keys, "product:"+strconv.Itoa(s.spared+1+i))
		}
		n, err := b.redis.Client().Exists(ctx, keys...).Result()
		if err != nil {
			return err
		}
		left += n
	}
	size, err := b.redis.Client().DBSize(ctx).Result()
	if err != nil {
		return err
	}
	const touched, stamp = 2, 1 // the first row and the last spared one, by some contenders
	all := int64(s.rows + 1 + s.others.all - changed.mapped)
	if left > 0 || size < all-touched || size > all+stamp {
		return fmt.Errorf("%w: %d keys of changed rows are left, and of about %d others %d", errInvalid, left, all,
			size-left)
	}
	return nil
}

// changed is how many rows are changed.
func (s setBack) changed() int { return min(s.changes, s.rows-s.spared) }

// older reports whether a doubt is about a Redis with older data.
func older(d admin.Doubt) bool { return d.Cause == "redis_changed" }

// doubted waits until freshet has noticed that Redis has older data.
func (f *forgetting) doubted(ctx context.Context) error {
	return until(ctx, goneWithin, "freshet doubts what Redis holds", func() (bool, error) {
		all, err := f.client.ListDoubts(ctx)
		return slices.ContainsFunc(all, older), err
	})
}

// until waits until something is so.
func until(ctx context.Context, within time.Duration, what string, so func() (bool, error)) error {
	for begin := time.Now(); ; {
		if is, err := so(); is || err != nil {
			return err
		}
		if time.Since(begin) > within {
			return fmt.Errorf("%w: not within %s: %s", errInvalid, within, what)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// restartRedis kills Redis, and starts it from its snapshot.
func (b *benchmark) restartRedis(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(b.redis.Dir, "dump.rdb")); err != nil {
		return err
	}
	return errors.Join(b.redis.Kill(), b.redis.Start(ctx))
}
