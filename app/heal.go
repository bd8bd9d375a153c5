package app

import (
	"context"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// A mapping that did not fit fits again with a statement, and the next row of its table shows that. Nobody knows when
// that one comes, so the source is asked as well while there is such a doubt.

const (
	// healsEach is how often the source is asked, and healsWithin for how long its answer counts: everything up to it
	// must be finished by then.
	healsEach   = 10 * time.Second
	healsWithin = time.Minute
)

// healAll has doubts about mappings answered that fit by now, until ctx ends.
func (r *reading) healAll(ctx context.Context) error {
	for retry.Beat(ctx, healsEach) == nil {
		_ = r.healFit(ctx) // who reads the source says what is wrong with it
	}
	return nil
}

// healFit has the doubts answered about mappings that fit the tables as they are. Rows of before may be on their way
// still, so it waits until everything up to now is finished.
func (r *reading) healFit(ctx context.Context) error {
	t := r.reader.troubles
	if !slices.ContainsFunc(t.doubts.List(), t.unfitted) {
		return nil
	}
	began := time.Now()
	tables, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	route, err := router.New(r.config.Mappings, router.Options{}) // that of the reader is the reader's
	if err != nil {
		return err
	}
	found := route.Unfit(tables)
	for r.fresh.at().Before(asked) {
		if time.Since(asked) > healsWithin {
			return nil
		}
		if err := retry.Sleep(ctx, finishedEach); err != nil {
			return err
		}
	}
	return t.healBy(ctx, tables, found, r.fresh.upTo(), began)
}

// unfitted reports whether a doubt is about a mapping that does not fit, and nobody has asked for its answer since.
func (t *troubles) unfitted(d doubt.Doubt) bool {
	return d.Cause == alarm.MappingUnfit && d.Source == t.source && (!d.Asked || d.Last.After(d.AskedAt))
}

// healBy has doubts answered about mappings that fit these tables, of which found is what does not. All changes of when
// the source was asked have a version of up to at. What has come since then stays.
func (t *troubles) healBy(ctx context.Context, tables []*event.Table, found []router.Misfit, at event.Version,
	asked time.Time,
) error {
	t.fitting.Lock()
	defer t.fitting.Unlock()
	still := map[string]bool{}
	for _, f := range found {
		still[unfitDoubt(t.source, f).Named().ID] = true
	}
	for _, d := range t.doubts.List() {
		over := func(table *event.Table) bool { return t.over(&d, table) }
		if !t.unfitted(d) || still[d.ID] || !d.Last.Before(asked) || !slices.ContainsFunc(tables, over) {
			continue
		}
		if err := t.heal(ctx, d, at); err != nil {
			return err
		}
	}
	return nil
}
