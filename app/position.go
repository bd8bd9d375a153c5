package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
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

// ShowPosition prints the saved position of a freshet that does not run; `freshet status` has that of one that does.
func ShowPosition(_ context.Context, w io.Writer, c *config.Config, raw bool) error {
	s, err := embedded.OpenReadOnly(c.EventLog.Dir, embedded.Options{})
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return fmt.Errorf("%w; `freshet status` shows the position of a running freshet", err)
	case errors.Is(err, embedded.ErrMissing):
		return fmt.Errorf("there is no position: %w", err)
	case err != nil:
		return err
	}
	p := s.Checkpoint().Position()
	if err := s.Close(); err != nil {
		return err
	}
	if raw {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(savedPosition{p.Flavor, p.Server, p.Epoch, p.GTIDs.String(), p.File, p.Pos, p.Committed})
	}
	if p.IsZero() {
		_, err = fmt.Fprintln(w, "there is no position yet")
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n  file %s:%d of server %s (%s), epoch %d\n", p.String(), p.File, p.Pos, p.Server, p.Flavor, p.Epoch)
	if err == nil && !p.Committed.IsZero() {
		_, err = fmt.Fprintf(w, "  last finished transaction was committed at %s\n", p.Committed.Format(time.RFC3339Nano))
	}
	return err
}

// SetPosition sets the saved position of a freshet that does not run to what an operator says: gtid:SET, FILE:POSITION
// or a time. Forward is refused unless skip is set.
func SetPosition(ctx context.Context, w io.Writer, c *config.Config, log *slog.Logger, where string, skip bool) (err error) {
	// The store is what a running freshet holds, so it is looked at first. It is made last: a place that the source
	// does not know must leave no store behind.
	s, err := openExisting(c)
	if err != nil && !errors.Is(err, embedded.ErrMissing) {
		return stopFirst(err)
	}
	if s != nil {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	o, err := sourceOptions(c)
	if err != nil {
		return err
	}
	to, err := canal.Locate(ctx, o, where)
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = embedded.Open(c.EventLog.Dir, embedded.Options{}); err != nil {
			return stopFirst(err)
		}
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	return moveTo(w, log, s, to, skip)
}

func stopFirst(err error) error {
	if errors.Is(err, embedded.ErrLocked) {
		return fmt.Errorf("%w; stop freshet before its position is set", err)
	}
	return err
}

func moveTo(w io.Writer, log *slog.Logger, s *embedded.Store, to event.Position, skip bool) error {
	from := s.Checkpoint().Position()
	if !skip && ahead(&from, &to) {
		return fmt.Errorf("%s is ahead of the saved position %s: the changes between would never be invalidated, and cached keys of theirs would stay stale; "+
			"clear those keys and add --skip if that is what you want", to.String(), from.String())
	}
	// Going back is a discontinuity as well: what is read again gets versions of its own.
	to.Epoch = from.Epoch + 1
	if err := s.Checkpoint().Set(to); err != nil {
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
	a, b := fileNumber(from.File), fileNumber(to.File)
	return b > a || b == a && to.Pos > from.Pos
}
