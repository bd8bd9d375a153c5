package canal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt"
)

// postponed are doubts whose answer must wait until readers fill the cache with what is right again: what is forgotten
// before, they cache once more as it was. But an operator may ask for the answer at any time. That one counts for
// nothing, so the doubt comes again, and is answered again once it is time.
//
// One goroutine at a time uses it.
type postponed struct {
	// open are those of this run, by ID. asked are those of which the answer was asked for in time, with when they had
	// come last then.
	open  map[string]doubt.Doubt
	asked map[string]time.Time
}

// add takes a doubt that was recorded.
func (p *postponed) add(d doubt.Doubt) {
	if p.open == nil {
		p.open = map[string]doubt.Doubt{}
	}
	p.open[d.Named().ID] = d
}

// owed returns those of the doubts there are whose answer was not asked for in time.
func (p *postponed) owed(there []doubt.Doubt) []doubt.Doubt {
	return slices.DeleteFunc(there, func(d doubt.Doubt) bool {
		at, asked := p.asked[d.ID]
		return asked && d.Asked && d.Last.Equal(at)
	})
}

// keep records those again that were answered too early. What an operator has dismissed has ended. It fails only with
// ctx.
func (p *postponed) keep(ctx context.Context, o *Options) error {
	for id, d := range p.open {
		if isIn(o.Doubts.List(), id) {
			continue
		}
		e, err := o.Doubts.Ending(ctx, id)
		switch {
		case err == nil && e.How == doubt.HowAnswered:
			if err := o.Doubts.Record(ctx, d); err != nil {
				return err
			}
		case err == nil, errors.Is(err, doubt.ErrUnknown):
			delete(p.open, id)
		} // else it is asked for again: it is not known now, or the doubt has come again
	}
	return nil
}

// answer has doubts answered, since it is time. It fails only with ctx.
func (p *postponed) answer(ctx context.Context, o *Options, due []doubt.Doubt) error {
	for _, d := range due {
		if d.Asked { // what is under way must not end it
			d.Asked, d.Answer, d.Progress, d.Stuck = false, "", nil, false
			if err := o.Doubts.Record(ctx, d); err != nil {
				return err
			}
		}
		if err := o.Doubts.Insist(ctx, d.ID); err != nil {
			return err
		}
		for _, is := range o.Doubts.List() {
			if is.ID == d.ID {
				if p.asked == nil {
					p.asked = map[string]time.Time{}
				}
				p.asked[d.ID] = is.Last
			}
		}
		delete(p.open, d.ID)
	}
	return nil
}

func isIn(all []doubt.Doubt, id string) bool {
	return slices.ContainsFunc(all, func(d doubt.Doubt) bool { return d.ID == id })
}
