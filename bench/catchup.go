package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contender is one way of catching up: it returns the rows per second.
type contender struct {
	name  string
	run   func(ctx context.Context, b *benchmark) (float64, error)
	rates []float64
}

func (b *benchmark) compare(ctx context.Context, runs int) error {
	contenders := []*contender{
		{name: "bare probe", run: bareRun},
		{name: "freshet, second_delete none", run: freshetRun(embedded, "none")},
		{name: "freshet, second_delete 200ms", run: freshetRun(embedded, "200ms")},
		{name: "through Kafka, none", run: freshetRun(throughKafka, "none")},
		{name: "through Kafka, 200ms", run: freshetRun(throughKafka, "200ms")},
	}
	invalid := false
	for i := range 1 + runs { // the first is to warm up, and not counted
		for _, c := range contenders {
			rate, valid, err := b.measure(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if i > 0 {
				c.rates = append(c.rates, rate)
			}
			verdict := ""
			if !valid {
				verdict, invalid = "  INVALID: mapped keys are still there", true
			}
			fmt.Printf("run %d  %-30s %9.0f rows/s%s\n", i, c.name, rate, verdict)
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
	if err := b.populate(ctx); err != nil {
		return 0, false, err
	}
	if rate, err = c.run(ctx, b); err != nil {
		return 0, false, err
	}
	rdb := b.redis.Client()
	size, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return 0, false, err
	}
	kept, err := rdb.Exists(ctx, "product:0").Result()
	return rate, size == 1 && kept == 1, err
}

// populate makes product:0 to product:N. No row has the id 0, so after a run exactly that key must still be there.
func (b *benchmark) populate(ctx context.Context) error {
	rdb := b.redis.Client()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return rdb.Do(ctx, "DEBUG", "POPULATE", b.workload.rows+1, "product", 100).Err()
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

// freshetRun runs the built binary as users do, from the oldest binlog and with a store, or topics, of its own.
func freshetRun(l eventLog, secondDelete string) func(context.Context, *benchmark) (float64, error) {
	return func(ctx context.Context, b *benchmark) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		cmd, err := b.command(ctx, l, "earliest", secondDelete, "--until-caught-up")
		if err != nil {
			return 0, err
		}
		return catchUp(cmd, b.workload.changes())
	}
}

// catchUp runs freshet until it has caught up, and returns the rows per second.
func catchUp(cmd *exec.Cmd, changes int) (float64, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s%s", err, out, stderr.String())
	}
	return rate(string(out), changes)
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
