package scope

import (
	"context"
	"io"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/router"
)

// partition is one of this package. An engine that is stopped returns without a fault, so it is asked what was done.
type partition interface {
	eventlog.Partition
	// finished reports whether all was handed out, and all of that is finished. It is asked once the engine has returned.
	finished() bool
}

// partitionID is the number of the partitions that scopes are, in logs. No log has it.
const partitionID = -1

// tally is what a partition knows about its batches: how many it has handed out, whether that is all, and how many of
// them are finished.
type tally struct {
	issued, done int
	ended        bool
}

// token is the ordinal of a batch.
type token struct {
	eventlog.Issued
	n int
}

// ID implements [eventlog.Partition].
func (*tally) ID() int { return partitionID }

// Commit implements [eventlog.Partition].
func (t *tally) Commit(of eventlog.Token) { t.done = of.(token).n }

func (t *tally) issue() token {
	t.issued++
	return token{n: t.issued}
}

func (t *tally) end() (*event.Batch, eventlog.Token, error) {
	t.ended = true
	return nil, nil, io.EOF
}

func (t *tally) finished() bool { return t.ended && t.done == t.issued }

// probe is a partition of one key: see "Two passes" in the package comment.
type probe struct {
	tally
	batch *event.Batch
}

func newProbe(t *Task) *probe {
	var d time.Duration
	for _, target := range t.Keys.Targets() {
		d = max(d, target.Mapping.Spec.SecondDelete)
	}
	b := &event.Batch{Source: t.Source, Age: event.Unknown, At: time.Now(), Leftover: true}
	if t.Source == "" || t.At.IsZero() {
		// It is what was read before now. Marks say nothing about that: any of them covers a place that is not known.
		b.Source, b.Age = "", 0
	}
	b.AddOrigin(event.Origin{Table: "scope", Event: t.At, D: d})
	b.Add(append(b.Text(), probed(t)...), t.At.Row, event.ActionDelete)
	return &probe{batch: b}
}

// probed returns the key that the probe deletes: what a template makes if each of its placeholders is probeText. The
// user has the same right to it as to the keys of the template, and it is nobody's key.
func probed(t *Task) (key string) {
	for _, target := range t.Keys.Targets() {
		text, constant := "", true
		for _, n := range target.Action.Key.Parts {
			if n.Kind == router.NodeLiteral {
				text += n.Lit
			} else {
				text, constant = text+probeText, false
			}
		}
		if !constant {
			return text
		}
		key = text + ":" + probeText // not the key itself: a counter must not begin again
	}
	return key
}

const probeText = "freshet:probe"

// Fetch implements [eventlog.Partition].
func (p *probe) Fetch(context.Context) (*event.Batch, eventlog.Token, error) {
	b := p.batch
	if p.batch = nil; b == nil {
		return p.end()
	}
	return b, p.issue(), nil
}
