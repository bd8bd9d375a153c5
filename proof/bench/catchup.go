package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// backlog is a binlog to catch up with.
type backlog struct {
	changes int // row changes of shop.product
	source  func(ctx context.Context) (*testbed.Server, error)
	empty   bool // Redis is empty, instead of holding every key
	// reference is the command of another bare probe, by which ours is divided. Empty: there is none.
	reference string
}

const (
	bareName      = "bare probe"
	referenceName = "reference probe"
)

// catchUpSection is freshet in one process, on MySQL.
func (b *benchmark) catchUpSection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql, reference: b.reference}
	s := &section{
		name: "catch-up", title: "catching up with MySQL, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, "≥ 0.9"),
			l.freshet("freshet, second_delete 200ms", setting{secondDelete: "200ms"}, "≥ 0.6"),
		},
	}
	if l.reference != "" {
		s.contenders = slices.Insert(s.contenders, 0, l.other())
	}
	return s
}

// catchUpMariaDBSection is the same on MariaDB, with ten times as much to read: where nothing is written any more, it
// takes a heartbeat until the end of the binlog counts as visible. What was deleted before that is deleted once more,
// and that second must be a small part of the run.
func (b *benchmark) catchUpMariaDBSection() *section {
	w := b.workload
	w.bulkUpdates, w.updates = 20*w.bulkUpdates, 2*w.updates
	l := backlog{changes: w.changes(), source: func(ctx context.Context) (*testbed.Server, error) {
		return b.source(ctx, "a workload ten times as large, on MariaDB", testbed.StartMariaDB, w.load)
	}}
	return &section{
		name: "catch-up-mariadb", title: "catching up with MariaDB, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, "≥ 0.9"),
			l.freshet("freshet, second_delete 200ms", setting{secondDelete: "200ms"}, "≥ 0.6"),
		},
	}
}

// catchUpEmptySection has Redis do little, so that only our own work shows.
func (b *benchmark) catchUpEmptySection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql, empty: true}
	return &section{
		name: "catch-up-empty", title: "catching up with MySQL, Redis empty",
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, "≥ 0.7"),
		},
	}
}

// backlogSection is a backlog that takes more than ten seconds to read. Nearly all of it is old news by then, which
// needs one delete.
func (b *benchmark) backlogSection() *section {
	l := backlog{changes: b.workload.rows + b.longUpdates(), source: b.longMySQL}
	return &section{
		name: "backlog", title: fmt.Sprintf("catching up with %s row changes on MySQL, Redis holding the keys",
			number(float64(l.changes))),
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, ""),
			l.freshet("freshet, second_delete 1s", setting{secondDelete: "1s"}, "≥ 0.85"),
		},
		rounds: 3, noWarmUp: true,
	}
}

// longUpdates is how many rows the long backlog's updates change.
func (b *benchmark) longUpdates() int { return longPasses * b.workload.rows }

// longMySQL returns the MySQL server whose binlog holds the long backlog, made by updates of many rows each.
func (b *benchmark) longMySQL(ctx context.Context) (*testbed.Server, error) {
	return b.ownSource(ctx, "a long backlog on MySQL", func(ctx context.Context, db *sql.DB) error {
		if err := (workload{rows: b.workload.rows}).load(ctx, db); err != nil {
			return err
		}
		for range longPasses {
			if err := updateAll(ctx, db, b.workload.rows); err != nil {
				return err
			}
		}
		return nil
		// so that it is soon made
	}, "--innodb-buffer-pool-size=512M", "--innodb-redo-log-capacity=1G", "--binlog-cache-size=4M")
}

// kafkaSection is freshet with Kafka between its halves.
func (b *benchmark) kafkaSection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql}
	return &section{
		name: "catch-up-kafka", title: "catching up with MySQL through Kafka, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("through Kafka, second_delete none", setting{log: partitioned(12)}, "≥ 0.5"),
			l.freshet("through Kafka, second_delete 200ms", setting{log: partitioned(12), secondDelete: "200ms"}, "≥ 0.5"),
			l.freshet("through Kafka, 4 partitions, second_delete none", setting{log: partitioned(4)}, "≥ 0.5"),
		},
	}
}

// bare is the bare probe, which all others are divided by.
func (l backlog) bare() *contender {
	of, goal := "", ""
	if l.reference != "" {
		of, goal = referenceName, "≥ 1"
	}
	return l.contender(bareName, func(ctx context.Context, b *benchmark, source *testbed.Server) ([]measure, error) {
		before := ownCPU()
		took, err := bare(ctx, source, b.redis.Addr, l.changes)
		if err != nil {
			return nil, err
		}
		return l.measures(float64(l.changes)/took.Seconds(), ownCPU()-before, of, goal), nil
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

// other is the other bare probe.
func (l backlog) other() *contender {
	words := strings.Fields(l.reference)
	return l.contender(referenceName, func(ctx context.Context, b *benchmark, source *testbed.Server) ([]measure, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, words[0], append(words[1:], "-mysql", source.Addr, "-redis", b.redis.Addr)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %q", l.reference, err, out)
		}
		m := rowsPerSecond.FindSubmatch(out)
		if m == nil {
			return nil, fmt.Errorf("%s says no rows/s: %q", l.reference, out)
		}
		rate, err := strconv.ParseFloat(string(m[1]), 64)
		return l.measures(rate, usedCPU(cmd), "", ""), err
	})
}

var rowsPerSecond = regexp.MustCompile(`([0-9.]+) rows/s`)

// contender fills Redis, has the backlog read, and looks whether every mapped key is gone.
func (l backlog) contender(name string,
	run func(context.Context, *benchmark, *testbed.Server) ([]measure, error),
) *contender {
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

// usedCPU is what a command has used that has ended.
func usedCPU(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
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
	keys := b.workload.rows + 1
	if empty {
		keys = 1
	}
	return fillRedis(ctx, s, keys)
}

// fillRedis makes so many keys, product:0 and on, and removes all others.
func fillRedis(ctx context.Context, s *testbed.RedisServer, keys int) error {
	if err := s.Client().FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.Client().Do(ctx, "DEBUG", "POPULATE", keys, "product", 100).Err()
}

// sizeOf returns how many keys there are, but for freshet's stamp.
func sizeOf(ctx context.Context, rdb *redis.Client) (int64, error) {
	size, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return 0, err
	}
	stamps, err := rdb.Keys(ctx, "freshet:stamp:*").Result()
	return size - int64(len(stamps)), err
}

// allGone is nil if product:0 is there, which no row has, and nothing else.
func (b *benchmark) allGone(ctx context.Context) error {
	size, err := sizeOf(ctx, b.redis.Client())
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
