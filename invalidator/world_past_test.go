package invalidator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// What the world's process does besides the log: walks, which read rows from their table, scopes, which search Redis
// twice, and redos, once Redis has gone back to what it held before. The keys go through the engine as one more
// partition. What is under way when the process is killed is done again by its next life: a redo goes on where it was.

// unlogged is the value of a row before a statement that no event tells of: it is older than whatever the row holds.
const unlogged = -2

// errand is one of these things.
type errand struct {
	what string
	// since is when it is known that it must be done, and at when it is begun.
	since, at time.Duration
	do        func(ctx context.Context, p *process, e *Engine) error

	done  bool
	place int // how many records a redo has done; guarded by the world's mu, like done
}

// snapshot is what Redis goes back to.
type snapshot struct {
	saved, back time.Duration

	cache  map[string]int
	guards map[string]mark
	writer map[string]bool
	stamp  int
}

// drawPast draws what is done besides the log. It draws nothing where there is no such thing, so that worlds without it
// stay as they are.
func (s *scenario) drawPast(yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	if s.walk+s.scope+s.goBack == 0 || s.isKafka && (s.isLiar || !yes(s.apart)) {
		return
	}
	s.isApart = s.isKafka
	for row := range s.kinds {
		s.kinds[row].told = false // nobody is told of what is only forgotten
	}
	until := s.last() + 2*s.d
	for n := range 2 {
		if yes(s.walk) {
			at := span(0, until)
			s.errands = append(s.errands, s.aWalk(fmt.Sprintf("walk %d", n), at, at, yes(0.3)))
			s.drawUnlogged(at, yes, span)
		}
		if yes(s.scope) {
			c := &s.changes[int(span(0, time.Duration(len(s.changes))))]
			s.errands = append(s.errands, s.aScope(fmt.Sprintf("scope %d", n), c, c.event, c.event+span(0, s.d)))
			s.drawUnlogged(slices.Min(c.visible), yes, span)
		}
	}
	s.drawBacks(yes, span)
	s.drawLeader(yes, span)
	s.settleEnd()
}

// drawLeader draws what becomes of the other process, if there is one: it is killed at any step of what it does.
func (s *scenario) drawLeader(yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	if !s.isApart {
		return
	}
	for range 3 {
		if len(s.errands) > 0 && yes(s.crash) {
			from := s.errands[int(span(0, time.Duration(len(s.errands))))].at
			if yes(0.7) {
				from += span(0, 2*s.d)
			}
			s.leaderCrashes = append(s.leaderCrashes, window{from: from, to: from + span(0, 2*s.d)})
		}
	}
	slices.SortFunc(s.leaderCrashes, func(a, b window) int { return int(a.from - b.from) })
	// One whose leftovers come when Redis has forgotten what their keys' guards knew may write an older value: see "Known,
	// and not answered yet" in docs/guarantees.md.
	if len(s.evicts) == 0 && yes(s.linger) {
		s.lingers = span(0, 3*s.d)
	}
}

// drawUnlogged has readers read rows just before a moment, of which no event tells that they changed.
func (s *scenario) drawUnlogged(at time.Duration, yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	for row := range s.rows {
		f := fill{row: row, read: max(0, at-span(1, 3*time.Millisecond)), unlogged: true}
		if s.mayNotBe(f) {
			continue
		}
		if f.written = f.read; !s.kinds[row].instant {
			s.write(&f, yes, span)
		}
		s.fills = append(s.fills, f)
	}
}

// drawBacks has Redis go back, and what it lacks then done again.
func (s *scenario) drawBacks(yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	asked := slices.Clone(s.errands)
	for n := range 2 {
		if !yes(s.goBack) {
			continue
		}
		b := &snapshot{saved: span(0, s.last()+3*s.d)}
		b.back = b.saved + span(0, 3*s.d)
		s.backs = append(s.backs, b)
		notice := b.back + span(0, s.d)
		s.errands = append(s.errands, &errand{
			what: fmt.Sprintf("redo %d", n), since: b.back, at: notice,
			do: func(ctx context.Context, p *process, e *Engine) error { return p.redo(ctx, e, b, notice) },
		})
		// What no row of the log tells of is asked for again.
		for _, a := range asked {
			again := *a
			again.what, again.since, again.at = a.what+" again", b.back, max(a.at, notice)
			s.errands = append(s.errands, &again)
		}
	}
}

// aWalk is a walk over all rows, which are written or forgotten.
func (s *scenario) aWalk(what string, since, at time.Duration, forget bool) *errand {
	return &errand{what: what, since: since, at: at, do: func(ctx context.Context, p *process, e *Engine) error {
		p.w.mu.Lock()
		life := p.life
		p.w.mu.Unlock()
		return p.serve(ctx, e, &walkedRows{side: side{p: p}, e: e, forget: forget, life: life})
	}}
}

// aScope is a search for all keys, because of what happened where a change stands.
func (s *scenario) aScope(what string, c *change, since, at time.Duration) *errand {
	return &errand{what: what, since: since, at: at, do: func(ctx context.Context, p *process, e *Engine) error {
		return p.search(ctx, e, slices.IndexFunc(p.w.changes, func(o change) bool { return o.event == c.event }))
	}}
}

// startPast has Redis save what it holds, and go back to that, at the times that were drawn.
func (w *world) startPast() {
	for _, b := range w.backs {
		w.after(b.saved, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			b.cache, b.guards, b.writer = maps.Clone(w.cache), maps.Clone(w.guards), maps.Clone(w.writer)
			b.stamp = w.stamp
			w.note("SAVED, stamp %d", w.stamp)
		})
		w.after(b.back, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cache, w.guards, w.writer = maps.Clone(b.cache), maps.Clone(b.guards), maps.Clone(b.writer)
			w.stamp = b.stamp
			w.runs++
			w.dials.Add(1)
			w.note("BACK to what was saved at %s, stamp %d", b.saved, w.stamp)
		})
	}
}

// moveStamp has Redis say up to which record everything is finished, unless something is in doubt. The caller holds mu.
func (p *process) moveStamp() {
	w := p.w
	if w.isApart {
		return // that is the other process's: see stamps
	}
	if p.settled() {
		w.stamp = p.committed
	}
}

// settled reports whether nothing is parked, dead or in doubt. The caller holds mu.
func (p *process) settled() bool {
	for _, of := range []*process{p, p.leader, p.of} {
		if of == nil {
			continue
		}
		if parked, dead := of.store.counts(); parked+dead > 0 {
			return false
		}
	}
	w := p.w
	return !slices.ContainsFunc(w.errands, func(e *errand) bool { return !e.done && e.since <= w.now() })
}

// stamps has Redis say up to which record everything is finished, as the process does that leads its group: it asks the
// brokers how far the group is, and then what may keep that from being for good. What it writes comes some time later,
// and only to the Redis that it has looked at.
func (p *process) stamps(ctx context.Context) {
	w := p.w
	for ctx.Err() == nil {
		w.mu.Lock()
		committed, runs, way := p.of.committed, w.runs, w.delay()
		looked := w.now() + way
		if w.chance(0.2) {
			way += time.Duration(w.rng.Int64N(int64(w.d)))
		}
		wait := time.Duration(w.rng.Int64N(int64(w.askEvery)))
		w.mu.Unlock()
		if w.until(ctx, looked) != nil {
			return
		}
		w.mu.Lock()
		settled := p.settled()
		w.mu.Unlock()
		if w.until(ctx, looked+way) != nil {
			return
		}
		w.mu.Lock()
		if settled && runs == w.runs && committed > w.stamp {
			w.stamp = committed
		}
		w.mu.Unlock()
		_ = w.until(ctx, w.now()+wait)
	}
}

// runErrands does, in one life, what is not done yet.
func (p *process) runErrands(ctx context.Context, e *Engine, life int) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range p.w.errands {
		all.Go(func() {
			p.w.mu.Lock()
			done := r.done
			p.w.mu.Unlock()
			if done || p.w.until(ctx, r.at) != nil {
				return
			}
			p.note("%s begins", r.what)
			err := r.do(ctx, p, e)
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			if ctx.Err() != nil || life != p.life {
				return
			}
			if err != nil {
				p.failure = fmt.Errorf("%s: %w", r.what, err)
			}
			r.done = true
			p.w.note("%s is over", r.what)
		})
	}
}

func (p *process) note(format string, args ...any) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note(format, args...)
}

// ranErrands reports whether all is done. The caller holds mu.
func (w *world) ranErrands() bool {
	return !slices.ContainsFunc(w.errands, func(e *errand) bool { return !e.done })
}

// sidePartition is one that says whether all of it is finished.
type sidePartition interface {
	eventlog.Partition
	finished() bool
}

// serve has the engine do all of a partition.
func (p *process) serve(ctx context.Context, e *Engine, part sidePartition) error {
	if err := e.ServeGently(ctx, part); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if !part.finished() {
		return errors.New("the engine ended before all was finished")
	}
	return nil
}

// side is what partitions besides the log have in common.
type side struct {
	p            *process
	issued, done int
	ended        bool
}

// ID implements [eventlog.Partition].
func (*side) ID() int { return -1 }

// Commit implements [eventlog.Partition].
func (b *side) Commit(t eventlog.Token) { b.done = t.(simToken).record }

func (b *side) finished() bool { return b.ended && b.done == b.issued }

func (b *side) issue() simToken {
	b.issued++
	return simToken{record: b.issued}
}

func (b *side) end() (*event.Batch, eventlog.Token, error) {
	b.ended = true
	return nil, nil, io.EOF
}

// walkedRows are the rows of the table, one after the other.
type walkedRows struct {
	side
	e      *Engine
	forget bool
	row    int
	least  event.Version
	life   int
}

// Fetch implements [eventlog.Partition].
func (r *walkedRows) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	w := r.p.w
	if r.row == w.rows {
		return r.end()
	}
	if r.row == 0 {
		w.mu.Lock()
		for _, m := range r.p.lastMarks {
			if m.Version.Compare(r.least) > 0 {
				r.least = m.Version // another process may have heard it, and finished what it covers
			}
		}
		w.mu.Unlock()
	}
	m, marked := r.e.Newest("s")
	for ; !marked || m.Version.Compare(r.least) < 0; m, marked = r.e.Newest("s") {
		if err := w.until(ctx, w.now()+50*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
	asked := time.Now()
	w.mu.Lock()
	there, back := w.delay(), w.delay()
	if w.chance(0.3) {
		back += time.Duration(w.rng.Int64N(int64(2 * w.d))) // it waits for its turn
	}
	w.mu.Unlock()
	if err := w.until(ctx, w.now()+there); err != nil {
		return nil, nil, err
	}
	value := w.valueAt(r.row, 0, w.now())
	if err := w.until(ctx, w.now()+back); err != nil {
		return nil, nil, err
	}
	if r.p.isOver(r.life) { // it is asked before what may be begun is kept, and after the mark was heard
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	v := m.Version
	b := event.Batch{Source: "s", Term: m.Term, Age: event.Unknown, At: asked, Read: asked, Leftover: r.forget}
	at := v
	at.Row = 0
	for _, d := range w.mappings(r.row) {
		b.AddOrigin(event.Origin{Table: "shop.row", Event: at, D: d, Mapping: r.row, RateLimit: w.kinds[r.row].limit})
		it := w.item(b.Text(), r.row, value)
		it.Row = v.Row
		b.AddItem(it)
	}
	r.p.note("row %d is read as of change %d, under %s", r.row, value, v)
	r.row++
	return b.Clone(), r.issue(), nil
}

// redoneRecords are records of the log once more.
type redoneRecords struct {
	side
	errand *errand
	from   int
	until  time.Duration
}

// redo does the records from the stamp on again that were there when it was noticed that Redis went back.
func (p *process) redo(ctx context.Context, e *Engine, b *snapshot, noticed time.Duration) error {
	w := p.w
	w.mu.Lock()
	at := slices.IndexFunc(w.errands, func(r *errand) bool { return r.since == b.back && r.at == noticed })
	r := w.errands[at]
	from := max(b.stamp, r.place)
	w.mu.Unlock()

	return p.serve(ctx, e, &redoneRecords{
		side: side{p: p, issued: from, done: from}, errand: r, from: from, until: noticed,
	})
}

// Fetch implements [eventlog.Partition].
func (r *redoneRecords) Fetch(context.Context) (*event.Batch, eventlog.Token, error) {
	if r.from == len(r.p.records) || r.p.records[r.from].at > r.until {
		return r.end()
	}
	b := r.p.w.batch(r.p.records[r.from].changes, r.p.records[r.from].term)
	b.Leftover, b.Age, b.At = true, event.Unknown, time.Now()
	r.from++
	return b, r.issue(), nil
}

// Commit implements [eventlog.Partition].
func (r *redoneRecords) Commit(t eventlog.Token) {
	r.side.Commit(t)
	r.p.w.mu.Lock()
	defer r.p.w.mu.Unlock()
	r.errand.place = r.done
}

// search has all keys of the rows forgotten, because of what happened at the place of a change.
func (p *process) search(ctx context.Context, e *Engine, place int) error {
	w := p.w
	var of []spectest.Mapping
	for row := range w.rows {
		m := spectest.Keys(w.key(row)).D(w.bound(row))
		if w.kinds[row].values {
			m.Rebuild = spectest.FromRow(event.FormJSON, "id")
		}
		of = append(of, m)
	}
	r, err := router.New(spectest.Specs(of...), router.Options{})
	if err != nil {
		return err
	}
	keys, err := keyspace.New(r.Mappings(), []*event.Table{spectest.Product()}, "")
	if err != nil {
		return err
	}
	s, err := scope.New(scope.Deps{
		Redis: searched{w}, Serve: e.Serve, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, scope.Options{})
	if err != nil {
		return err
	}
	newest := func() event.Version { v, _ := e.Visible("s"); return v }
	return s.Run(ctx, scope.Task{
		Keys: keys, Source: "s", At: version(place), Newest: newest, Progress: &scope.Progress{},
		Finished: func(ctx context.Context) error {
			for {
				w.mu.Lock()
				done := p.finished(place)
				w.mu.Unlock()
				if done || ctx.Err() != nil {
					return ctx.Err()
				}
				_ = w.until(ctx, w.now()+50*time.Millisecond)
			}
		},
	})
}

// finished reports whether the log has nothing left of changes up to the one at a place. The caller holds mu.
func (p *process) finished(place int) bool {
	of := p
	if p.of != nil {
		of = p.of
	}
	if !p.w.isApart {
		return of.committed > place
	}
	// Of a topic it is asked where it ends once the reader has said that everything is in it.
	ends := 0
	for i, r := range p.records {
		if slices.ContainsFunc(r.changes, func(c int) bool { return c <= place }) || r.at <= p.w.now() {
			ends = i + 1
		}
	}
	return of.committed >= ends
}

// searched is the world's Redis, as a scope sees it.
type searched struct{ w *world }

// trip is a way to Redis and back. look is done there.
func (s searched) trip(ctx context.Context, look func()) error {
	w := s.w
	w.mu.Lock()
	there, back := w.release(0, w.now()+w.delay()), w.delay()
	lost := w.chance(w.lose)
	w.mu.Unlock()
	if err := w.until(ctx, there); err != nil {
		return err
	}
	w.mu.Lock()
	look()
	w.mu.Unlock()
	if err := w.until(ctx, there+back); err != nil {
		return err
	}
	if lost {
		return errLost
	}
	return nil
}

// Scan implements [scope.Redis].
func (s searched) Scan(ctx context.Context, _ uint64, _ string, _ int64) (keys []string, next uint64, err error) {
	err = s.trip(ctx, func() { keys = slices.Sorted(maps.Keys(s.w.cache)) })
	return keys, 0, err
}

// Fields implements [scope.Redis].
func (searched) Fields(context.Context, string, uint64, int64) ([]string, uint64, error) {
	return nil, 0, nil
}

// Server implements [scope.Redis].
func (s searched) Server(ctx context.Context) (is string, err error) {
	err = s.trip(ctx, func() { is = strconv.Itoa(s.w.runs) })
	return is, err
}

// Size implements [scope.Redis].
func (s searched) Size(ctx context.Context) (n int64, err error) {
	err = s.trip(ctx, func() { n = int64(len(s.w.cache)) })
	return n, err
}
