package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
)

// trail keeps which doubts a group of invalidators has answered. The topic holds no record of a TRUNCATE, so to do
// changes again is not enough for a Redis that comes back with data of before the answer: it has to be given again.
//
// Answers are numbered, and a stamp in Redis says up to which number its data has them. A nil trail keeps nothing.
type trail struct {
	facts doubt.Facts
	group string

	mu sync.Mutex // one adds at a time
}

// answers are what a trail keeps.
type answers struct {
	// Number is that of the last answer.
	Number uint64 `json:"number"`
	// Left out are the answers up to a number, of doubts that came up to a time last: only so many are kept.
	LeftOut     uint64    `json:"left_out,omitempty"`
	LeftOutLast time.Time `json:"left_out_last,omitzero"`
	// Given are the last ones, in their order: of each doubt its last.
	Given []given `json:"given,omitempty"`
}

// given is an answer.
type given struct {
	Number uint64      `json:"number"`
	Doubt  doubt.Doubt `json:"doubt"`
}

const (
	// maxGiven is how many answers are kept.
	maxGiven = 100
	// maxTrail is how long they are, in bytes: half of what a fact can have.
	maxTrail = doubt.MaxFact / 2
)

func (t *trail) fact() string { return "answered/" + t.group }

// read returns what is kept.
func (t *trail) read(ctx context.Context) (a answers, err error) {
	text, err := t.facts.Fact(ctx, t.fact())
	if err == nil && text != nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		err = fmt.Errorf("which doubts group %s has answered: %w", t.group, err)
	}
	return a, err
}

// add takes note of an answer. It is durable when add returns nil, before the doubt ends.
//
// What came with older data is not among them: that data says itself what it lacks. Nor is what was answered before
// and is again (see [trail.again]), but for what an operator asked of some rows: nobody else has recorded that.
func (t *trail) add(ctx context.Context, d *doubt.Doubt) error {
	if t == nil || d.Cause == alarm.RedisChanged || d.Source != "" && d.Group != "" && d.Where == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a, err := t.read(ctx)
	if err != nil {
		return err
	}
	a.Number++
	a.Given = slices.DeleteFunc(a.Given, func(g given) bool { return g.Doubt.ID == d.ID })
	of := *d
	of.Definitions, of.Answer = nil, ""
	a.Given = append(a.Given, given{a.Number, of})
	text, err := json.Marshal(&a)
	for err == nil && (len(a.Given) > maxGiven || len(text) > maxTrail) {
		first := &a.Given[0]
		a.LeftOut = first.Number
		if first.Doubt.Last.After(a.LeftOutLast) {
			a.LeftOutLast = first.Doubt.Last
		}
		a.Given = a.Given[1:]
		text, err = json.Marshal(&a)
	}
	if err != nil {
		return err
	}
	return t.facts.SetFact(ctx, t.fact(), text)
}

// after returns the doubts that were answered after a number.
func (t *trail) after(ctx context.Context, number uint64) ([]doubt.Doubt, error) {
	a, err := t.read(ctx)
	if err == nil && (number < a.LeftOut || number > a.Number) {
		err = fmt.Errorf("%w: not all doubts are known that were answered since", errNotInTopic)
	}
	return a.given(func(g *given) bool { return g.Number > number }), err
}

// since returns the doubts that were answered and had come at a time or later.
func (t *trail) since(ctx context.Context, at time.Time) ([]doubt.Doubt, error) {
	a, err := t.read(ctx)
	if err == nil && !a.LeftOutLast.Before(at) {
		err = fmt.Errorf("%w: not all doubts are known that were answered since", errNotInTopic)
	}
	return a.given(func(g *given) bool { return !g.Doubt.Last.Before(at) }), err
}

func (a *answers) given(which func(*given) bool) (all []doubt.Doubt) {
	for i := range a.Given {
		if which(&a.Given[i]) {
			all = append(all, a.Given[i].Doubt)
		}
	}
	return all
}

// again has doubts answered again, for this group alone: they are recorded once more.
func (t *trail) again(ctx context.Context, book *doubt.Book, all []doubt.Doubt) error {
	for _, d := range all {
		d.Group, d.Asked = t.group, true
		if err := book.Record(ctx, d); err != nil {
			return err
		}
	}
	return nil
}
