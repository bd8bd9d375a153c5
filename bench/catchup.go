package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/freshet/freshet/testbed"
)

// backlog is a binlog to catch up with.
type backlog struct {
	changes int // row changes of shop.product
	source  func(ctx context.Context) (*testbed.Server, error)
	empty   bool // Redis is empty, in place of holding every key
}

const bareName = "bare probe"

// catchUpSection is freshet in one process, on MySQL.
func (b *benchmark) catchUpSection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql}
	return &section{
		name: "catch-up", title: "catching up with MySQL, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, "≥ 0.9"),
			l.freshet("freshet, second_delete 200ms", setting{secondDelete: "200ms"}, "≥ 0.6"),
		},
	}
}

// kafkaSection is the same with Kafka between freshet's halves.
func (b *benchmark) kafkaSection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql}
	return &section{
		name: "catch-up-kafka", title: "catching up with MySQL through Kafka, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("through Kafka, second_delete none", setting{log: throughKafka}, "≥ 0.5"),
			l.freshet("through Kafka, second_delete 200ms", setting{log: throughKafka, secondDelete: "200ms"}, "≥ 0.5"),
		},
	}
}

// bare is the bare probe, which all others are divided by.
func (l backlog) bare() *contender {
	return l.contender(bareName, func(ctx context.Context, b *benchmark, source *testbed.Server) ([]measure, error) {
		before := ownCPU()
		took, err := bare(ctx, source.Addr, b.redis.Addr, l.changes)
		if err != nil {
			return nil, err
		}
		return l.measures(float64(l.changes)/took.Seconds(), ownCPU()-before, "", ""), nil
	})
}

// freshet is freshet run from the oldest binlog until it has caught up.
func (l backlog) freshet(name string, s setting, goal string) *contender {
	return l.contender(name, func(ctx context.Context, b *benchmark, source *testbed.Server) ([]measure, error) {
		s := s
		s.source, s.start = source, "earliest"
		c, err := b.catchUp(ctx, s, l.changes)
		if err != nil {
			return nil, err
		}
		return l.measures(c.rate(), c.cpu, bareName, goal), nil
	})
}

// contender fills Redis, has the backlog read, and looks whether every mapped key is gone.
func (l backlog) contender(name string, run func(context.Context, *benchmark, *testbed.Server) ([]measure, error)) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := l.source(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.fill(ctx, l.empty); err != nil {
			return nil, err
		}
		m, err := run(ctx, b, source)
		if err != nil {
			return nil, err
		}
		return m, b.allGone(ctx)
	}}
}

func (l backlog) measures(rate float64, cpu time.Duration, of, goal string) []measure {
	return []measure{
		{name: "rows/s", value: rate, of: of, goal: goal},
		{name: "CPU s/M rows", value: cpu.Seconds() / float64(l.changes) * 1e6, of: of},
	}
}

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it does not fail for the process itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// populate makes product:0 to product:N. No row has the id 0, so after a run exactly that key must still be there.
func (b *benchmark) populate(ctx context.Context) error { return b.fill(ctx, false) }

// fill is populate, unless only product:0 is wanted.
func (b *benchmark) fill(ctx context.Context, empty bool) error {
	s, err := b.redisServer(ctx)
	if err != nil {
		return err
	}
	if err := s.Client().FlushAll(ctx).Err(); err != nil {
		return err
	}
	keys := b.workload.rows + 1
	if empty {
		keys = 1
	}
	return s.Client().Do(ctx, "DEBUG", "POPULATE", keys, "product", 100).Err()
}

// allGone is nil if product:0 is there, which no row has, and nothing else.
func (b *benchmark) allGone(ctx context.Context) error {
	size, err := b.redis.Client().DBSize(ctx).Result()
	if err != nil {
		return err
	}
	kept, err := b.redis.Client().Exists(ctx, "product:0").Result()
	if err != nil {
		return err
	}
	if size != 1 || kept != 1 {
		return fmt.Errorf("%w: one key must be left, product:0: there are %d, of which it is %d", errInvalid, size, kept)
	}
	return nil
}
