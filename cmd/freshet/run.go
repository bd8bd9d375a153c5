package main

import (
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
)

func (c *cli) runCommand() *cobra.Command {
	return c.pipelineCommand(app.Whole, &cobra.Command{
		Use:   "run",
		Short: "Keep the cache fresh: read, route and delete in one process",
		Long: `Reads the binlog from the saved position (on a first start from source.start) and deletes the keys that the
mappings name, until it is stopped. SIGINT and SIGTERM stop it after the work in flight; a second one at once.`,
	}, "stop once everything that is in the binlog now is finished, final deletes included")
}

func (c *cli) readerCommand() *cobra.Command {
	return c.pipelineCommand(app.Reader, &cobra.Command{
		Use:   "reader",
		Short: "Read and route into Kafka; other processes delete (freshet invalidator)",
		Long: `Reads the binlog from the position in the checkpoint topic (on a first start from source.start) and puts the keys
that the mappings name into the topic of eventlog.kafka. If several readers have one source.name, one leads and the others
stand by. SIGINT and SIGTERM stop it once the records in flight are acknowledged; a second one at once.`,
	}, "stop once everything that is in the binlog now is in Kafka")
}

func (c *cli) invalidatorCommand() *cobra.Command {
	return c.pipelineCommand(app.Invalidator, &cobra.Command{
		Use:   "invalidator",
		Short: "Delete the keys that readers put into Kafka (freshet reader)",
		Long: `Takes its share of the partitions of the topic of eventlog.kafka and deletes the keys in them, until it is
stopped. All invalidators of one Redis have the same eventlog.kafka.group. The configuration needs the source only to
run queries and to read rows, and mappings only for queries. SIGINT and SIGTERM stop it after the work in flight; a second
one at once.`,
	}, "stop once everything that is in the topic now is finished, final deletes included")
}

// pipelineCommand completes a command that runs the pipeline or a part of it.
func (c *cli) pipelineCommand(role app.Role, cmd *cobra.Command, caughtUp string) *cobra.Command {
	o := app.Options{Role: role, Version: version}
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if o.SkipLost && cfg.EventLog.Kind != config.EventLogKafka {
			return usageError{fmt.Errorf("--skip-lost is for the event log in Kafka, and eventlog.kind is %s: leave it out",
				cfg.EventLog.Kind)}
		}
		o.Log = c.logger(cfg.Log)
		sum, err := app.Run(cmd.Context(), cfg, o)
		if err != nil || !o.UntilCaughtUp || !sum.CaughtUp {
			return err
		}
		_, err = fmt.Fprintf(c.stdout, "caught up: rows=%d keys=%d seconds=%.3f\n", sum.Rows, sum.Keys,
			sum.Duration.Seconds())
		return err
	}
	cmd.Flags().BoolVar(&o.UntilCaughtUp, "until-caught-up", false, caughtUp)
	if role != app.Reader {
		cmd.Flags().BoolVar(&o.SkipLost, "skip-lost", false,
			"continue where Kafka has lost records and the partition is stopped, with the records that are left; keys that changed meanwhile stay stale: clear them first")
	}
	return cmd
}

func (c *cli) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration without connecting to anything",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			keys := 0
			for _, m := range cfg.Mappings {
				keys += len(m.Keys)
			}
			remarks, err := operate.Remarks(cfg)
			if err != nil {
				return err
			}
			for _, text := range remarks {
				if _, err := fmt.Fprintf(c.stdout, "%-4s  %s\n", operate.Warn, text); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(c.stdout, "%s is valid: mappings=%d keys=%d\n", cfg.File, len(cfg.Mappings), keys)
			return err
		},
	}
}

func (c *cli) configCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration, with secrets masked",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			text, err := cfg.Marshal()
			if err != nil {
				return err
			}
			_, err = c.stdout.Write(text)
			return err
		},
	}
}

func (c *cli) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the configuration against the live source, Kafka and Redis, and say how to fix it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			report := operate.Check(cmd.Context(), cfg)
			if err := report.Print(c.stdout); err != nil {
				return err
			}
			if report.Failed() {
				return errSilent
			}
			return nil
		},
	}
}

func (c *cli) explainCommand() *cobra.Command {
	var old string
	cmd := &cobra.Command{
		Use:   "explain TABLE ROW-JSON",
		Short: "Say which keys a row of a table makes stale, and why, without connecting to anything",
		Long: `Says for a row, written as JSON, which keys each mapping makes from it. With --old it is an update from that row;
without, an insert. A delete is null with --old.`,
		Example: `  freshet explain shop.product '{"id": 17, "category_id": 3}' --old '{"id": 17, "category_id": 2}'`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if err := operate.Explain(c.stdout, cfg, args[0], args[1], old); err != nil {
				return usageError{err}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&old, "old", "", "the row before the update, as JSON")
	return cmd
}

func (c *cli) positionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "position", Short: "Show or set the saved position in the binlog"}
	var raw bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the saved position, up to which everything is finished",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			return operate.ShowPosition(cmd.Context(), c.stdout, cfg, raw)
		},
	}
	show.Flags().BoolVar(&raw, "json", false, "print it as JSON")
	var skip bool
	set := &cobra.Command{
		Use:   "set gtid:SET | FILE:POSITION | TIME | now | earliest",
		Short: "Set the saved position of a freshet that is stopped",
		Long: `Sets where freshet continues: after a GTID set, at a position in a binlog file, at a time (RFC 3339, such as
2026-01-31T08:00:00Z: before the first transaction that was committed then or later), now, or at the oldest binlog that
exists (earliest). Going back is always safe: keys are deleted again. Going forward leaves out the changes in between, so
it needs --skip, and is a doubt: cached keys of those changes stay stale until it is answered.
Refused while freshet runs.`,
		Example: `  freshet position set gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57
  freshet position set binlog.000112:4
  freshet position set 2026-01-31T08:00:00Z`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), isPlace),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			return operate.SetPosition(cmd.Context(), c.stdout, cfg, c.logger(cfg.Log), args[0], skip)
		},
	}
	set.Flags().BoolVar(&skip, "skip", false, "go forward, although the changes in between are then never invalidated")
	cmd.AddCommand(show, set)
	return cmd
}

// place is how a position may be written; whether there is such a place is for the source to say.
var place = regexp.MustCompile(`^(now|earliest|gtid:.+|[^\s:]+:[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].+)$`)

// aTime is how a time begins. Without its zone, nobody knows which is meant, and one that is later than was meant
// leaves changes out.
var aTime = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)`)

func isPlace(_ *cobra.Command, args []string) error {
	if _, err := time.Parse(time.RFC3339, args[0]); err != nil && aTime.MatchString(args[0]) {
		return fmt.Errorf("%q is no time: write it with its zone, such as 2026-01-31T08:00:00Z or 2026-01-31T09:00:00+01:00",
			args[0])
	}
	if !place.MatchString(args[0]) {
		return fmt.Errorf("%q is no position: write gtid:SET, FILE:POSITION, now, earliest or a time such as "+
			"2026-01-31T08:00:00Z", args[0])
	}
	return nil
}
