package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// bigTransaction is a transaction of very many row changes, made while others go on.
type bigTransaction struct {
	pace
	changes int
	// below it all ids are the others'.
	below int
}

const (
	bigChanges = 5_000_000
	// bigBefore is how long the others go on before the big transaction commits, counted and not.
	bigBefore = warmUp + 2*time.Second
)

// latencyBigSection measures what a transaction of millions of rows does to all others that commit while it is read:
// they come after it in the binlog. Its keys are deleted as they are read.
func (b *benchmark) latencyBigSection() *section {
	t := bigTransaction{changes: int(bigChanges * min(1, b.scale))}
	t.rate, t.length = liveRate, max(4*time.Second, time.Duration(20*float64(time.Second)*min(1, b.scale)))
	t.below = t.transactions() + 1
	const bare = "bare reader"
	behind := func(name string, run programs, of string) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			return b.latencyDuring(ctx, run, t, of)
		}}
	}
	return &section{
		name:  "latency-big",
		title: fmt.Sprintf("commit to key gone, at %d transactions a second, after one of %d row changes", t.rate, t.changes),
		contenders: []*contender{
			behind(bare, live, ""),
			behind("embedded, 2s", together(setting{secondDelete: "2s"}), bare),
			behind("Kafka, 2s, one process", together(setting{log: throughKafka, secondDelete: "2s"}), bare),
		},
		rounds: 1, noWarmUp: true,
	}
}

// latencyDuring has processes follow the load and the big transaction.
func (b *benchmark) latencyDuring(ctx context.Context, run programs, t bigTransaction, of string) (m []measure,
	err error,
) {
	err = b.watched(ctx, func(source *testbed.Server, w *watch) error {
		return b.while(ctx, run, func(ctx context.Context, _ []int) error {
			if err := awaitFirst(ctx, source, w); err != nil {
				return err
			}
			commitBig, err := t.begin(ctx, source, b.workload.rows)
			if err != nil {
				return err
			}
			var committed []time.Time
			var big time.Time
			g, loading := errgroup.WithContext(ctx)
			g.Go(func() (err error) {
				committed, err = t.load(loading, source, nil)
				return err
			})
			g.Go(func() (err error) {
				big, err = commitBig(loading)
				return err
			})
			if err := g.Wait(); err != nil {
				return err
			}
			m, err = t.measures(ctx, w, committed, big, of)
			return err
		})
	})
	return m, err
}

// begin makes the changes, and returns what commits them a while after it is called, and returns when it had. The
// server writes a transaction to the binlog when it commits, and all of it at once.
func (t *bigTransaction) begin(ctx context.Context, source *testbed.Server,
	rows int,
) (func(context.Context) (time.Time, error), error) {
	// The last row is for finding out whether anybody has begun to delete.
	tx, err := source.DB().BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	for left := t.changes; left > 0; {
		last := min(rows-1, t.below+left-1)
		q := fmt.Sprintf("UPDATE shop.product SET stock = stock + 1, updated_at = NOW(3) WHERE id BETWEEN %d AND %d", t.below,
			last)
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return nil, err
		}
		left -= last - t.below + 1
	}
	return func(ctx context.Context) (time.Time, error) {
		if err := pause(ctx, bigBefore); err != nil {
			return time.Time{}, err
		}
		err := tx.Commit()
		return time.Now(), err
	}, nil
}

// measures are of those that committed after the big transaction, until it had been read: until the delay is over.
func (t *bigTransaction) measures(ctx context.Context, w *watch, committed []time.Time, big time.Time,
	of string,
) ([]measure, error) {
	all, err := w.since(ctx, committed, 1)
	if err != nil {
		return nil, err
	}
	var order []int // by commit, those after it
	for id := 1; id < len(committed); id++ {
		if committed[id].After(big) {
			order = append(order, id)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return committed[a].Compare(committed[b]) })
	var ms []float64
	for _, id := range order {
		if ms = append(ms, all[id-1]); all[id-1] < normal {
			break
		}
	}
	if len(ms) == 0 || len(ms) == len(order) {
		return nil, fmt.Errorf("%w: of %d transactions behind the big one %d waited for it", errInvalid, len(order), len(ms))
	}
	wait := committed[order[len(ms)-1]].Sub(big)
	return append(percentiles(ms, reference{of: of}),
		measure{name: "s until all is as before", value: wait.Seconds(), of: of}), nil
}

// normal is a latency, in milliseconds, that says that nothing is waited for any more.
const normal = 50
