package operate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/retry"
)

// checkStart looks whether the source has what freshet would begin with.
func checkStart(ctx context.Context, c *config.Config, saved *event.Position, r *Report) {
	o := connect.Source(c)
	if saved.IsZero() {
		p, err := canal.Locate(ctx, o, o.Start)
		if err != nil {
			r.add(Fail, fmt.Sprintf("there is no checkpoint yet, and the source has no source.start %s: %v", o.Start, err),
				"set source.start to a place that the source has, or to earliest or now")
			return
		}
		r.add(OK, fmt.Sprintf("there is no checkpoint yet: freshet would begin at %s (source.start %s)", p.String(), o.Start), "")
		return
	}
	switch err := canal.GoesOn(ctx, o, saved); {
	case err == nil:
		r.add(OK, "the source has what follows the checkpoint "+saved.String(), "")
	case errors.Is(err, retry.ErrHalt) && c.OnGap == config.GapInvalidate:
		r.add(Warn, err.Error(), "freshet would forget all mapped keys, and go on from now (on_gap: invalidate)")
	case errors.Is(err, retry.ErrHalt):
		r.add(Fail, err.Error(), "or set on_gap to invalidate: freshet forgets all mapped keys then")
	default:
		r.add(Warn, err.Error(), "")
	}
}

// checkStore looks whether freshet can keep its state, and returns the position that is kept there. It does not know it
// where freshet would not start, or runs.
func checkStore(c *config.Config, r *Report) (saved event.Position, known bool) {
	dir := c.EventLog.Dir
	s, err := embedded.OpenReadOnly(dir, embedded.Options{})
	switch {
	case errors.Is(err, embedded.ErrLocked):
		r.add(OK, fmt.Sprintf("eventlog.dir %s is in use by a freshet that runs", dir), "")
		return saved, false
	case err == nil:
		saved = s.Checkpoint().Position()
		err = s.Close()
	case errors.Is(err, embedded.ErrMissing):
		err = nil
	}
	if err != nil {
		r.add(Fail, err.Error(), "")
		return saved, false
	}
	if err := tryDir(dir); err != nil {
		r.add(Fail, fmt.Sprintf("eventlog.dir %s: freshet could not keep its state there: %v", dir, err),
			"make it for the user that freshet runs as, and check as that user")
		return saved, false
	}
	r.add(OK, fmt.Sprintf("eventlog.dir %s can be written", dir), "")
	return saved, true
}

// trialBytes is how many bytes are written for a trial: about as many as a new store has.
const trialBytes = 64 << 10

// tryDir writes a file in a directory and removes it. Of a directory that is not there it looks whether it can be made,
// and makes none.
func tryDir(dir string) error {
	at, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	missing := false
	is, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at, missing = filepath.Dir(at), true
		is, err = os.Stat(at)
	}
	switch {
	case err != nil:
		return err
	case !is.IsDir():
		return fmt.Errorf("%s is no directory", at)
	case !missing:
		return tryFile(at)
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("it cannot be made in %s: %w", at, err)
	}
	return nil
}

func tryFile(dir string) error {
	f, err := os.CreateTemp(dir, "check-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, trialBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
