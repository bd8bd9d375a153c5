package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/freshet/freshet/proof/testbed"
)

// servers are started when they are first asked for, and closed together in the end.
type servers struct {
	sources map[string]*testbed.Server // by what is in their binlog
	own     []string                   // of these, what is for the section under way alone
	ending  []func() error             // closes what else is for it alone
	redis   *testbed.RedisServer
	kafka   *testbed.KafkaCluster
	taken   []string // what the section under way has asked for: mysql 9.7.4
	closers []func() error
}

// mysql returns the MySQL server whose binlog holds the workload and nothing else, from the start of binlog.000001 on.
// It is only read: who writes takes liveMySQL.
func (b *benchmark) mysql(ctx context.Context) (*testbed.Server, error) {
	return b.source(ctx, "the workload on MySQL", testbed.StartMySQL, b.workload.load)
}

// liveMySQL returns a MySQL server with the workload's table and rows, for sections that write. All of them share it:
// they leave shop.product's rows 1 to workload.rows there, and have freshet start at "now".
func (b *benchmark) liveMySQL(ctx context.Context) (*testbed.Server, error) {
	return b.source(ctx, "rows to write to, on MySQL", testbed.StartMySQL, workload{rows: b.workload.rows}.load)
}

// ownSource is source for a server that no other section takes: it is closed with the section under way, since a long
// binlog takes much of the disk.
func (b *benchmark) ownSource(
	ctx context.Context, contents string, load func(context.Context, *sql.DB) error, args ...string,
) (*testbed.Server, error) {
	b.own = append(b.own, contents)
	return b.source(ctx, contents, testbed.StartMySQL, load, args...)
}

// source returns the server that goes by the name of its contents: started by the first who asks, and loaded.
//
// It is meant to be read, not to survive: no fsync while it is loaded.
func (b *benchmark) source(
	ctx context.Context, contents string,
	start func(context.Context, testbed.Options) (*testbed.Server, error), load func(context.Context, *sql.DB) error,
	args ...string,
) (*testbed.Server, error) {
	if s := b.sources[contents]; s != nil {
		b.took(string(s.Flavor), s.Version)
		return s, nil
	}
	s, err := start(ctx, testbed.Options{Args: append([]string{
		"--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--max-binlog-size=1G",
	}, args...)})
	if err != nil {
		return nil, err
	}
	b.started(string(s.Flavor), s.Version)
	fmt.Printf("  making %s ...\n", contents)
	if err := load(ctx, s.DB()); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", contents, err), s.Close())
	}
	if b.sources == nil {
		b.sources = map[string]*testbed.Server{}
	}
	b.sources[contents] = s
	return s, nil
}

// endSection closes what was for the section under way alone.
func (s *servers) endSection() error {
	errs := []error{s.closeSources(s.own)}
	for _, f := range slices.Backward(s.ending) {
		errs = append(errs, f())
	}
	s.own, s.ending = nil, nil
	return errors.Join(errs...)
}

func (s *servers) closeSources(contents []string) error {
	var errs []error
	for _, c := range contents {
		if source := s.sources[c]; source != nil {
			errs = append(errs, source.Close())
			delete(s.sources, c)
		}
	}
	return errors.Join(errs...)
}

// redisServer returns the Redis that all sections share. Each run begins by filling it, or emptying it.
func (b *benchmark) redisServer(ctx context.Context) (*testbed.RedisServer, error) {
	if b.redis != nil {
		b.took("redis", b.redis.Version)
		return b.redis, nil
	}
	s, err := testbed.StartRedis(ctx, testbed.Options{})
	if err != nil {
		return nil, err
	}
	b.redis = s
	b.atEnd(s.Close)
	b.started("redis", s.Version)
	return s, nil
}

// ownRedis puts a Redis in the place of the shared one until the section under way ends. It is for what fills Redis
// with so much that to empty it would take others' time.
func (b *benchmark) ownRedis(ctx context.Context) error {
	s, err := testbed.StartRedis(ctx, testbed.Options{})
	if err != nil {
		return err
	}
	shared := b.redis
	b.ending = append(b.ending, func() error {
		b.redis = shared
		return s.Close()
	})
	b.redis = s
	b.started("redis", s.Version)
	return nil
}

// kafkaCluster returns one broker. As the testbed starts it, Java's optimising compiler is off: in a broker that runs
// for days it has long done its work; here it would be at work throughout, on the cores that are shared.
func (b *benchmark) kafkaCluster(ctx context.Context) (*testbed.KafkaCluster, error) {
	if b.kafka != nil {
		b.took("kafka", b.kafka.Version)
		return b.kafka, nil
	}
	c, err := testbed.StartKafka(ctx, testbed.KafkaOptions{})
	if err != nil {
		return nil, err
	}
	b.kafka = c
	b.atEnd(c.Close)
	b.started("kafka", c.Version)
	return c, nil
}

func (s *servers) started(name, version string) {
	fmt.Printf("  started %s %s\n", name, version)
	s.took(name, version)
}

// took notes what the section under way takes.
func (s *servers) took(name, version string) {
	if v := name + " " + version; !slices.Contains(s.taken, v) {
		s.taken = append(s.taken, v)
	}
}

// atEnd has something closed when all sections have run.
func (s *servers) atEnd(f func() error) { s.closers = append(s.closers, f) }

// close closes what was started.
func (s *servers) close() error {
	errs := []error{s.closeSources(slices.Collect(maps.Keys(s.sources)))}
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
