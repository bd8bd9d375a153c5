package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
)

const invalidateLong = `Have freshet forget keys, for when rows were changed around the binlog, or a cache is not to be trusted.

Keys that are named are deleted at once, as after a change of their row. Tables, mappings, a pattern or --all mean every
key that the mappings can have made, and nothing else that is in Redis: that is recorded as a doubt, which outlives a
restart and ends when it is answered.`

const invalidateExample = `  freshet invalidate product:17 user:4
  freshet invalidate --table shop.product --wait
  freshet invalidate --mapping 'category:{category_id}:products'
  freshet invalidate --mapping 2 --pattern 'user:1*'
  freshet invalidate --table shop.product --where 'price > 100'
  freshet invalidate --all --wait`

func (c *cli) invalidateCommand() *cobra.Command {
	var i admin.Invalidation
	var mappings []string
	var wait, dry bool
	cmd := &cobra.Command{
		Use:     "invalidate [KEY ...]",
		Short:   "Forget keys: by their names, or all that tables, mappings or a pattern can mean",
		Long:    invalidateLong,
		Example: invalidateExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			i.Keys = args
			chooseMappings(&i.Scope, mappings)
			if err := i.Validate(); err != nil {
				return usageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
			}
			switch {
			case dry && len(i.Keys) > 0:
				return usageError{fmt.Errorf("--dry-run says which keys there are, and keys are given; see `%s --help`",
					cmd.CommandPath())}
			case dry:
				return c.dryRun(cmd.Context(), i.Scope)
			case len(i.Keys) > 0:
				return c.invalidateKeys(cmd.Context(), i.Keys)
			}
			return c.invalidate(cmd.Context(), i.Scope, wait)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&i.Tables, "table", nil, "the keys of a table (schema.table); may be given several times")
	f.StringArrayVar(&mappings, "mapping", nil,
		"the keys of a mapping: a key as it stands there, or the mapping's number; may be given several times")
	f.StringVar(&i.Pattern, "pattern", "", "only keys that match this glob, as SCAN has them, without redis.key_prefix")
	f.StringVar(&i.Where, "where", "", "SQL: of the one table, only the keys of rows that meet it, as they are now")
	f.BoolVar(&i.All, "all", false, "all keys of all mappings")
	f.BoolVar(&wait, "wait", false, "wait until the keys are forgotten")
	f.BoolVar(&dry, "dry-run", false, "say how many keys there are, with some examples, and forget none")
	return c.urlFlag(cmd)
}

// remark says what is probably not meant.
func (c *cli) remark(text string) {
	if text != "" {
		fmt.Fprintln(c.stderr, text)
	}
}

// chooseMappings tells the numbers of mappings from keys as they stand there.
func chooseMappings(s *admin.Scope, given []string) {
	for _, m := range given {
		if n, err := strconv.Atoi(m); err == nil {
			s.Mappings = append(s.Mappings, n)
		} else {
			s.Templates = append(s.Templates, m)
		}
	}
}

// invalidations calls do with what has keys forgotten: the running freshet, or what is kept when none runs.
func (c *cli) invalidations(ctx context.Context, do func(v admin.Invalidations) error) error {
	return badScope(c.either(func(d *admin.Client) error { return do(d) },
		func(cfg *config.Config) (func() error, error) {
			kept, err := operate.OpenDoubts(ctx, cfg)
			return func() error {
				return errors.Join(do(operate.Invalidations{Book: kept.Book, Config: cfg, Facts: kept.Facts}), kept.Close())
			}, err
		}))
}

// badScope makes a usage error of what was asked for and makes no sense.
func badScope(err error) error {
	if unfit := admin.Unfit(""); errors.As(err, &unfit) {
		return usageError{err}
	}
	return err
}

const redoLong = `Have freshet forget the keys of all changes since a time, as if the rows had been changed once more: for when Redis
did not get its deletes, or something else wrote old values into it. freshet reads that part of the binlog again, alongside
the changes that come, and writes nothing.

It is recorded as a doubt, which outlives a restart and ends when all is done. ` + "`freshet doubts dismiss`" + ` ends it earlier.`

func (c *cli) redoCommand() *cobra.Command {
	var s admin.Scope
	var wait, dry bool
	cmd := &cobra.Command{
		Use:   "redo --since TIME",
		Short: "Forget the keys of all changes since a time once more",
		Long:  redoLong,
		Example: `  freshet redo --since 10m --wait
  freshet redo --since 2026-01-31T08:00:00Z --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.Since == "":
				return usageError{fmt.Errorf("--since is missing: how long ago, or when; see `%s --help`", cmd.CommandPath())}
			case dry:
				return c.dryRun(cmd.Context(), s)
			}
			return c.invalidate(cmd.Context(), s, wait)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Since, "since", "", "how long ago (10m, 2h), or when (2026-01-31T08:00:00Z), by the commits in the binlog")
	f.BoolVar(&wait, "wait", false, "wait until all is done")
	f.BoolVar(&dry, "dry-run", false, "say how many keys these changes have, with some examples, and forget none")
	return c.urlFlag(cmd)
}

func (c *cli) invalidateKeys(ctx context.Context, keys []string) error {
	client, _, err := c.client()
	if err != nil {
		return err
	}
	done, err := client.InvalidateKeys(ctx, keys)
	if err != nil {
		return badScope(err)
	}
	c.remark(done.Remark)
	_, err = fmt.Fprintf(c.stdout, "forgot %d keys\n", done.Count)
	return err
}

// dryRun looks for the keys by itself: it needs the configuration, and no running freshet.
func (c *cli) dryRun(ctx context.Context, s admin.Scope) error {
	return c.dry("would forget", func(cfg *config.Config, now *scope.Progress) (*operate.Cached, error) {
		c.remark(operate.PrefixRemark(cfg, s.Pattern))
		return operate.DryRun(ctx, cfg, s, now)
	})
}

// dry has a look made, says how far it is, and prints what it has found: what would be done to how many keys.
func (c *cli) dry(would string, look func(cfg *config.Config, now *scope.Progress) (*operate.Cached, error)) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	var now scope.Progress
	done := make(chan error, 1)
	var found *operate.Cached
	go func() {
		var err error
		found, err = look(cfg, &now)
		done <- err
	}()
	p := progress{out: c.stderr, width: width(c.stderr)}
	var meter event.Meter
	ticker := time.NewTicker(looksEach)
	defer ticker.Stop()
	for {
		select {
		case at := <-ticker.C:
			p.reached(looked(&meter, at, &now))
		case err := <-done:
			p.end()
			if err != nil {
				return badScope(err)
			}
			return printFound(c.stdout, would, found)
		}
	}
}

// looked says how far a dry run is.
func looked(m *event.Meter, at time.Time, p *scope.Progress) (string, *event.Progress) {
	far := m.Take(at, p.Looked.Load(), p.Keys.Load())
	far.Keys = p.Found.Load()
	text := fmt.Sprintf("%d of about %d looked at, %d keys found", far.Done, far.Of, far.Keys)
	if far.Of == 0 {
		text = fmt.Sprintf("%d looked at, %d keys found", far.Done, far.Keys)
	}
	if trouble := p.Trouble.Load(); trouble != nil {
		text = fmt.Sprintf("waiting for redis (%s): %s", oneLine((*trouble).Error()), text)
	}
	return text, far
}

// printFound prints what a dry run has found. Examples are quoted, since keys can hold any bytes.
func printFound(out io.Writer, would string, f *operate.Cached) error {
	total := 0
	for _, n := range f.Keys {
		total += n
	}
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s %d keys\n", would, total)
	for _, table := range slices.Sorted(maps.Keys(f.Keys)) {
		fmt.Fprintf(w, "  %d of %s\n", f.Keys[table], table)
	}
	for i, key := range f.Examples {
		if i == 0 {
			fmt.Fprintln(w, "for example")
		}
		fmt.Fprintf(w, "  %q\n", key)
	}
	for _, b := range f.Blind {
		fmt.Fprintln(w, "not looked for: "+b)
	}
	return w.Flush()
}

func (c *cli) invalidate(ctx context.Context, s admin.Scope, wait bool) error {
	var done admin.Recorded
	running := false
	err := c.invalidations(ctx, func(v admin.Invalidations) (err error) {
		_, running = v.(*admin.Client)
		done, err = v.Invalidate(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	c.remark(done.Remark)
	return c.asked(ctx, done.ID, running, wait)
}
