package retry

import (
	"context"
	"fmt"
	"time"
)

// Loop makes attempts at one thing until one succeeds: it owns the waits between them, knows for how long they have
// failed, and has a [Reporter] say so. The zero Loop tries forever, with the waits of a zero [Backoff], and says
// nothing.
//
// [Loop.Do] is the whole of it. Where attempts are made by something else, that calls [Loop.Failed] and
// [Loop.Succeeded] after each.
//
// It belongs to one goroutine at a time.
type Loop struct {
	// Backoff spaces the attempts. A success begins its waits again.
	Backoff Backoff
	// Reporter says that attempts fail and that one has succeeded. Loops may share one. Nil: nothing is said.
	Reporter *Reporter
	// Final reports whether no later attempt would help: [Loop.Do] then returns the error. Nil: none is final.
	Final func(err error) bool
	// Note is called with each failure that is not final, reported or not, and with the time since the first in a row.
	Note func(err error, lasting time.Duration)

	since    time.Time // of the first failure in a row
	reported bool      // the Reporter counts this loop among those that fail
}

// Do calls attempt until it succeeds, until an error is [Loop.Final], which it returns, or until ctx ends: then it
// returns both the context's error and the last attempt's. The first attempt is made also if ctx has ended before.
func (l *Loop) Do(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		switch {
		case err == nil:
			l.Succeeded()
			return nil
		case l.Final != nil && l.Final(err):
			return err
		}
		if ended := l.Wait(ctx, err); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// Wait takes note of a failure and waits for the next attempt. What fails once ctx has ended is not noted. It returns
// the context's error if that ends first.
func (l *Loop) Wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return Sleep(ctx, l.Failed(err))
}

// Failed takes note of a failure. It returns how long to wait before the next attempt.
func (l *Loop) Failed(err error) (wait time.Duration) {
	now := time.Now()
	if l.since.IsZero() {
		l.since = now
	}
	lasting := now.Sub(l.since)
	if l.Note != nil {
		l.Note(err, lasting)
	}
	if l.Reporter.failed(err, lasting, !l.reported) {
		l.reported = true
	}
	return l.Backoff.Next()
}

// Failing reports whether the last attempt failed.
func (l *Loop) Failing() bool { return !l.since.IsZero() }

// Succeeded takes note of a success.
func (l *Loop) Succeeded() {
	if l.Failing() {
		l.end(time.Since(l.since))
	}
}

// Stop is for a loop that shares its [Reporter] and is given up: the Reporter waits no longer for its success.
func (l *Loop) Stop() { l.end(-1) }

func (l *Loop) end(lasted time.Duration) {
	if l.reported {
		l.Reporter.ended(lasted)
	}
	l.since, l.reported = time.Time{}, false
	l.Backoff.Reset()
}
