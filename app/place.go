package app

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/retry"
)

// groupPlace is what a group's stamp in Redis says: up to where the group has finished all for good, and up to which
// number its answers to doubts have been given.
type groupPlace struct {
	kafka.Place
	Answered uint64 `json:"answered,omitempty"`
}

// settled is a place, as text, that held when it was last asked for.
type settled struct {
	text string
	at   time.Time
}

const (
	// settledEach is how often the brokers are asked how far the group is.
	settledEach = time.Second
	// settledFor is for how long the answer counts. A process that was stopped meanwhile may lead no more.
	settledFor = 5 * time.Second
)

// place returns up to where all is finished, as the group's stamp has it; false while keys of before may still be
// stale. What is in doubt is looked at again: a Redis that has just come back with older data gets no newer stamp
// before the doubt about that is answered.
func (g *groupAnswers) place() (string, bool) {
	s := g.settled.Load()
	if s == nil || time.Since(s.at) > settledFor || !g.leads.Load() || g.inDoubt() {
		return "", false
	}
	return s.text, true
}

// inDoubt reports whether any doubt is being answered, or will be.
func (g *groupAnswers) inDoubt() bool {
	return slices.ContainsFunc(g.doubts.List(), func(d doubt.Doubt) bool { return wanted(&d) && !d.Stuck })
}

// keepSettled keeps it known up to where the group has finished all for good, until ctx ends.
func (g *groupAnswers) keepSettled(ctx context.Context) {
	defer g.settled.Store(nil)
	defer g.straggler.Store(nil)
	var failed string
	for retry.Beat(ctx, settledEach) == nil {
		s, err := g.askSettled(ctx, g.settled.Load())
		if s != nil {
			g.settled.Store(s)
		}
		if err == nil {
			err = g.recordSplit(ctx)
		}
		switch {
		case err == nil:
			failed = ""
		case ctx.Err() == nil && err.Error() != failed:
			failed = err.Error()
			g.answering.log.Warn("it is not known how far the group is, so redis gets no stamp; trying again", "error", err)
		}
	}
}

// askSettled returns up to where the group has finished all for good, if that is so now; nil: it is not.
//
// The order counts. A key is parked before its record is finished, and a doubt about a source is durable before its
// reader writes what comes after it. So both are asked for after the offsets. And what the group has answered by the
// end is in Redis.
func (g *groupAnswers) askSettled(ctx context.Context, last *settled) (*settled, error) {
	at, err := g.log.Reached(ctx)
	if err != nil {
		return nil, err
	}
	if g.elsewhere(&at) {
		return nil, nil
	}
	if last != nil { // what was finished for good stays so, and at rest there is nothing more to ask
		if text, err := g.placeText(ctx, at); err == nil && text == last.text {
			return &settled{text, time.Now()}, nil
		}
	}
	if parked, err := g.log.Parked(ctx); err != nil || parked || g.hasLetters() {
		return nil, err
	}
	if err := g.doubts.Refresh(ctx); err != nil || g.inDoubt() {
		return nil, err
	}
	text, err := g.placeText(ctx, at)
	if err != nil {
		return nil, err
	}
	return &settled{text, time.Now()}, nil
}

// placeText returns a stamp.
func (g *groupAnswers) placeText(ctx context.Context, at kafka.Place) (string, error) {
	given, err := g.given.read(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(groupPlace{at, given.Number})
	return string(text), err
}
