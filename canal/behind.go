package canal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// asksBehindEach is how often it is looked whether doubts about servers that lacked something can be answered.
const asksBehindEach = time.Second

// behind knows since when the server that is read has all that was read.
//
// A server that took over and lags shows its readers what was before changes whose keys have been deleted for good,
// and they fill the cache with that. What they saw is not known: it may have lacked more before it was first asked. So
// all keys are in doubt. They are forgotten once a server that lacks nothing has been read for as long as a reader may
// take: sooner, readers would cache the same once more.
type behind struct {
	// whole is since when; nil: it lacks something, or nothing is read yet.
	whole atomic.Pointer[time.Time]
	// recording is held while a doubt is recorded, or had answered: none is answered because of what was before it.
	recording sync.Mutex
	doubts    postponed
}

// lags notes that the server that answers lacks transactions that were handed on, and returns the error that has it
// asked again.
func (l *loop) lags(is *behindError) error {
	l.o.Alarms.Raise(alarm.SourceBehind, "source "+l.o.Source+": "+is.Error()+"; if it never will, choose where to go on "+
		"with `freshet position set … --skip`")
	if l.lagging == is.server || l.o.Follow { // what follows another stream is never ahead of it
		return is
	}
	if err := l.doubtBehind(is); err != nil {
		return err
	}
	l.lagging = is.server
	return is
}

// doubtBehind records that.
func (l *loop) doubtBehind(is *behindError) error {
	missing := shortened(is.missing.String())
	until := ""
	if !l.committed.IsZero() {
		until = ", the last of which was committed at " + l.committed.UTC().Format(time.RFC3339)
	}
	d := doubt.Doubt{
		Cause: alarm.ServerBehind, Source: l.o.Source,
		Message: "source " + l.o.Source + ": server " + is.server + " answers instead of " + is.was +
			" and lacked, when it first did, transactions whose keys were deleted already (" + missing + until + "): what " +
			"was cached from it before it had them is stale. All keys of the mappings are forgotten once it has all that was " +
			"read, or another server that has is read",
	}
	l.lag.recording.Lock()
	defer l.lag.recording.Unlock()
	l.lag.whole.Store(nil)
	d.Subject = is.server
	// One that is being answered by now is about an earlier time.
	for n := 2; l.answers(&d); n++ {
		d.Subject = fmt.Sprintf("%s (%d)", is.server, n)
	}
	if err := l.o.Doubts.Record(l.ctx, d); err != nil {
		return err
	}
	l.lag.doubts.add(d)
	return nil
}

// answers reports whether a doubt is there, and somebody has asked for the answer.
func (l *loop) answers(d *doubt.Doubt) bool {
	id := d.Named().ID
	return slices.ContainsFunc(l.o.Doubts.List(), func(is doubt.Doubt) bool { return is.ID == id && is.Asked })
}

// caughtUp notes that the server that is read from now on has all that was read.
func (l *loop) caughtUp() {
	l.lagging = ""
	now := time.Now()
	l.lag.whole.CompareAndSwap(nil, &now)
}

// watchBehind has the doubts about servers that lacked something answered, until ctx ends: also those of earlier runs.
func (c *Canal) watchBehind(ctx context.Context) {
	if c.o.Follow {
		return
	}
	for retry.Beat(ctx, asksBehindEach) == nil {
		if c.answerBehind(ctx) != nil {
			return // only ctx can stop it
		}
	}
}

// answerBehind does so once.
func (c *Canal) answerBehind(ctx context.Context) error {
	c.lag.recording.Lock()
	defer c.lag.recording.Unlock()
	if err := c.lag.doubts.keep(ctx, &c.o); err != nil {
		return err
	}
	if whole := c.lag.whole.Load(); whole == nil || time.Since(*whole) < c.o.FillSettles {
		return nil
	}
	due := c.lag.doubts.owed(slices.DeleteFunc(c.o.Doubts.List(), func(d doubt.Doubt) bool {
		return d.Cause != alarm.ServerBehind || d.Source != c.o.Source
	}))
	if len(due) == 0 {
		return nil
	}
	if err := c.lag.doubts.answer(ctx, &c.o, due); err != nil {
		return err
	}
	c.o.Logger.Info("the server that is read has all that another one lacked: all keys are forgotten", "source", c.o.Source)
	return nil
}
