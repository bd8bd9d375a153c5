package doubt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	// most is how many doubts a book takes of one cause. Beyond it they become one about every table.
	most = 200
	// again is for how long a doubt that was just put is only counted in memory when it comes again.
	again = time.Second
	// other is the cause that the metric gives to doubts of a cause that this version does not know.
	other alarm.Kind = "other"
)

// Book is the list of what is in doubt. A nil Book logs to slog.Default and keeps nothing, so that a test need not make
// one.
type Book struct {
	alarms *alarm.Board
	keeper Keeper
	open   *prometheus.GaugeVec
	// writing has room for one: who writes to the keeper, or reads all of it.
	writing chan struct{}
	// repeated is raised when something must be put that nobody waits for.
	repeated chan struct{}

	mu     sync.Mutex
	loaded bool
	// shared is what is known of groups of invalidators; nil: there are none to tell apart.
	shared *sharing
	// describe add to what is recorded.
	describe []func(d *Doubt)
	doubts   map[string]*entry
	// ended are the last that this process has seen to, the newest last.
	ended []Ended
}

// New returns a book that raises an alarm with each doubt and keeps it in k; nil: in memory only. It is empty until
// [Book.Load], and keeps up with what others write to k while [Book.Run] runs.
func New(k Keeper, alarms *alarm.Board, reg prometheus.Registerer) (*Book, error) {
	b := &Book{
		alarms: alarms, keeper: k, loaded: k == nil, doubts: map[string]*entry{},
		writing: make(chan struct{}, 1), repeated: make(chan struct{}, 1),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshet_doubts",
			Help: "Reasons why keys may be stale, until somebody dismisses them, by cause.",
		}, []string{"cause"}),
	}
	b.count()
	if reg == nil {
		return b, nil
	}
	return b, reg.Register(b.open)
}

// Loaded reports whether it is known what is kept.
func (b *Book) Loaded() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loaded
}

// Describe has f add to each doubt what is known where it is recorded, before it is. f must be quick.
func (b *Book) Describe(f func(d *Doubt)) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.describe = append(b.describe, f)
}

// Record adds a doubt, or counts it once more, and raises its alarm. It returns when the doubt is durable: what caused
// it must not be passed over before. While it cannot be kept it tries again, with an alarm, until ctx ends; then it
// returns ctx's error, and the caller must not go on.
//
// One that is durable and comes again soon is counted in memory, and put a little later by [Book.Run]; but not if it
// says from where on changes are done again, or has a place in the binlog and other processes answer it.
func (b *Book) Record(ctx context.Context, d Doubt) error {
	if b == nil {
		var none *alarm.Board
		none.Raise(d.Cause, d.Message)
		return nil
	}
	b.mu.Lock()
	describe := b.describe
	b.mu.Unlock()
	for _, add := range describe {
		add(&d)
	}
	id, durable := b.note(d)
	if d.Cause != alarm.ByHand { // the operator knows
		b.alarms.Raise(d.Cause, d.Message)
	}
	if durable {
		return nil
	}
	return b.insist(ctx, "a doubt cannot be saved, so the work that caused it waits", func() error {
		if !b.Loaded() {
			if err := b.Load(ctx); err != nil {
				return err
			}
		}
		return b.put(ctx, id)
	})
}

// note enters d in memory, so that the status says so from here on, and reports whether it is durable and only the
// repeat must be put at some time.
func (b *Book) note(d Doubt) (id string, durable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.normalize()
	if b.doubts[d.ID] == nil && b.of(d.Cause) >= most {
		d.Tables, d.Schemas, d.Templates, d.Subject, d.Pattern, d.From, d.Lost = nil, nil, nil, "", "", "", nil
		d.Message = fmt.Sprintf("more than %d doubts of this kind: all keys of every mapped table may be stale, clear them",
			most)
		d.normalize()
	}
	now := time.Now().UTC().Round(0)
	e := b.doubts[d.ID]
	if e == nil {
		e = &entry{Doubt: d}
		e.Since, e.Count, e.Definitions = now, 0, nil // which are added below
		b.doubts[d.ID] = e
		b.count()
	}
	if !now.After(e.Last) { // a clock that was set back: what came later is later all the same, see Dismiss
		now = e.Last.Add(1)
	}
	e.Last, e.Message, e.behind = now, d.Message, true
	e.Count++
	if e.Stuck {
		e.begin()
	}
	e.Asked = e.Asked || d.Asked
	if d.At.Compare(e.At) > 0 {
		e.At = d.At
	}
	wider := e.lose(d.Lost)
	if b.shared != nil {
		b.count() // what our group had settled is in doubt again
	}
	e.define(d.Definitions)
	// How far changes were done again counts for as long as Last is what it was then. And where groups settle the doubt,
	// a place that they do not know of must not be lost with this process; nor that more records are lost than they know.
	at := d.From != "" || wider || b.shared != nil && !d.At.IsZero()
	if durable = !at && !e.ending && !e.put.IsZero() && time.Since(e.put) <= again; durable {
		raise(b.repeated)
	}
	return d.ID, durable
}

// put makes a doubt durable as it stands now, once.
func (b *Book) put(ctx context.Context, id string) error {
	done, err := b.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.write(ctx, id)
}

// write is put for the caller that has the turn.
func (b *Book) write(ctx context.Context, id string) error {
	b.mu.Lock()
	e := b.doubts[id]
	if e == nil || !e.behind { // somebody has put it, or dismissed it with what came last in view
		b.mu.Unlock()
		return nil
	}
	d := e.Doubt
	d.Answer, d.Progress, d.Stuck = "", nil, false
	b.mu.Unlock()
	if b.keeper != nil {
		if err := b.keeper.PutDoubt(ctx, d); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.put = time.Now() // it stays the entry while it is our turn
	if e.behind = e.Count != d.Count || e.Asked != d.Asked || e.AskedAt.After(d.AskedAt); e.behind {
		raise(b.repeated)
	}
	return nil
}

// of returns how many doubts have a cause.
func (b *Book) of(c alarm.Kind) (n int) {
	for _, e := range b.doubts {
		if e.Cause == c {
			n++
		}
	}
	return n
}

// count sets the metric.
func (b *Book) count() {
	n := map[alarm.Kind]int{other: 0}
	for _, c := range Causes() {
		n[c] = 0
	}
	for _, e := range b.doubts {
		if b.shared.hidden(&e.Doubt) {
			continue
		}
		c := e.Cause
		if _, known := n[c]; !known {
			c = other
		}
		n[c]++
	}
	for c, v := range n {
		b.open.WithLabelValues(string(c)).Set(float64(v))
	}
}

// List returns the doubts, oldest first: with [Book.Share] without those that only other groups must still settle.
func (b *Book) List() []Doubt {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Doubt, 0, len(b.doubts))
	for _, e := range b.doubts {
		if b.shared.hidden(&e.Doubt) {
			continue
		}
		d := e.Doubt
		b.shared.describe(&d)
		out = append(out, d)
	}
	slices.SortFunc(out, older)
	return out
}

// Ask has a doubt answered that freshet does not answer by itself, or once more one that is stuck. It returns
// [ErrUnknown] if there is none with this ID, and returns when that is durable.
func (b *Book) Ask(ctx context.Context, id string) error {
	if b == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	b.mu.Lock()
	e := b.doubts[id]
	if e != nil {
		// Each time is kept: the process that answers may be another one, and stuck since the last time.
		now := time.Now().UTC().Round(0)
		if !now.After(e.AskedAt) {
			now = e.AskedAt.Add(1)
		}
		e.ask(true, now)
		e.behind = true
	}
	if e != nil && e.Stuck {
		e.begin()
	}
	b.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	return b.put(ctx, id)
}

// Insist is [Book.Ask] for a caller that nobody waits for: if the answer cannot be asked for durably it tries again,
// with an alarm, until ctx ends; then it returns ctx's error. A doubt that was dismissed meanwhile is no error.
func (b *Book) Insist(ctx context.Context, id string) error {
	return b.insist(ctx, "that a doubt can be answered now cannot be saved",
		func() error { return unlessGone(b.Ask(ctx, id)) })
}

// Restart dismisses a doubt that begins again, in the way of [Book.Insist].
func (b *Book) Restart(ctx context.Context, id string) error {
	return b.insist(ctx, "a doubt that begins again cannot be saved, so reading waits",
		func() error { return unlessGone(b.Dismiss(ctx, id, time.Time{})) })
}

// unlessGone returns an error of a change to a doubt, but for that which says that the doubt is not there any more.
func unlessGone(err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

// insist tries until something is durable, with an alarm, or ctx ends. It fails only with ctx.
func (b *Book) insist(ctx context.Context, failed string, keep func() error) error {
	loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}, Reporter: &retry.Reporter{Failed: func(err error) {
		b.alarms.Raise(alarm.StoreFailed, failed+": "+err.Error())
	}}}
	return loop.Do(ctx, keep)
}

// Say sets how a doubt is being answered, if it is still there.
func (b *Book) Say(id, answer string) { b.Reached(id, answer, nil) }

// Reached is Say with how far the answer is; nil: that is not known.
func (b *Book) Reached(id, answer string, p *event.Progress) {
	b.say(&Doubt{ID: id, Progress: p}, answer, false)
}

// Stuck sets why a doubt cannot be answered, if it is still there: nothing more will happen by itself. That holds until
// the doubt comes again, somebody asks for it ([Book.Ask]), or it is resumed ([Book.Resume]). If it has come or was
// asked for since it was as in d, it is not stuck; a d without Last is the doubt as it is now.
func (b *Book) Stuck(d Doubt, why string) {
	d.Progress = nil
	b.say(&d, why, true)
}

// Resume has a doubt that is stuck, as in d, be answered once more: what kept it from that is over.
func (b *Book) Resume(d Doubt) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.doubts[d.ID]; e != nil && e.Stuck && e.Answer == d.Answer {
		e.begin()
	}
}

func (b *Book) say(d *Doubt, answer string, stuck bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.doubts[d.ID]
	switch {
	case e == nil:
	case stuck && !d.Last.IsZero() && (e.Last.After(d.Last) || e.AskedAt.After(d.AskedAt)):
		e.begin()
	default:
		e.Answer, e.Progress, e.Stuck = answer, d.Progress, stuck
	}
}

// goesOn says that nobody drops what is kept of a doubt any more.
func (b *Book) goesOn(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.ending = false
}

// remove removes a doubt. If it concerns all groups, and not all are meant, it is settled for ours.
func (b *Book) remove(ctx context.Context, id string, seen time.Time, all bool) error {
	done, err := b.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	b.mu.Lock()
	e := b.doubts[id]
	var d Doubt
	if e != nil {
		d, e.ending = e.Doubt, true
		defer b.goesOn(e)
	}
	b.mu.Unlock()
	switch {
	case e == nil:
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	case !seen.IsZero() && d.Last.After(seen):
		return fmt.Errorf("doubt %s: %w, at %s", id, ErrCameAgain, d.Last.Format(time.RFC3339Nano))
	case d.Group == "" && !all:
		return b.settle(ctx, &d)
	}
	if b.keeper != nil {
		if err := b.keeper.DropDoubt(ctx, id); err != nil {
			return fmt.Errorf("dismiss doubt %s: %w", id, err)
		}
	}
	b.mu.Lock()
	again := e.Count != d.Count
	if again {
		e.renew(b) // while it was being dropped; who recorded it relies on it being kept
	} else {
		delete(b.doubts, id)
		b.count()
	}
	b.mu.Unlock()
	if again {
		return b.write(ctx, id)
	}
	return b.forgetSettled(ctx, id)
}
