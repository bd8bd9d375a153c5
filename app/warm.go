package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// warming carries out warm-ups, one after the other, in the order in which they were asked for. One is no doubt, since
// nothing is stale.
//
// Each is a fact of its own. The process that is asked writes it, and the one that carries it out drops it: with Kafka
// any invalidator of the group may be asked. How far the first one is, and how the last ones ended, is another fact,
// which only the one that carries them out writes. So they go on after a restart, or in another member. It is safe for
// concurrent use.
type warming struct {
	*walking
	// saving is held while it is kept how far a warm-up is: two goroutines do.
	saving sync.Mutex
	mu     sync.Mutex
	// tasks and state are as they were last read, if they were: loaded.
	tasks  []warmUp
	state  warmState
	loaded bool
	// life names this one's time of carrying them out: see by.
	life string
	// over are the names of the facts that are left of those that have ended.
	over []string
	// running is the one that is under way here, as of the task; nil: none is.
	running *walked
	of      warmUp
}

// warmUp is one, as it was asked for.
type warmUp struct {
	ID    string    `json:"id"`
	Table string    `json:"table"`
	Where string    `json:"where,omitempty"`
	Asked time.Time `json:"asked"`
	// Cancelled says that it has to end.
	Cancelled bool `json:"cancelled,omitempty"`
}

// warmState is how far warm-ups are.
type warmState struct {
	// ID and Asked say which is under way, Rows, Keys and Place how far all of it is finished, and Answer how it is going.
	ID    string    `json:"id,omitempty"`
	Asked time.Time `json:"asked,omitzero"`
	// By names who carries it out. A member that was stopped, and has not heard that another one leads the group, would
	// begin keys under newer versions than that one finishes them with.
	By   string `json:"by,omitempty"`
	Rows int64  `json:"rows,omitempty"`
	Keys int64  `json:"keys,omitempty"`
	// Passed is how many rows were passed over, those included that do not meet the condition.
	Passed int64      `json:"passed,omitempty"`
	Place  walk.Place `json:"place,omitzero"`
	// Handed is up to which rows keys may have been begun, with versions up to Version.
	Handed  walk.Place    `json:"handed,omitzero"`
	Version event.Version `json:"version,omitzero"`
	Answer  string        `json:"answer,omitempty"`
	// Progress is what is shown of it.
	Progress *event.Progress `json:"progress,omitempty"`
	// Ended are the last that have ended, the newest first.
	Ended []EndedWarmUp `json:"ended,omitempty"`
}

// is reports whether a task is the one that is under way.
func (s *warmState) is(t *warmUp) bool { return s.ID == t.ID && s.Asked.Equal(t.Asked) }

// ended reports whether it is kept how a task has ended. Its own fact may be there still.
func (s *warmState) ended(t *warmUp) bool {
	return slices.ContainsFunc(s.Ended, func(e EndedWarmUp) bool { return e.ID == t.ID && e.Asked.Equal(t.Asked) })
}

// maxWarmUps is how many may wait, and maxEndedWarmUps how many of the ended ones are known.
const maxWarmUps, maxEndedWarmUps = 10, 10

// fact is what the names begin with under which warm-ups are kept, and stateFact is where it is kept how far they are.
func (w *warming) fact() string      { return "warm/" + w.whose + "/" }
func (w *warming) stateFact() string { return "warmed/" + w.whose }

// load reads what is kept.
func (w *warming) load(ctx context.Context) error {
	kept, err := w.facts.FactsUnder(ctx, w.fact())
	if err != nil {
		return err
	}
	text, err := w.facts.Fact(ctx, w.stateFact())
	var state warmState
	if err == nil && text != nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return fmt.Errorf("how far warm-ups are: %w", err)
	}
	var tasks []warmUp
	var over []string
	for name, text := range kept {
		var t warmUp
		switch {
		case json.Unmarshal(text, &t) != nil || name != w.fact()+t.ID: // another group's, whose name goes on
		case state.ended(&t):
			over = append(over, name)
		default:
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b warmUp) int { return cmp.Or(a.Asked.Compare(b.Asked), strings.Compare(a.ID, b.ID)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks, w.state, w.over, w.loaded = tasks, state, over, true
	return nil
}

// follow keeps it known which warm-ups there are, until ctx ends.
func (w *warming) follow(ctx context.Context) error {
	for {
		_ = w.load(ctx) // who carries them out says what is wrong
		if retry.Beat(ctx, looksEach) != nil {
			return nil
		}
	}
}

// keep keeps a value as a fact.
func (w *warming) keep(ctx context.Context, name string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a condition is full of < and >
	if err := enc.Encode(value); err != nil {
		return err
	}
	return w.facts.SetFact(ctx, name, b.Bytes())
}

// Warm implements admin.Warming: the same request, made again before it has ended, is the same warm-up.
func (w *warming) Warm(ctx context.Context, of admin.WarmUp) (string, error) {
	mappings, err := w.mappings(ctx)
	if err != nil {
		return "", err
	}
	rows, err := operate.WalkOf(mappings, of.Table, of.Where)
	if err != nil {
		return "", err
	}
	if err := operate.Warms(w.config, mappings, rows); err != nil {
		return "", err
	}
	if err := operate.TryWalk(ctx, w.config, mappings, rows); err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q%q", of.Table, of.Where)
	task := warmUp{ID: hex.EncodeToString(h.Sum(nil))[:12], Table: of.Table, Where: of.Where, Asked: time.Now().UTC()}
	if err := w.load(ctx); err != nil {
		return "", err
	}
	w.mu.Lock()
	same := slices.ContainsFunc(w.tasks, func(t warmUp) bool { return t.ID == task.ID && !t.Cancelled })
	many := len(w.tasks) >= maxWarmUps
	w.mu.Unlock()
	switch {
	case same:
		return task.ID, nil
	case many:
		return "", fmt.Errorf("%d warm-ups have not ended: wait for them (`freshet status`), or cancel some", maxWarmUps)
	}
	if err := w.keep(ctx, w.fact()+task.ID, task); err != nil {
		return "", err
	}
	return task.ID, w.load(ctx)
}

// CancelWarmUp implements admin.Warming.
func (w *warming) CancelWarmUp(ctx context.Context, id string) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	i := slices.IndexFunc(w.tasks, func(t warmUp) bool { return t.ID == id })
	if i < 0 {
		w.mu.Unlock()
		return admin.ErrNoWarmUp
	}
	t := w.tasks[i]
	w.mu.Unlock()
	t.Cancelled = true
	if err := w.keep(ctx, w.fact()+id, t); err != nil {
		return err
	}
	return w.load(ctx)
}

// first returns the warm-up that is next, ready to be walked; nil: there is none.
func (w *warming) first() (t warmUp, k *walked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running = nil; len(w.tasks) == 0 {
		return t, nil
	}
	t = w.tasks[0]
	schema, name, _ := router.ParseTable(t.Table)
	k = &walked{Walk: operate.Walk{Schema: schema, Name: name, Where: t.Where}}
	if w.state.is(&t) {
		k.from, k.done = w.state.Place, w.state.Place
		k.handed, k.version, k.least = w.state.Handed, w.state.Version, w.state.Version
		k.resume(w.state.Rows, w.state.Keys, w.state.Passed)
	}
	k.handing = func(ctx context.Context) error {
		if w.group != "" {
			if err := w.doubts.Refresh(ctx); err != nil { // of facts as well
				return err
			}
		}
		switch wanted, err := w.save(ctx, &t, k); {
		case err != nil:
			return err
		case !wanted:
			return errDismissed
		}
		return nil
	}
	w.running, w.of = k, t
	return t, k
}

// runAll carries out warm-ups until ctx ends.
func (w *warming) runAll(ctx context.Context) error {
	defer w.rest()
	w.mu.Lock()
	w.life = rand.Text()[:12]
	w.mu.Unlock()
	for retry.Beat(ctx, looksEach) == nil {
		if err := w.endCancelled(ctx); err != nil {
			w.options.Log.Warn("it cannot be read which warm-ups were asked for; trying again", "error", err)
			continue
		}
		t, k := w.first()
		if k == nil {
			continue
		}
		if err := w.take(ctx, &t, k); err != nil {
			w.options.Log.Warn("it cannot be kept who carries a warm-up out; trying again", "warm_up", t.ID, "error", err)
			continue
		}
		err := w.runWhile(ctx, k, func(ctx context.Context) bool { return w.reached(ctx, &t, k) })
		answer := ""
		var never walk.Refusal
		var later notYet
		_, _ = w.save(ctx, &t, k) // else what was handed out is forgotten, or written, once more
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answer = fmt.Sprintf("%d rows read, %d keys written or forgotten", k.rows.Load(), k.keys.Load())
		case errors.As(err, &never):
			if !w.forgetBegun(ctx, &t) {
				continue
			}
			answer = err.Error()
			w.options.Log.Warn("a warm-up cannot go on", "warm_up", t.ID, "error", err)
		case errors.As(err, &later):
			why := later.Error()
			k.trouble.Store(&why)
			w.reached(ctx, &t, k)
			continue
		case errors.Is(err, errDismissed), errors.Is(err, errRemapped):
			continue
		default:
			return fmt.Errorf("warm-up: %w", err)
		}
		loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}}
		if loop.Do(ctx, func() error { return w.end(ctx, &t, k, err == nil, answer) }) == nil {
			w.options.Log.Info("a warm-up has ended", "warm_up", t.ID, "rows", k.rows.Load(), "keys", k.keys.Load())
		}
	}
	return nil
}

// rest says that none is under way here any more.
func (w *warming) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = nil
}

// endCancelled reads which warm-ups there are, ends those that were cancelled, and drops what is left of former ones.
func (w *warming) endCancelled(ctx context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	tasks, over := slices.Clone(w.tasks), w.over
	w.mu.Unlock()
	for _, name := range over {
		if err := w.facts.DropFact(ctx, name); err != nil {
			return err
		}
	}
	for _, t := range tasks {
		if t.Cancelled && w.forgetBegun(ctx, &t) {
			if err := w.end(ctx, &t, nil, false, "it was cancelled"); err != nil {
				return err
			}
		}
	}
	return nil
}

// end keeps how a warm-up has ended, and then drops it. k is its walk; nil: it is not under way.
func (w *warming) end(ctx context.Context, t *warmUp, k *walked, done bool, answer string) error {
	w.mu.Lock()
	state := w.state
	w.mu.Unlock()
	e := EndedWarmUp{
		WarmUp: WarmUp{ID: t.ID, Table: t.Table, Some: t.Where != "", Asked: t.Asked, Answer: answer},
		Ended:  time.Now().UTC(), Done: done, Cancelled: t.Cancelled,
	}
	if state.is(t) {
		e.Rows, e.Keys = state.Rows, state.Keys
		state = warmState{Ended: state.Ended}
	}
	if k != nil {
		e.Rows, e.Keys = k.rows.Load(), k.keys.Load()
	}
	// The other tries of this end are out: it may be tried again after it took effect.
	state.Ended = slices.DeleteFunc(slices.Clone(state.Ended), func(o EndedWarmUp) bool {
		return o.ID == t.ID && o.Asked.Equal(t.Asked)
	})
	state.Ended = slices.Insert(state.Ended, 0, e)
	state.Ended = state.Ended[:min(len(state.Ended), maxEndedWarmUps)]
	if err := w.keep(ctx, w.stateFact(), state); err != nil {
		return err
	}
	if err := w.facts.DropFact(ctx, w.fact()+t.ID); err != nil {
		return err
	}
	w.rest()
	return w.load(ctx)
}

// reached keeps how far a warm-up has come; false: it was cancelled.
func (w *warming) reached(ctx context.Context, t *warmUp, k *walked) bool {
	k.meter()
	wanted, err := w.save(ctx, t, k)
	if err != nil && ctx.Err() == nil {
		w.options.Log.Warn("it cannot be kept how far a warm-up is; after a restart it would begin earlier", "error", err)
	}
	return wanted || err != nil
}

// take has it known that a warm-up is carried out here from now on. Who had it before begins nothing more once it has
// heard of that, and has begun nothing at a newer version than the topic of marks has by now: see [walking.run].
func (w *warming) take(ctx context.Context, t *warmUp, k *walked) error {
	w.saving.Lock()
	defer w.saving.Unlock()
	_, err := w.keepState(ctx, t, k, true)
	return err
}

// save keeps how far a warm-up has come, and what of it may have been begun beyond that. It reports whether the warm-up
// is wanted still, and of this one.
func (w *warming) save(ctx context.Context, t *warmUp, k *walked) (wanted bool, err error) {
	w.saving.Lock()
	defer w.saving.Unlock()
	if err := w.load(ctx); err != nil {
		return true, err
	}
	return w.keepState(ctx, t, k, false)
}

// keepState is save for what was loaded, or take.
func (w *warming) keepState(ctx context.Context, t *warmUp, k *walked, takes bool) (wanted bool, err error) {
	w.mu.Lock()
	there := slices.ContainsFunc(w.tasks, func(o warmUp) bool { return o.ID == t.ID && o.Asked.Equal(t.Asked) })
	if !takes && w.state.is(t) && w.state.By != w.life {
		w.mu.Unlock()
		return false, nil
	}
	wanted = slices.Contains(w.tasks, *t)
	state := warmState{
		ID: t.ID, Asked: t.Asked, By: w.life, Rows: k.rows.Load(), Keys: k.keys.Load(), Passed: k.passed.Load(),
		Answer: k.going(), Progress: k.progress.Load(), Ended: w.state.Ended,
	}
	k.mu.Lock()
	state.Place, state.Handed, state.Version = k.done, k.handed, k.version
	k.mu.Unlock()
	same := reflect.DeepEqual(state, w.state)
	w.mu.Unlock()
	if !there || same {
		return wanted, nil
	}
	return wanted, w.keep(ctx, w.stateFact(), state)
}

// forgetBegun has keys forgotten that an earlier life of a warm-up may have begun and not finished. The first action of
// a value leaves the version of the walk next to the key. The final action of an older change of the key does nothing
// then, and relies on that of the walk, which does not come any more. false: it has to be tried again.
func (w *warming) forgetBegun(ctx context.Context, t *warmUp) bool {
	w.mu.Lock()
	state := w.state
	w.mu.Unlock()
	if !state.is(t) || state.Handed.Key == nil || reflect.DeepEqual(state.Handed, state.Place) {
		return true
	}
	schema, name, _ := router.ParseTable(t.Table)
	k := &walked{
		Walk: operate.Walk{Schema: schema, Name: name, Forget: true},
		from: state.Place, until: state.Handed, least: state.Version,
	}
	err := w.runWhile(ctx, k, func(context.Context) bool { return true })
	var never walk.Refusal
	switch {
	case errors.As(err, &never): // a table that is gone is a doubt of its own
		w.options.Log.Warn("keys that a warm-up has begun cannot be forgotten", "warm_up", t.ID, "error", err)
	case err != nil:
		return false
	}
	return true
}
