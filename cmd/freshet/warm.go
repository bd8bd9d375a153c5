package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
)

const warmLong = `Have the running freshet read the rows of a table as they are now, and do for each what the mappings do with a row that
was just inserted: those with rebuild write its value, the others delete its keys. So the cache can be filled before
readers come, or after it was emptied. A value never replaces a newer one.

The rows are read in small pieces along the primary key, at scope_rate, and with pauses for the source. It goes on after
a restart of freshet. ` + "`freshet status`" + ` says how far it is.`

func (c *cli) warmCommand() *cobra.Command {
	var w admin.WarmUp
	var wait, dry bool
	var cancel string
	cmd := &cobra.Command{
		Use:   "warm --table TABLE [--where SQL]",
		Short: "Fill the cache from the rows of a table",
		Long:  warmLong,
		Example: `  freshet warm --table shop.product --wait
  freshet warm --table shop.product --where 'updated_at > NOW() - INTERVAL 1 DAY'
  freshet warm --cancel 82d87419d2ab`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cancel != "" {
				if w != (admin.WarmUp{}) || wait || dry {
					return usageError{fmt.Errorf("--cancel stands alone; see `%s --help`", cmd.CommandPath())}
				}
				return c.cancelWarmUp(cmd.Context(), cancel)
			}
			if err := w.Validate(); err != nil {
				return usageError{fmt.Errorf("--table: %w; see `%s --help`", err, cmd.CommandPath())}
			}
			if dry {
				return c.dryWarm(cmd.Context(), w)
			}
			return c.warm(cmd.Context(), w, wait)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Table, "table", "", "the table (schema.table)")
	f.StringVar(&w.Where, "where", "", "SQL that a row must meet, sent to the source as it is")
	f.BoolVar(&wait, "wait", false, "wait until all rows are read and their keys are done")
	f.BoolVar(&dry, "dry-run", false, "say how many keys the rows make, with some examples, and change none")
	f.StringVar(&cancel, "cancel", "", "end the warm-up with this id; what is written by then stays")
	return c.urlFlag(cmd)
}

func (c *cli) cancelWarmUp(ctx context.Context, id string) error {
	client, _, err := c.client()
	if err != nil {
		return err
	}
	if err := client.CancelWarmUp(ctx, id); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "cancelled warm-up %s\n", id)
	return err
}

// dryWarm reads the rows by itself: it needs the configuration, and no running freshet.
func (c *cli) dryWarm(ctx context.Context, w admin.WarmUp) error {
	return c.dry("would write or delete", func(cfg *config.Config, now *scope.Progress) (*operate.Cached, error) {
		return operate.DryWalk(ctx, cfg, w.Table, w.Where, false, now)
	})
}

func (c *cli) warm(ctx context.Context, w admin.WarmUp, wait bool) error {
	client, _, err := c.client()
	if err != nil {
		return err
	}
	id, err := client.Warm(ctx, w)
	if err != nil {
		return badScope(err)
	}
	if !wait {
		_, err := fmt.Fprintf(c.stdout, "asked for warm-up %s: `freshet status` says how far it is\n", id)
		return err
	}
	p := progress{out: c.stderr, width: width(c.stderr)}
	answer, err := waitForWarmUp(ctx, client, id, p.reached)
	p.end()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "warm-up %s is done: %s\n", id, answer)
	return err
}

// errCancelled is what waiting for a warm-up ends with that somebody has ended.
var errCancelled = errors.New("cancelled before its last row")

// warmed says how a warm-up ended.
func warmed(e *app.EndedWarmUp) (string, error) {
	switch {
	case e.Done:
		return e.Answer, nil
	case e.Cancelled:
		return "", fmt.Errorf("warm-up %s was %w", e.ID, errCancelled)
	}
	return "", fmt.Errorf("warm-up %s has ended before its last row: %s", e.ID, oneLine(e.Answer))
}

// statuses says how freshet is doing, as GET /status.
type statuses interface {
	Status(ctx context.Context) (json.RawMessage, error)
}

// waitForWarmUp returns once a warm-up is done, with how it ended, and fails if it ended otherwise.
func waitForWarmUp(ctx context.Context, client statuses, id string, reached func(text string, far *event.Progress),
) (string, error) {
	say := func(text string) { reached(text, nil) }
	answered, listed := time.Now(), time.Now() // when it was last known, and last in a list
	for {
		var s app.Status
		text, err := client.Status(ctx)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		is := func(w app.WarmUp) bool { return w.ID == id }
		under := slices.IndexFunc(s.WarmUps, is)
		ended := slices.IndexFunc(s.EndedWarmUps, func(e app.EndedWarmUp) bool { return is(e.WarmUp) })
		if err != nil || under >= 0 || s.WarmUpsUnknown {
			listed = time.Now()
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && time.Since(answered) > away:
			return "", err
		case err != nil:
			say("freshet does not answer; trying again: " + oneLine(err.Error()))
		case under >= 0:
			w := &s.WarmUps[under]
			reached(fmt.Sprintf("%s: %d rows read, %d keys", oneLine(w.Answer), w.Rows, w.Keys), w.Progress)
		case s.WarmUpsUnknown:
			say("freshet is starting")
		case ended >= 0:
			return warmed(&s.EndedWarmUps[ended])
		case time.Since(listed) > away:
			return "", fmt.Errorf("freshet does not know of warm-up %s any more: it has ended, and its log says how, or another "+
				"freshet answers than the one that was asked", id)
		default:
			say("freshet does not know of the warm-up yet")
		}
		if err == nil {
			answered = time.Now()
		}
		if retry.Sleep(ctx, looksEach) != nil {
			return "", fmt.Errorf("no longer waiting for warm-up %s, which goes on: %w", id, ctx.Err())
		}
	}
}
