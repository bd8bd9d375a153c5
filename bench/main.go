// Command bench measures freshet in one process, and with Kafka between its halves.
//
// First, how fast it catches up, beside a bare probe that does the same job with nothing that makes it safe. All read
// the same binlog of a private MySQL server and delete the same keys of a private Redis, in turn, several times; what
// counts is the ratio of their medians, since machines differ and drift. Redis holds every key before each run, for
// deleting what exists costs more. A run after which a mapped key is still there prints INVALID, and the command then
// fails. Then, how long a key lives on after the commit that made it stale, at a steady rate. Last, how fast the other
// actions are: through freshet, beside redis-benchmark doing the same writes plainly, and beside the same client doing
// them with and without the guard of versions.
//
// MySQL, Redis, the Kafka broker and freshet share the machine's cores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/freshet/freshet/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

type benchmark struct {
	workload workload
	source   *testbed.Server
	redis    *testbed.RedisServer
	kafka    *testbed.KafkaCluster
	freshet  string // the program
	dir      string
}

func run(ctx context.Context) error {
	var w workload
	flag.IntVar(&w.rows, "rows", 500_000, "rows inserted, 500 in a statement")
	flag.IntVar(&w.bulkUpdates, "bulk-updates", 500, "updates of 1,000 rows each")
	flag.IntVar(&w.updates, "updates", 100_000, "updates of one row, each a transaction")
	runs := flag.Int("runs", 5, "runs of each contender, in turn")
	var p pace
	flag.IntVar(&p.rate, "rate", 500, "for the latency: transactions of one row in a second")
	flag.DurationVar(&p.length, "latency", 10*time.Second, "for the latency: how long each run takes; 0: no runs")
	catchUps := flag.Bool("catch-up", true, "measure how fast it catches up")
	withActions := flag.Bool("actions", true, "measure the actions that write values, too")
	binary := flag.String("freshet", "", "the freshet to measure (default: built from ./cmd/freshet)")
	flag.Parse()
	if w.rows < 2000 || w.rows < 2*p.transactions() {
		return errors.New("-rows must be at least 2000, and twice the transactions of a run for the latency")
	}
	dir, err := os.MkdirTemp("", "freshet-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &benchmark{workload: w, dir: dir, freshet: *binary}
	if err := b.prepare(ctx); err != nil {
		return errors.Join(err, b.close())
	}
	if *catchUps {
		err = b.compare(ctx, *runs)
	}
	if err == nil && p.length > 0 {
		err = b.latencies(ctx, p, min(*runs, 3))
	}
	if err == nil && *withActions {
		err = b.compareActions(ctx, *runs)
	}
	return errors.Join(err, b.close())
}

func (b *benchmark) prepare(ctx context.Context) (err error) {
	if b.freshet == "" {
		b.freshet = filepath.Join(b.dir, "freshet")
		build := exec.CommandContext(ctx, "go", "build", "-o", b.freshet, "./cmd/freshet")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build freshet: %w", err)
		}
	}
	// The workload is meant to be read, not to survive: no fsync while it is made, and one binlog file.
	if b.source, err = testbed.StartMySQL(ctx, testbed.Options{Args: []string{
		"--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--max-binlog-size=1G",
	}}); err != nil {
		return err
	}
	if b.redis, err = testbed.StartRedis(ctx, testbed.Options{}); err != nil {
		return err
	}
	// As the testbed starts it, Java's optimising compiler is off. In a broker that runs for days it has long done its
	// work; here it would be at work throughout, on the cores that are shared.
	if b.kafka, err = testbed.StartKafka(ctx, testbed.KafkaOptions{}); err != nil {
		return err
	}
	fmt.Printf("mysql %s, redis %s, kafka %s; making %d row changes ...\n",
		b.source.Version, b.redis.Version, b.kafka.Version, b.workload.changes())
	return b.workload.load(ctx, b.source.DB())
}

func (b *benchmark) close() error {
	var errs []error
	if b.source != nil {
		errs = append(errs, b.source.Close())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.Close())
	}
	if b.kafka != nil {
		errs = append(errs, b.kafka.Close())
	}
	return errors.Join(errs...)
}
