package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// byWalk reports whether a doubt is about the keys of rows that meet a condition: only the rows say which these are.
func (a *answering) byWalk(d doubt.Doubt) bool { return d.Where != "" }

// walkAll answers the doubts about rows that meet a condition, one after the other, until ctx ends.
func (a *answering) walkAll(ctx context.Context) error {
	for retry.Beat(ctx, looksEach) == nil {
		due := slices.DeleteFunc(a.open(), func(d doubt.Doubt) bool { return !a.byWalk(d) })
		if len(due) == 0 {
			continue
		}
		d := due[0]
		if _, marked := a.visible(d.Source); !marked {
			continue
		}
		schema, name, _ := router.ParseTable(d.Tables[0])
		k := &walked{Walk: operate.Walk{Schema: schema, Name: name, Where: d.Where, Forget: true}}
		w, err := a.walks(d.Source)
		if err != nil {
			a.doubts.Say(d.ID, err.Error())
			continue
		}
		err = a.walkOf(ctx, w, due[:1], []*walked{k})
		var never walk.Refusal
		var later notYet
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &never):
			if a.stuck(ctx, due[:1], func(id string) string {
				return fmt.Sprintf("its rows cannot be read: %v; have all keys of the table forgotten (`freshet "+
					"invalidate --table`), and `freshet doubts dismiss %s`", err, id)
			}) != nil {
				return nil
			}
			continue
		case errors.As(err, &later):
			a.doubts.Say(d.ID, later.Error())
			continue
		case errors.Is(err, errDismissed), errors.Is(err, errRemapped):
			continue
		case err != nil:
			return fmt.Errorf("answer doubts: %w", err)
		}
		done := fmt.Sprintf("%d keys of %d rows forgotten", k.keys.Load(), k.rows.Load())
		if err := a.dismiss(ctx, &d, done); err != nil {
			return nil // ctx has ended
		}
	}
	return nil
}

// forgetRows has the keys of rows forgotten, of the mappings that ask for this instead of a look at Redis. It begins
// once everybody can see what doubts are about, and all changes up to there are finished: so what its rows do not have
// yet is not stale, and no older value is written after it. It returns false if it cannot be done. It fails only with
// ctx, or when the engine does.
func (a *answering) forgetRows(ctx context.Context, parts []*part, due []doubt.Doubt, say func(string, ...any),
) (ended bool, err error) {
	for _, p := range parts {
		tables := p.Rows(due)
		if len(tables) == 0 {
			continue
		}
		w, err := a.walks(p.Source)
		if err != nil {
			return false, a.stuck(ctx, due, func(id string) string {
				return fmt.Sprintf("mappings of its tables have scope: rows, and %v; then `freshet doubts answer %s`", err, id)
			})
		}
		waits := func(until string) { say("before rows are read it waits until %s", until) }
		if err := a.finished(ctx, due, waits); err != nil {
			return false, err
		}
		if err := await(ctx, a.newest(p.Source), latest(due)); err != nil {
			return false, err
		}
		var walks []*walked
		for _, t := range tables {
			walks = append(walks, &walked{Walk: t, by: p.Hash})
		}
		err = a.walkOf(ctx, w, due, walks)
		var never walk.Refusal
		var later notYet
		switch {
		case errors.As(err, &later):
			say("%v", later)
			return false, nil
		case errors.Is(err, errDismissed), errors.Is(err, errRemapped):
			return false, nil
		case errors.As(err, &never):
			return false, a.stuck(ctx, about(due, err), func(id string) string {
				return fmt.Sprintf("the rows of its tables cannot be read: %v; write another scope, or delete the keys, and `freshet "+
					"doubts dismiss %s`", err, id)
			})
		case err != nil:
			return false, err
		}
		for _, k := range walks {
			p.forgotten += k.keys.Load()
		}
	}
	return true, nil
}

// tableError is an error of the walk of a table.
type tableError struct {
	error
	table *event.Table
}

// Unwrap returns the walk's own error.
func (e *tableError) Unwrap() error { return e.error }

// about returns the doubts that are about the table of an error: the others are answered without its rows.
func about(due []doubt.Doubt, err error) []doubt.Doubt {
	var of *tableError
	if !errors.As(err, &of) {
		return due
	}
	return slices.DeleteFunc(slices.Clone(due), func(d doubt.Doubt) bool { return !operate.TableInDoubt(&d, of.table) })
}

// stuck says of doubts that nothing more happens by itself, and why. It fails only with ctx.
func (a *answering) stuck(ctx context.Context, due []doubt.Doubt, why func(id string) string) error {
	for _, d := range due {
		a.doubts.Stuck(d, why(d.ID))
		if err := a.tell(ctx, d.ID); err != nil {
			return err
		}
	}
	return nil
}

// walkedFor is how far the walks for doubts have come.
type walkedFor struct {
	Table string     `json:"table"`
	Place walk.Place `json:"place"`
	Rows  int64      `json:"rows"`
	Keys  int64      `json:"keys"`
	// Passed is how many rows were passed over, those included that do not meet the condition.
	Passed int64 `json:"passed,omitempty"`
}

// walkFact is the name under which that is kept.
func (w *walking) walkFact() string {
	if w.group == "" {
		return "walk/" + w.whose
	}
	return "walk/" + w.group + "/" + w.config.Source.Name
}

// walkOf walks tables, in the order of their names, until all keys of their rows are forgotten. It fails with
// errDismissed once nobody waits for that any more, and otherwise as [walking.runWhile] does.
func (a *answering) walkOf(ctx context.Context, w *walking, due []doubt.Doubt, walks []*walked) error {
	of := &due[0]
	var at walkedFor
	if place := placeKept(ctx, w.facts, w.walkFact(), of); place != nil && json.Unmarshal(place, &at) != nil {
		at = walkedFor{}
	}
	tables := func(k *walked) string { return k.Schema + "." + k.Name }
	if i := slices.IndexFunc(walks, func(k *walked) bool { return tables(k) == at.Table }); i >= 0 {
		walks = walks[i:]
		walks[0].from, walks[0].done = at.Place, at.Place
		walks[0].resume(at.Rows, at.Keys, at.Passed)
	}
	for _, k := range walks {
		err := a.walkTable(ctx, w, due, k, func() error {
			return keepPlace(ctx, w.facts, w.walkFact(), of, walkedFor{
				tables(k), k.reached(), k.rows.Load(), k.keys.Load(), k.passed.Load(),
			})
		})
		if k.Where == "" && walk.IsMissing(err) {
			continue // a table that is gone has no rows
		}
		if err != nil {
			return &tableError{err, &event.Table{Schema: k.Schema, Name: k.Name}}
		}
	}
	return nil
}

// walkTable walks one table, and keeps how far it has come with save.
func (a *answering) walkTable(ctx context.Context, w *walking, due []doubt.Doubt, k *walked, save func() error) error {
	return w.runWhile(ctx, k, func(ctx context.Context) bool {
		k.meter()
		if dismissed(a.doubts, due...) {
			return false
		}
		if err := save(); err != nil && ctx.Err() == nil {
			a.log.Warn("it cannot be kept how far a walk is; after a restart it would begin again", "error", err)
		}
		said := fmt.Sprintf("being answered, by reading the rows of %s.%s: %d rows read, %d keys forgotten", k.Schema, k.Name,
			k.rows.Load(), k.keys.Load())
		if trouble := k.trouble.Load(); trouble != nil {
			said += "; waiting for the source: " + *trouble
		}
		for _, d := range due {
			a.doubts.Reached(d.ID, said, k.progress.Load())
		}
		return true
	})
}
