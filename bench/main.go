// Command bench measures how fast freshet catches up, beside a bare probe that does the same job with nothing that
// makes it safe. Both read the same binlog of a private MySQL server and delete the same keys of a private Redis,
// in turn, several times; what counts is the ratio of their medians, since machines differ and drift.
//
// Redis holds every key before each run, for deleting what exists costs more. A run after which a mapped key is
// still there prints INVALID, and the command then fails.
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
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// contender is one way of catching up: it returns the rows per second.
type contender struct {
	name  string
	run   func(ctx context.Context, b *benchmark) (float64, error)
	rates []float64
}

type benchmark struct {
	workload workload
	source   *testbed.Server
	redis    *testbed.RedisServer
	freshet  string
	dir      string
}

func run(ctx context.Context) error {
	var w workload
	flag.IntVar(&w.rows, "rows", 500_000, "rows inserted, 500 in a statement")
	flag.IntVar(&w.bulkUpdates, "bulk-updates", 500, "updates of 1,000 rows each")
	flag.IntVar(&w.updates, "updates", 100_000, "updates of one row, each a transaction")
	runs := flag.Int("runs", 5, "runs of each contender, in turn")
	binary := flag.String("freshet", "", "the freshet to measure (default: built from ./cmd/freshet)")
	flag.Parse()
	if w.rows < 2000 {
		return errors.New("-rows must be at least 2000")
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
	return errors.Join(b.compare(ctx, *runs), b.close())
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
	fmt.Printf("mysql %s, redis %s; making %d row changes ...\n", b.source.Version, b.redis.Version, b.workload.changes())
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
	return errors.Join(errs...)
}

func (b *benchmark) compare(ctx context.Context, runs int) error {
	contenders := []*contender{
		{name: "bare probe", run: bareRun},
		{name: "freshet, second_delete none", run: freshetRun("none")},
		{name: "freshet, second_delete 200ms", run: freshetRun("200ms")},
	}
	invalid := false
	for i := range runs {
		for _, c := range contenders {
			rate, valid, err := b.measure(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			verdict := ""
			if !valid {
				verdict, invalid = "  INVALID: mapped keys are still there", true
			}
			fmt.Printf("run %d  %-30s %9.0f rows/s%s\n", i+1, c.name, rate, verdict)
		}
	}
	report(contenders)
	if invalid {
		return errors.New("INVALID: a contender left keys behind")
	}
	return nil
}

// measure fills Redis, runs c, and looks whether every mapped key is gone.
func (b *benchmark) measure(ctx context.Context, c *contender) (rate float64, valid bool, err error) {
	rdb := b.redis.Client()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return 0, false, err
	}
	// Makes product:0 to product:N; no row has the id 0, so exactly that key must stay.
	if err := rdb.Do(ctx, "DEBUG", "POPULATE", b.workload.rows+1, "product", 100).Err(); err != nil {
		return 0, false, err
	}
	if rate, err = c.run(ctx, b); err != nil {
		return 0, false, err
	}
	c.rates = append(c.rates, rate)
	size, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return 0, false, err
	}
	kept, err := rdb.Exists(ctx, "product:0").Result()
	return rate, size == 1 && kept == 1, err
}

func report(contenders []*contender) {
	base := median(contenders[0].rates)
	fmt.Printf("\n%-30s %14s %14s %14s   %s\n", "rows/s", "min", "median", "max", "median / bare probe")
	for _, c := range contenders {
		fmt.Printf("%-30s %14.0f %14.0f %14.0f   %.2f\n", c.name, slices.Min(c.rates), median(c.rates), slices.Max(c.rates), median(c.rates)/base)
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func bareRun(ctx context.Context, b *benchmark) (float64, error) {
	n := b.workload.changes()
	d, err := bare(ctx, b.source.Addr, b.redis.Addr, n)
	return float64(n) / d.Seconds(), err
}

var caughtUp = regexp.MustCompile(`^caught up: rows=(\d+) keys=(\d+) seconds=([0-9.]+)$`)

// freshetRun runs the built binary as users do, from the oldest binlog and with a store of its own.
func freshetRun(secondDelete string) func(context.Context, *benchmark) (float64, error) {
	return func(ctx context.Context, b *benchmark) (float64, error) {
		dir, err := os.MkdirTemp(b.dir, "run")
		if err != nil {
			return 0, err
		}
		file := filepath.Join(dir, "freshet.yaml")
		text := fmt.Sprintf(`source: {addresses: [%q], user: root, start: earliest}
redis: {addresses: [%q]}
eventlog: {dir: %q}
admin: {listen: none}
log: {level: warn}
invalidator: {second_delete: %s}
mappings:
  - table: shop.product
    keys: ["product:{id}"]
`, b.source.Addr, b.redis.Addr, filepath.Join(dir, "data"), secondDelete)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return 0, err
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, b.freshet, "run", "--until-caught-up", "-c", file)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("%w\n%s%s", err, out, stderr.String())
		}
		return rate(string(out), b.workload.changes())
	}
}

func rate(out string, changes int) (float64, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	m := caughtUp.FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		return 0, fmt.Errorf("the last line is not a result: %q", lines[len(lines)-1])
	}
	rows, _ := strconv.Atoi(m[1])
	seconds, err := strconv.ParseFloat(m[3], 64)
	if rows != changes || err != nil {
		return 0, fmt.Errorf("%d row changes were made, but freshet says %q", changes, m[0])
	}
	return float64(rows) / seconds, nil
}
