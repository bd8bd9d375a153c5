// Command bench measures freshet and its competitors, and prints one table.
//
// It starts real servers on this machine: MySQL, MariaDB, Redis, a Kafka broker. They, freshet and the bench itself
// share its cores, so an absolute figure says little. Each section of the table has contenders that do the same work in
// turn, round by round, and what counts is the median of the ratios within a round, since machines differ and drift.
// What each section measures, and what its contenders do and leave out, is in docs/benchmarks.md.
//
// A run whose outcome is not what it must be (a mapped key is still there) prints INVALID and is not counted; the
// command then fails in the end.
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
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if len(os.Args) > 1 && os.Args[1] == bareReaderCommand {
		do = follow
	}
	if err := do(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// benchmark is one run of the command. Its methods are for one goroutine, the one that runs the sections.
type benchmark struct {
	servers

	rounds   int // at most, of each section, in addition to the uncounted one
	scale    float64
	workload workload
	freshet  string // the program
	// reference is the command of another bare probe, to run as well; empty: none.
	reference string
	dir       string // for whatever a run needs; removed in the end
	where     string // the commit and the machine, as they were before anything was written
}

// sections returns all parts of the table, in its order: what is a goal first, then what else there is to know.
func (b *benchmark) sections() []*section {
	return slices.Concat([]*section{
		b.catchUpSection(),
		b.catchUpMariaDBSection(),
		b.catchUpEmptySection(),
		b.backlogSection(),
		b.liveSection(),
		b.kafkaSection(),
		b.clusterSection(),
		b.clusterStoppedSection(),
	}, b.decodeSections(), []*section{
		b.latencySection(),
		b.latencyBigSection(),
		b.latencyQueriesSection(),
		b.memorySection(),
		b.growthSection(),
		b.restSection(),
		b.scopeSection(),
		b.redoSection(),
		b.walkSection(),
		b.othersSection(),
		b.actionsSection(),
		b.guardSection(),
		b.scalingRest(),
		b.scalingCatchUp(),
		b.scalingLive(),
		b.scalingRebalance(),
	})
}

func run(ctx context.Context, args []string) error {
	b := &benchmark{}
	flag.IntVar(&b.rounds, "rounds", 3,
		"rounds of each section at most, in which each contender runs once, after one that is not counted")
	flag.Float64Var(&b.scale, "scale", 1, "makes all workloads smaller (0.05) or larger; below 1 the figures mean little")
	flag.StringVar(&b.freshet, "freshet", "", "the freshet to measure (default: built from ./cmd/freshet)")
	flag.StringVar(&b.reference, "reference", "",
		"another bare probe to run next to ours, a `command` called with -mysql ADDR -redis ADDR that prints rows/s")
	only := flag.String("only", "", "run only the sections whose name matches this `regexp`")
	file := flag.String("write", "", "the `file` in which to replace the sections that were run: docs/benchmarks.md")
	list := flag.Bool("list", false, "list the sections and do nothing")
	if err := flag.CommandLine.Parse(args); err != nil {
		return err
	}
	if b.rounds < 1 || b.scale <= 0 || flag.NArg() > 0 {
		return errors.New("-rounds must be at least 1 and -scale above 0, and there are no arguments")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	b.workload = fullWorkload.scaled(b.scale)
	var chosen []*section
	for _, s := range b.sections() {
		if pattern.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s: no section has such a name; see -list", *only)
	}
	if *list {
		for _, s := range chosen {
			fmt.Printf("%-20s %s\n", s.name, s.title)
		}
		return nil
	}
	return b.runAll(ctx, chosen, *file)
}

// runAll runs the sections and prints the table. One that fails does not keep the others from running.
// What ran is written to the file, if there is one.
func (b *benchmark) runAll(ctx context.Context, sections []*section, file string) (err error) {
	if b.dir, err = os.MkdirTemp("", "freshet-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer func() { err = errors.Join(err, b.servers.close()) }()
	if err := b.build(ctx); err != nil {
		return err
	}
	begin := time.Now()
	b.where = machine(ctx)
	var results []*result
	var failed []error
	for _, s := range sections {
		r, err := b.runSection(ctx, s)
		if err != nil {
			failed = append(failed, fmt.Errorf("section %s: %w", s.name, err))
		}
		if ctx.Err() != nil {
			return errors.Join(failed...)
		}
		results = append(results, r)
		if file != "" && !r.failed { // now: who interrupts a long run keeps what it has measured
			failed = append(failed, b.write(file, []*result{r}))
		}
	}
	failed = append(failed, printTable(os.Stdout, results))
	fmt.Printf("\nall took %s\n", time.Since(begin).Round(time.Second))
	return errors.Join(failed...)
}

// build builds freshet, unless a program was given.
func (b *benchmark) build(ctx context.Context) error {
	if b.freshet != "" {
		return nil
	}
	b.freshet = filepath.Join(b.dir, "freshet")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.freshet, "./cmd/freshet")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build freshet: %w", err)
	}
	return nil
}
