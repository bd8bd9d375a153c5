package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// warming carries out warm-ups, one after the other, in the order in which they were asked for. One is no doubt, since
// nothing is stale: it is kept as a fact of its own, with how far it has come, and goes on after a restart. It is safe
// for concurrent use.
type warming struct {
	*walking
	mu sync.Mutex
	// tasks are those that are not ended, and running the first of them while it is under way.
	tasks   []*warmUp
	running *walked
	// ended are the last that this process has ended, the newest first.
	ended []EndedWarmUp
}

// warmUp is one, as it is kept.
type warmUp struct {
	ID    string     `json:"id"`
	Table string     `json:"table"`
	Where string     `json:"where,omitempty"`
	Asked time.Time  `json:"asked"`
	Rows  int64      `json:"rows"`
	Keys  int64      `json:"keys"`
	Place walk.Place `json:"place"`
}

// WarmUp is a warm-up that is not ended. Its condition is not shown: it may hold values of rows.
type WarmUp struct {
	ID    string    `json:"id"`
	Table string    `json:"table"`
	Some  bool      `json:"some"` // there is a condition
	Asked time.Time `json:"asked"`
	// Rows and Keys are how many have been read, and dealt with.
	Rows int64 `json:"rows"`
	Keys int64 `json:"keys"`
	// Answer says in a sentence how it is going.
	Answer string `json:"answer"`
}

// EndedWarmUp is a warm-up that has ended.
type EndedWarmUp struct {
	WarmUp
	Ended time.Time `json:"ended"`
	// Done says that all rows were read. Else it was cancelled, or could not go on: Answer says why.
	Done bool `json:"done"`
}

// maxWarmUps is how many may wait, and maxEndedWarmUps how many of the ended ones are known.
const maxWarmUps, maxEndedWarmUps = 10, 10

// fact is the name under which warm-ups are kept.
func (w *warming) fact() string { return "warm/" + w.config.Source.Name }

// load takes what was kept.
func (w *warming) load(ctx context.Context) error {
	text, err := w.facts.Fact(ctx, w.fact())
	if err != nil || text == nil {
		return err
	}
	if err := json.Unmarshal(text, &w.tasks); err != nil {
		return fmt.Errorf("the warm-ups that were kept: %w", err)
	}
	return nil
}

// save keeps the tasks. The caller holds mu.
func (w *warming) save(ctx context.Context) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a condition is full of < and >
	if err := enc.Encode(w.tasks); err != nil {
		return err
	}
	return w.facts.SetFact(ctx, w.fact(), b.Bytes())
}

// Warm implements admin.Warming: the same request, made again before it has ended, is the same warm-up.
func (w *warming) Warm(ctx context.Context, of admin.WarmUp) (string, error) {
	rows, err := operate.WalkOf(w.config, of.Table, of.Where)
	if err != nil {
		return "", err
	}
	if err := operate.Warms(w.config, rows); err != nil {
		return "", err
	}
	if err := operate.TryWalk(ctx, w.config, rows); err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q%q", of.Table, of.Where)
	task := &warmUp{ID: hex.EncodeToString(h.Sum(nil))[:12], Table: of.Table, Where: of.Where, Asked: time.Now().UTC()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.tasks, func(t *warmUp) bool { return t.ID == task.ID }) {
		return task.ID, nil
	}
	if len(w.tasks) >= maxWarmUps {
		return "", fmt.Errorf("%d warm-ups have not ended: wait for them (`freshet status`), or cancel some", maxWarmUps)
	}
	w.tasks = append(w.tasks, task)
	if err := w.save(ctx); err != nil {
		w.tasks = w.tasks[:len(w.tasks)-1]
		return "", err
	}
	return task.ID, nil
}

// CancelWarmUp implements admin.Warming.
func (w *warming) CancelWarmUp(ctx context.Context, id string) error {
	return w.end(ctx, id, false, "it was cancelled")
}

// end takes a warm-up out, and says how it ended.
func (w *warming) end(ctx context.Context, id string, done bool, answer string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.tasks, func(t *warmUp) bool { return t.ID == id })
	if i < 0 {
		return admin.ErrNoWarmUp
	}
	t := w.tasks[i]
	shown := w.show(t)
	w.tasks = slices.Delete(slices.Clone(w.tasks), i, i+1)
	if err := w.save(ctx); err != nil {
		w.tasks = slices.Insert(w.tasks, i, t)
		return err
	}
	if w.running != nil && i == 0 {
		w.running = nil
	}
	shown.Answer = answer
	w.ended = slices.Insert(w.ended, 0, EndedWarmUp{WarmUp: shown, Ended: time.Now().UTC(), Done: done})
	w.ended = w.ended[:min(len(w.ended), maxEndedWarmUps)]
	return nil
}

// show returns what is shown of a task. The caller holds mu.
func (w *warming) show(t *warmUp) WarmUp {
	s := WarmUp{
		ID: t.ID, Table: t.Table, Some: t.Where != "", Asked: t.Asked, Rows: t.Rows, Keys: t.Keys,
		Answer: "waiting for the one before it",
	}
	if w.tasks[0] != t {
		return s
	}
	s.Answer = "about to begin"
	if k := w.running; k != nil {
		s.Rows, s.Keys = k.rows.Load(), k.keys.Load()
		s.Answer = "reading rows"
		if trouble := k.trouble.Load(); trouble != nil {
			s.Answer = "waiting for the source: " + *trouble
		}
	}
	return s
}

// status fills in what is known of warm-ups.
func (w *warming) status(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tasks {
		s.WarmUps = append(s.WarmUps, w.show(t))
	}
	s.EndedWarmUps = slices.Clone(w.ended)
}

// first returns the warm-up that is next, ready to be walked; nil: there is none.
func (w *warming) first() (string, *walked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tasks) == 0 {
		return "", nil
	}
	t := w.tasks[0]
	schema, name, _ := router.ParseTable(t.Table)
	k := &walked{Walk: operate.Walk{Schema: schema, Name: name, Where: t.Where}, from: t.Place, done: t.Place}
	k.rows.Store(t.Rows)
	k.keys.Store(t.Keys)
	w.running = k
	return t.ID, k
}

// runAll carries out warm-ups until ctx ends.
func (w *warming) runAll(ctx context.Context) error {
	for retry.Sleep(ctx, looksEach) == nil {
		if _, marked := w.visible(w.config.Source.Name); !marked {
			continue
		}
		id, k := w.first()
		if k == nil {
			continue
		}
		err := w.runWhile(ctx, k, func(ctx context.Context) bool { return w.reached(ctx, id, k) })
		answer := ""
		var never walk.Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answer = fmt.Sprintf("%d rows read, %d keys written or forgotten", k.rows.Load(), k.keys.Load())
		case errors.As(err, &never):
			answer = err.Error()
			w.options.Log.Warn("a warm-up cannot go on", "warm_up", id, "error", err)
		case errors.Is(err, errDismissed):
			continue
		default:
			return fmt.Errorf("warm-up: %w", err)
		}
		loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}}
		if loop.Do(ctx, func() error {
			if err := w.end(ctx, id, err == nil, answer); err != nil && !errors.Is(err, admin.ErrNoWarmUp) {
				return err
			}
			return nil
		}) == nil {
			w.options.Log.Info("a warm-up has ended", "warm_up", id, "rows", k.rows.Load(), "keys", k.keys.Load())
		}
	}
	return nil
}

// reached keeps how far the first warm-up has come; false: it was cancelled.
func (w *warming) reached(ctx context.Context, id string, k *walked) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tasks) == 0 || w.tasks[0].ID != id || w.running != k {
		return false
	}
	t := w.tasks[0]
	place := k.reached()
	if slices.Equal(place.After, t.Place.After) && slices.Equal(place.Key, t.Place.Key) {
		return true
	}
	t.Place, t.Rows, t.Keys = place, k.rows.Load(), k.keys.Load()
	if err := w.save(ctx); err != nil && ctx.Err() == nil {
		w.options.Log.Warn("it cannot be kept how far a warm-up is; after a restart it would begin earlier", "error", err)
	}
	return true
}
