package identity

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// fact is the name under which the identity is kept.
func (w *Watch) fact() string { return "redis/" + w.options.Source + w.options.Group }

// load returns who Redis was; nobody at the first start. It fails only with ctx.
func (w *Watch) load(ctx context.Context) (was known, err error) {
	loop := retry.Loop{Reporter: &retry.Reporter{Failed: func(err error) {
		w.deps.Alarms.Raise(alarm.StoreFailed, "it cannot be read which Redis this was, so a change of it goes unnoticed: "+
			err.Error())
	}}}
	err = loop.Do(ctx, func() error {
		text, err := w.deps.Facts.Fact(ctx, w.fact())
		if err == nil && text != nil {
			err = json.Unmarshal(text, &was)
		}
		if err == nil && w.deps.Name != nil {
			was.Stamp, err = w.deps.Name(ctx)
		}
		return err
	})
	if was.Stamp == "" {
		was.Stamp = rand.Text()[:12]
	}
	w.stamp.place(w.options.Prefix + StampKey + was.Stamp)
	w.leaveUnlooked()
	w.worksOn(was.Run)
	return was, err
}

// leaveUnlooked leaves the connections that nobody has looked at: they may lead to another server than those that are
// made from now on.
func (w *Watch) leaveUnlooked() {
	w.mu.Lock()
	unlooked := w.unlooked
	w.mu.Unlock()
	if unlooked {
		w.deps.Moved()
	}
}

// keep has the identity kept, and reports whether it is. What is not kept is tried again a second later.
func (w *Watch) keep(ctx context.Context, is known) bool {
	text, err := json.Marshal(is)
	if err == nil {
		err = w.deps.Facts.SetFact(ctx, w.fact(), text)
	}
	if err != nil && ctx.Err() == nil {
		w.deps.Alarms.Raise(alarm.StoreFailed,
			"it cannot be kept which Redis this is, so a change of it may be reported twice: "+err.Error())
	}
	return err == nil
}

// last keeps when Redis was seen last, at the end.
func (w *Watch) last(was, kept known) {
	if was.Seen.Equal(kept.Seen) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), asks)
	defer cancel()
	w.keep(ctx, was)
}
