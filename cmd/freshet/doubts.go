package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
)

func (c *cli) doubtsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doubts",
		Short: "List, show, answer and dismiss doubts: what may have left stale keys although all work is finished",
	}
	cmd.AddCommand(c.doubtsList(), c.doubtsShow(), c.doubtsAnswer(), c.doubtsDismiss())
	return c.urlFlag(cmd)
}

// doubts calls do with the doubts: those of the running freshet, or those that are kept when none runs.
func (c *cli) doubts(ctx context.Context, do func(admin.Doubts) error) error {
	return c.either(func(d *admin.Client) error { return do(d) }, func(cfg *config.Config) (func() error, error) {
		kept, err := operate.OpenDoubts(ctx, cfg)
		return func() error { return errors.Join(do(kept), kept.Close()) }, err
	})
}

// doubt calls do with one doubt.
func (c *cli) doubt(ctx context.Context, id string, do func(admin.Doubts, admin.Doubt) error) error {
	return c.doubts(ctx, func(l admin.Doubts) error {
		all, err := l.ListDoubts(ctx)
		if err != nil {
			return err
		}
		for _, d := range all {
			if d.ID == id {
				return do(l, d)
			}
		}
		return fmt.Errorf("there is no doubt %q; `freshet doubts list` shows them", id)
	})
}

func (c *cli) doubtsList() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List doubts, the oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.doubts(cmd.Context(), func(l admin.Doubts) error {
				all, err := l.ListDoubts(cmd.Context())
				if err != nil {
					return err
				}
				if raw {
					return printIndented(c.stdout, append([]admin.Doubt{}, all...))
				}
				w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tCAUSE\tSINCE\tTIMES\tWHAT")
				for _, d := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", d.ID, d.Cause, d.Since.Local().Format(time.RFC3339), d.Count,
						withAnswer(d.Message, d.Answer))
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "json", false, "print them as JSON")
	return cmd
}

// withAnswer returns what a doubt says, and how it is being answered if that is known.
func withAnswer(message, answer string) string {
	if message = oneLine(message); answer != "" {
		message += " (" + oneLine(answer) + ")"
	}
	return message
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func printIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (c *cli) doubtsShow() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything that is known about one doubt",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.doubt(cmd.Context(), args[0], func(_ admin.Doubts, d admin.Doubt) error {
				if raw {
					return printIndented(c.stdout, d)
				}
				return printDoubt(c.stdout, d)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "json", false, "print it as JSON")
	return cmd
}

// printDoubt prints all that is known of a doubt.
func printDoubt(out io.Writer, d admin.Doubt) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	tables, schemas := strings.Join(d.Tables, ", "), strings.Join(d.Schemas, ", ")
	if tables+schemas == "" {
		tables = "every mapped table"
	}
	line("doubt", d.ID)
	line("cause", d.Cause)
	line("source", d.Source)
	line("group", d.Group)
	line("tables", tables)
	line("schemas", schemas)
	line("keys", strings.Join(d.Templates, ", "))
	line("pattern", d.Pattern)
	if d.Partition != nil {
		line("partition", strconv.Itoa(*d.Partition))
	}
	line("about", d.Subject)
	line("since", d.Since.Local().Format(time.RFC3339))
	line("last", fmt.Sprintf("%s, %d times in all", d.Last.Local().Format(time.RFC3339), d.Count))
	line("what", oneLine(d.Message))
	if d.Asked {
		line("asked", "its answer was asked for by hand")
	}
	if d.Stuck {
		line("no answer", oneLine(d.Answer))
	} else {
		line("answer", oneLine(d.Answer))
	}
	return w.Flush()
}

func (c *cli) doubtsAnswer() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "answer ID",
		Short: "Have freshet forget the keys of a doubt, after which the doubt ends",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			running := false
			err := c.doubt(cmd.Context(), args[0], func(l admin.Doubts, d admin.Doubt) error {
				_, running = l.(*admin.Client)
				return l.AnswerDoubt(cmd.Context(), d.ID)
			})
			if err != nil {
				return err
			}
			return c.asked(cmd.Context(), args[0], running, wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the doubt ends")
	return cmd
}

func (c *cli) doubtsDismiss() *cobra.Command {
	return &cobra.Command{
		Use:   "dismiss ID",
		Short: "Remove a doubt for good, once its keys are cleared; this deletes no key",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.doubt(cmd.Context(), args[0], func(l admin.Doubts, d admin.Doubt) error {
				if err := l.DismissDoubt(cmd.Context(), d.ID, d.Last); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(c.stdout, "dismissed:"); err != nil {
					return err
				}
				return printDoubt(c.stdout, d)
			})
		},
	}
}
