package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// guarded is one kind of write, with the guard and without: the same keys and values, by the same client.
type guarded struct {
	item  func(id int) write.Item
	plain func(id int) []any
	// fill makes what must be there before, with the id as member. Nil: nothing.
	fill func(id int) []any
}

func rebuildGuard(document string) *guarded {
	e := &event.Effect{As: event.FormJSON}
	fields := event.Fields(event.AppendField(nil, document))
	return &guarded{
		item: func(id int) write.Item {
			return write.Item{Key: fmt.Sprintf("guarded:%d", id), Action: event.ActionRebuild, Effect: e, Fields: fields}
		},
		plain: func(id int) []any { return []any{"set", fmt.Sprintf("plain:%d", id), document} },
	}
}

func fieldGuard(value string) *guarded {
	e := &event.Effect{}
	return &guarded{
		item: func(id int) write.Item {
			field := event.AppendField(event.AppendField(nil, fmt.Sprintf("f%d", id)), value)
			return write.Item{
				Key: fmt.Sprintf("guardedhash:%d", id/perGroup), Action: event.ActionHash, Effect: e,
				Fields: field,
			}
		},
		plain: func(id int) []any {
			return []any{"hset", fmt.Sprintf("plainhash:%d", id/perGroup), fmt.Sprintf("f%d", id), value}
		},
	}
}

func memberGuard() *guarded {
	e := &event.Effect{}
	return &guarded{
		item: func(id int) write.Item {
			return write.Item{
				Key: fmt.Sprintf("guardedset:%d", id/perGroup), Action: event.ActionSet, Effect: e,
				Fields: event.AppendField(nil, fmt.Sprint(id)),
			}
		},
		plain: func(id int) []any { return []any{"sadd", fmt.Sprintf("plainset:%d", id/perGroup), fmt.Sprint(id)} },
		fill:  func(id int) []any { return []any{"sadd", fmt.Sprintf("guardedset:%d", id/perGroup), "first"} },
	}
}

// withGuard writes rows keys under the guard and returns how many there were in a second. What it finds is what there
// is as a rule: the same keys, with an older version.
func (g *guarded) withGuard(ctx context.Context, b *benchmark, rows int) (float64, error) {
	rdb, err := b.guardClient(ctx)
	if err != nil {
		return 0, err
	}
	defer rdb.Close()
	for _, s := range write.Scripts() {
		if err := rdb.ScriptLoad(ctx, s.Source).Err(); err != nil {
			return 0, err
		}
	}
	guardedly := func(pos uint64) func(from, to int) error {
		return func(from, to int) error {
			return g.writeGuarded(ctx, rdb, event.Version{Epoch: 1, File: 1, Pos: pos}, from, to)
		}
	}
	return g.last(rows, guardedly(1), plainly(ctx, rdb, g.fill), guardedly(2))
}

// withoutGuard writes the same plainly, to keys that are there.
func (g *guarded) withoutGuard(ctx context.Context, b *benchmark, rows int) (float64, error) {
	rdb, err := b.guardClient(ctx)
	if err != nil {
		return 0, err
	}
	defer rdb.Close()
	return g.last(rows, plainly(ctx, rdb, g.plain), plainly(ctx, rdb, g.plain))
}

// guardClient returns a client of an empty Redis.
func (b *benchmark) guardClient(ctx context.Context) (*redis.Client, error) {
	if err := b.fill(ctx, true); err != nil {
		return nil, err
	}
	return b.redis.NewClient(&redis.Options{}), nil
}

func plainly(ctx context.Context, rdb *redis.Client, command func(id int) []any) func(from, to int) error {
	return func(from, to int) error { return pipeline(ctx, rdb, command, from, to) }
}

// last takes the steps and returns the rate of the last one.
func (g *guarded) last(rows int, steps ...func(from, to int) error) (rate float64, err error) {
	for _, step := range steps {
		if rate, err = g.timed(rows, step); err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// pipeline sends a command for each of some ids.
func pipeline(ctx context.Context, rdb *redis.Client, command func(id int) []any, from, to int) error {
	if command == nil {
		return nil
	}
	p := rdb.Pipeline()
	for id := from; id < to; id++ {
		p.Do(ctx, command(id)...)
	}
	_, err := p.Exec(ctx)
	return err
}

// timed has rows written by several goroutines, so many in a pipeline, and returns the rate.
func (g *guarded) timed(rows int, do func(from, to int) error) (float64, error) {
	var all errgroup.Group
	share := rows / bareClients
	start := time.Now()
	for i := range bareClients {
		all.Go(func() error {
			for from := i * share; from < (i+1)*share; from += barePipeline {
				if err := do(from, min(from+barePipeline, (i+1)*share)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return float64(share*bareClients) / time.Since(start).Seconds(), err
}

func (g *guarded) writeGuarded(ctx context.Context, rdb *redis.Client, v event.Version, from, to int) error {
	b, err := write.New(write.Options{})
	if err != nil {
		return err
	}
	var calls []*write.Call
	for id := from; id < to; id++ {
		it := g.item(id)
		it.Intent, it.Source, it.Version, it.Now = event.IntentPut, "bench", v, time.Now()
		it.Until = inTime
		calls = b.Append(calls, &it)
	}
	p := rdb.Pipeline()
	for _, together := range write.Pack(calls, false) {
		p.Do(ctx, together.Args...)
	}
	_, err = p.Exec(ctx)
	return err
}

// inTime is an [write.Item].Until that does not come: what comes too late is forgotten, and not written.
const inTime = math.MaxInt64
