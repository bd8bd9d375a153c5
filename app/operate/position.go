package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
)

// savedPosition is a position as `position show --json` prints it.
type savedPosition struct {
	Flavor    event.Flavor `json:"flavor"`
	Server    string       `json:"server"`
	Epoch     uint32       `json:"epoch"`
	GTIDs     string       `json:"gtids,omitempty"`
	File      string       `json:"file"`
	Pos       uint64       `json:"pos"`
	Committed time.Time    `json:"committed"`
}

// ShowPosition prints the saved position. With the embedded log that is one of a freshet that does not run; `freshet
// status` has that of one that does.
func ShowPosition(ctx context.Context, w io.Writer, c *config.Config, raw bool) error {
	if err := needsSource(c); err != nil {
		return err
	}
	p, err := readPosition(ctx, c)
	if err != nil {
		return err
	}
	return printPosition(w, &p, raw)
}

// needsSource refuses a configuration of an invalidator.
func needsSource(c *config.Config) error {
	if c.HasSource() {
		return nil
	}
	return spec.Problems{{
		Pos: spec.Pos{File: c.File}, What: "there is no source",
		Do: "name the configuration of its reader with --config",
	}}
}

// readPosition reads the saved position of either event log.
func readPosition(ctx context.Context, c *config.Config) (event.Position, error) {
	if c.EventLog.Kind == config.EventLogKafka {
		return readKafkaPosition(ctx, c)
	}
	s, err := embedded.OpenReadOnly(c.EventLog.Dir, embedded.Options{})
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return event.Position{}, fmt.Errorf("%w; `freshet status` shows the position of a running freshet", err)
	case errors.Is(err, embedded.ErrMissing):
		return event.Position{}, fmt.Errorf("there is no position: %w", err)
	case err != nil:
		return event.Position{}, err
	}
	return s.Checkpoint().Position(), s.Close()
}

func printPosition(w io.Writer, p *event.Position, raw bool) (err error) {
	if raw {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(savedPosition{p.Flavor, p.Server, p.Epoch, p.GTIDs.String(), p.File, p.Pos, p.Committed})
	}
	if p.IsZero() {
		_, err = fmt.Fprintln(w, "there is no position yet")
		return err
	}
	of := ""
	if p.File != "" {
		of = fmt.Sprintf("file %s:%d of ", p.File, p.Pos)
	}
	_, err = fmt.Fprintf(w, "%s\n  %sserver %s (%s), epoch %d\n", p.String(), of, p.Server, p.Flavor, p.Epoch)
	if err == nil && !p.Committed.IsZero() {
		_, err = fmt.Fprintf(w, "  last finished transaction was committed at %s\n", p.Committed.Format(time.RFC3339Nano))
	}
	return err
}

// SetPosition sets the saved position of a freshet that does not run to what an operator says: gtid:SET, FILE:POSITION
// or a time. Forward is refused unless skip is set.
func SetPosition(ctx context.Context, w io.Writer, c *config.Config, log *slog.Logger, where string, skip bool) error {
	if err := needsSource(c); err != nil {
		return err
	}
	if c.EventLog.Kind == config.EventLogKafka {
		return setKafkaPosition(ctx, w, c, log, where, skip)
	}
	return setEmbeddedPosition(ctx, w, c, log, where, skip)
}

func setEmbeddedPosition(ctx context.Context, w io.Writer, c *config.Config, log *slog.Logger, where string,
	skip bool,
) (err error) {
	// The store is what a running freshet holds, so it is looked at first. It is made last: a place that the source
	// does not know must leave no store behind.
	s, err := openExisting(c)
	if err != nil && !errors.Is(err, embedded.ErrMissing) {
		return stopFirst(err)
	}
	if s != nil {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	to, err := locate(ctx, c, where)
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = embedded.Open(c.EventLog.Dir, embedded.Options{}); err != nil {
			return stopFirst(err)
		}
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	// Going back is a discontinuity as well: what is read again gets versions of its own. Before a first start there is
	// no epoch to go on from: the reader finds one.
	from := s.Checkpoint().Position()
	if from.Epoch > 0 {
		to.Epoch = from.Epoch + 1
	}
	return moveTo(w, log, &from, &to, skip, func(skipped *doubt.Doubt) error {
		if err := recordAlone(ctx, s, c, skipped); err != nil {
			return err
		}
		return s.Checkpoint().Set(to)
	})
}

// locate asks the source for a place that an operator names.
func locate(ctx context.Context, c *config.Config, where string) (event.Position, error) {
	o := connect.Source(c)
	return canal.Locate(ctx, o, where)
}

func stopFirst(err error) error {
	if errors.Is(err, embedded.ErrLocked) {
		return fmt.Errorf("%w; stop freshet before its position is set", err)
	}
	return err
}

// recordAlone records a doubt, if there is one, where no freshet runs.
func recordAlone(ctx context.Context, k doubt.Keeper, c *config.Config, d *doubt.Doubt) error {
	if d == nil {
		return nil
	}
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil) // the user is asked, and so knows
	if err != nil {
		return err
	}
	book, err := doubt.New(k, alarms, nil)
	if err != nil {
		return err
	}
	d.Source = c.Source.Name
	return book.Record(ctx, *d)
}

// moveTo sets the position by set, if it may be, and says so. If it leaves changes out, set keeps that as a doubt
// first.
func moveTo(w io.Writer, log *slog.Logger, from, to *event.Position, skip bool,
	set func(skipped *doubt.Doubt) error,
) error {
	var skipped *doubt.Doubt
	if ahead(from, to) {
		skipped = &doubt.Doubt{Cause: alarm.PositionSkipped, Message: "the position was set forward by hand, from " +
			from.String() + " to " + to.String() +
			": the changes between were not read, and their keys may be stale unless they were cleared"}
	}
	if !skip && skipped != nil {
		return fmt.Errorf("%s is ahead of the saved position %s: the changes between would never be invalidated, and "+
			"cached keys of theirs would stay stale; "+
			"clear those keys and add --skip if that is what you want", to.String(), from.String())
	}
	if err := set(skipped); err != nil {
		return err
	}
	log.Warn("position set by hand", "from", from.String(), "to", to.String(), "skip", skip)
	was := "none"
	if !from.IsZero() {
		was = from.String()
	}
	_, err := fmt.Fprintf(w, "position was %s, is now %s\n", was, to.String())
	return err
}

// ahead reports whether to leaves out anything that comes after from.
func ahead(from, to *event.Position) bool {
	switch {
	case from.IsZero():
		return false
	case !from.GTIDs.IsEmpty() || !to.GTIDs.IsEmpty():
		more := to.GTIDs.Subtract(&from.GTIDs)
		return !more.IsEmpty()
	case from.Server != to.Server:
		return true
	}
	return event.VersionAt(0, from.File, from.Pos).Compare(event.VersionAt(0, to.File, to.Pos)) < 0
}
