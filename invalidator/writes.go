package invalidator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// action is what must be done to one key of a job, and how far it is. Its round trips are
//
//	act      what must be done, with its value
//	forget   if that was refused: the same as something to be forgotten, which raises the guard
//	drop     if that was refused, too: UNLINK
//	notify   if something was done: what follows it
//
// each made for all actions of the job together, and each repeated while Redis is away.
type action struct {
	at     int   // its place in the job
	unit   *unit // nil: what must be done is settled
	intent event.Intent
	// first is what is known of it if it is a first action.
	first firstAction
	item  write.Item
	note  write.Notice
	notes []write.Notice // of further changes that are served as well

	outcome write.Outcome // once anything was done to the key
	// removed says that the key must be removed with all that is known of it, and nothing else is tried.
	removed bool
	// err is why the key is in trouble: not before it is over, for a lack of memory is no trouble for a delete.
	err error
	// strays says that it is in none: the node does not serve it. asks says that the node said ASK, and before it is
	// sent that the node of before did.
	strays, asks bool
}

// runWrites carries out the actions of a job.
func (w *writer) runWrites(j *job) {
	w.actions = w.actions[:0]
	now := time.Now()
	for k := range j.parts {
		p := &j.parts[k]
		for i := p.from; i < p.to; i++ {
			w.actions = append(w.actions, w.action(len(w.actions), p, i, now))
		}
	}
	for i := range j.entries {
		w.actions = append(w.actions, parkedAction(i, &j.entries[i], now))
	}
	if w.perform(j, w.actions) {
		for i := range w.actions {
			j.noted(&w.actions[i])
		}
	}
	at := 0
	for i := range j.parts {
		p := &j.parts[i]
		n := p.to - p.from
		if p.first = (firstAction{}); !p.final {
			p.first.unproven = !w.inTime(p.unit)
			for _, a := range w.actions[at : at+n] {
				p.first = p.first.and(a.first)
			}
		}
		at += n
	}
	w.node.metrics.did(w.actions)
	clear(w.actions)
	if cap(w.actions) > 4*tripCalls {
		w.actions = nil
	}
}

// action is what must be done to the i-th key of a part's unit. Of the unit it reads only what does not change while
// parts of it are out: an answer to another part may just be setting again.
func (w *writer) action(at int, p *part, i int, now time.Time) action {
	u := p.unit
	b, n := u.entry.batch, u.ordinal(i)
	inv := &b.Invalidations[n]
	a := action{at: at, unit: u, intent: inv.Intent, asks: u.asks, item: write.Item{
		Key: b.Key(n), Action: inv.Action, Effect: b.EffectOf(n),
		Source: b.Source, Version: b.Version(n), D: u.d, Leftover: b.Leftover, Named: b.Named, Refused: u.trouble != nil,
		Now: now,
	}}
	if p.final {
		a.item.Begun = p.first.confirms()
	}
	notes, own, err := write.Split(a.item.Effect, b.Fields(n))
	if err != nil {
		a.err = err
	}
	a.item.Fields = own
	if a.err != nil || u.forget {
		a.intent = event.IntentForget
	}
	a.note = write.Notice{
		Key: a.item.Key, Action: inv.Action, Effect: a.item.Effect, Fields: notes,
		Table: b.Of(n).Table, Source: b.Source, Version: a.item.Version,
	}
	return a
}

// parkedAction is what is done to a key that was parked: it is forgotten, under the version of its change, and told of.
// If the version may be another key's, no mark is raised to it, as for a key that somebody names.
// A field's name was not kept, so its whole hash goes, with what is known of all fields.
func parkedAction(at int, e *retry.Entry, now time.Time) action {
	a := action{at: at, removed: e.Action == event.ActionHash, item: write.Item{
		Key: e.Key, Action: e.Action, Intent: event.IntentForget, Source: e.Source, Version: e.Version, D: e.D,
		Named: e.Foreign, Now: now,
	}}
	if a.item.NeedsMark() {
		a.item.Intent, a.item.Until = event.IntentRemove, math.MaxInt64
	}
	for _, n := range e.Notices {
		a.notes = append(a.notes, write.Notice{
			Key: e.Key, Action: e.Action, Effect: &event.Effect{Publish: n.Publish, Stream: n.Stream, MaxLen: n.MaxLen},
			Fields: n.Fields, Table: e.Table, Source: e.Source, Version: e.Version,
		})
	}
	return a
}

// noted tells the job what became of an action.
func (j *job) noted(a *action) {
	if a.err != nil {
		j.failed = append(j.failed, failure{at: a.at, error: a.err.Error(), strays: a.strays, asks: a.asks})
	}
	if a.item.Action == event.ActionDelete && a.outcome == write.Removed {
		j.found++
	}
}

// perform carries actions out. It returns false when the job is over: see [writer.send].
func (w *writer) perform(j *job, all []action) bool {
	todo := make([]*action, 0, len(all))
	pick := func(which func(*action) bool) []*action {
		todo = todo[:0]
		for i := range all {
			if which(&all[i]) {
				todo = append(todo, &all[i])
			}
		}
		return todo
	}
	undone := func(a *action) bool { return a.outcome == 0 && !a.strays }
	unwritten := func(a *action) bool { return undone(a) && !a.removed }
	if !w.exchange(j, pick(unwritten), w.act, w.acted) ||
		!w.exchange(j, pick(unwritten), w.forget, w.forgot) ||
		!w.exchange(j, pick(func(a *action) bool { return unwritten(a) && a.item.NeedsMark() }), w.mark, w.marked) ||
		!w.exchange(j, pick(undone), w.drop, w.dropped) {
		return false
	}
	// A key that is gone is told of even if what should have been written to it is in trouble.
	// How long the telling takes says nothing about the deed.
	j.telling = true
	return w.exchange(j, pick(func(a *action) bool { return a.outcome != 0 && !a.strays }), w.notify, w.notified)
}

func (w *writer) act(calls []*write.Call, a *action) []*write.Call {
	if a.unit != nil {
		w.decide(a)
	}
	return w.builder.Append(calls, &a.item)
}

// backlog is for how long, besides [write.Window], a change may have been committed before what it says is part of a
// backlog: longer than the longest heartbeat, which is the time between two marks.
const backlog = time.Minute

// decide settles, each time that an action is about to be sent, whether its value may still be written. Old news
// forgets: when everybody has been able to read a change for long, what is cached was probably read since. So does what
// may come after a newer change's final action: see what package write says that the sender owes.
//
// That a change has become known to be visible just now does not say that it is new. After a start, a rewind or an
// outage the first marks cover all that came meanwhile, or not even that. So a change also has to be known not to have
// been there a while ago.
func (w *writer) decide(a *action) {
	if w.asked != a.unit.entry { // a trip's keys come from few batches
		w.asked, w.visible, w.unseen = a.unit.entry, w.node.known(a.unit.entry), w.node.unseen(a.unit.entry)
	}
	now, age := w.node.clock(), time.Duration(-1)
	if w.visible != never {
		age = max(now.sub(w.visible), 0)
	}
	old := a.unit.entry.batch.Leftover || w.unseen == always || now.sub(w.unseen) > write.Window(a.item.D)+backlog ||
		w.node.health.slept(a.unit.entry.fetched, a.item.D) || w.node.isNew(&a.item, a.unit.entry.fetched)
	a.item.Judge(a.intent, w.redisNow, age, old)
}

// inTime reports, after the first action of a unit was answered, whether its changes have not been known to be visible
// for half of D: no newer change had been finished by then, even by somebody who learned D/2 earlier what is visible.
func (w *writer) inTime(u *unit) bool {
	known := w.node.known(u.entry)
	return known == never || w.node.clock().sub(known) < u.d/2
}

func (w *writer) acted(a *action, calls []*write.Call) {
	outcome, err := w.builder.Outcome(&a.item, calls)
	if err == nil {
		a.outcome, a.first.begun = outcome, w.builder.Begun(calls)
		return
	}
	a.err = err
	w.node.metrics.refused.Inc()
}

func (w *writer) forget(calls []*write.Call, a *action) []*write.Call {
	forgotten := a.item
	forgotten.Intent = event.IntentForget
	return w.builder.Append(calls, &forgotten)
}

// forgot takes note of a key that was forgotten instead of written. It ends well if nothing but memory lacked: what
// is gone needs none, and the final action tries again to write.
func (w *writer) forgot(a *action, calls []*write.Call) {
	if _, err := w.builder.Outcome(&a.item, calls); err == nil {
		w.gone(a)
	}
}

func (w *writer) mark(calls []*write.Call, a *action) []*write.Call {
	return w.builder.Mark(calls, &a.item)
}

func (w *writer) marked(a *action, calls []*write.Call) {
	if calls[0].Err == nil && calls[1].Err == nil {
		w.gone(a)
	}
}

func (w *writer) drop(calls []*write.Call, a *action) []*write.Call {
	return append(calls, w.builder.Fallback(&a.item))
}

func (w *writer) dropped(a *action, calls []*write.Call) {
	switch err := calls[0].Err; {
	case err == nil:
		w.gone(a)
	case a.err == nil:
		a.err = fmt.Errorf("redis: unlink: %w", err)
	}
}

func (w *writer) gone(a *action) {
	a.outcome = write.Forgotten
	if retry.ClassifyRedis(a.err) == retry.Memory {
		a.err = nil
	}
}

func (w *writer) notify(calls []*write.Call, a *action) []*write.Call {
	calls = w.builder.Notices(calls, &a.note)
	for i := range a.notes {
		calls = w.builder.Notices(calls, &a.notes[i])
	}
	return calls
}

func (w *writer) notified(a *action, calls []*write.Call) {
	for _, c := range calls {
		if c.Err != nil && a.err == nil {
			a.err = fmt.Errorf("redis: %s: %w", c.Name(), c.Err)
			w.node.metrics.refused.Inc()
		}
	}
}

// exchange has the calls of each action answered, in round trips of bounded size, forever while Redis is away; all
// calls of an action are then sent again. It returns false when the job is over.
func (w *writer) exchange(
	j *job, todo []*action, ask func([]*write.Call, *action) []*write.Call, answered func(*action, []*write.Call),
) bool {
	most := tripCalls
	for len(todo) > 0 {
		sent := w.node.clock()
		away := w.askTime(todo)
		tried := tripCalls
		if away == nil {
			trip := w.gather(todo, most, ask)
			tried = len(w.calls)
			sent = w.node.clock()
			w.do()
			var left int
			left, away = w.sift(j, trip, reply{sent, w.node.clock()}, answered)
			if j.err != nil {
				return false
			}
			// Those without an answer come first again.
			todo = todo[len(trip)-left:]
		}
		if away == nil {
			continue
		}
		w.node.metrics.retries.Inc()
		w.failed(sent, away)
		if j.once || !w.node.health.await(j.ctx, j.routed) {
			j.givenUp = true
			return false
		}
		if !w.node.health.isRouted(j.routed) {
			for _, a := range todo {
				a.stray(errRerouted, false)
			}
			return true
		}
		most = tripCalls / 8 // as in send
		if isOverdue(away) {
			j.overdue, most = true, max(1, tried/8)
		}
	}
	return true
}

// askTime finds out what Redis' clock says if values are to be sent, once for a round trip. It is asked before anybody
// asks what is visible: what becomes known meanwhile counts.
func (w *writer) askTime(todo []*action) (err error) {
	w.redisNow = 0
	if slices.ContainsFunc(todo, func(a *action) bool { return a.unit != nil && a.item.IsGuarded() }) {
		w.redisNow, err = w.node.health.time.now(w.ctx)
	}
	if retry.ClassifyRedis(err) == retry.Fatal {
		return nil // what is sent fails in the same way, and ends the job
	}
	return err
}

// gather makes the calls of as many actions as a round trip takes, and returns these.
func (w *writer) gather(todo []*action, most int, ask func([]*write.Call, *action) []*write.Call) []*action {
	w.builder.Reset()
	w.calls, w.ends, w.asked = w.calls[:0], w.ends[:0], nil
	bytes := 0
	for _, a := range todo {
		from := len(w.calls)
		w.calls = ask(w.calls, a)
		w.ends = append(w.ends, len(w.calls))
		for _, c := range w.calls[from:] {
			bytes += c.Bytes()
			c.Asking = a.asks
		}
		if len(w.calls) >= most || bytes >= tripBytes {
			break
		}
	}
	return todo[:len(w.ends)]
}

// do makes one round trip.
func (w *writer) do() {
	if len(w.calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.node.timeout)
	defer cancel()
	begin := time.Now()
	if w.node.health.apart {
		w.spread(ctx)
	} else {
		w.node.redis.Do(ctx, w.calls)
	}
	w.node.metrics.trip.Observe(time.Since(begin).Seconds())
}

// sift hands on the answers of a round trip and moves the actions that got none to the end of it. It returns how many
// these are, and the error of one of them.
func (w *writer) sift(j *job, trip []*action, r reply, answered func(*action, []*write.Call)) (left int, away error) {
	from := 0
	var again []*action
	for i, end := range w.ends {
		calls := w.calls[from:end]
		from = end
		class, err := worst(calls, w.node.classify)
		if class == retry.Key {
			if strays, asks := isStray(err); strays {
				trip[i].stray(err, asks)
				trip[i-len(again)] = trip[i]
				continue
			}
		}
		switch class {
		case retry.Away:
			away = err
			trip[i].first.unproven = true
			again = append(again, trip[i])
		case retry.Fatal:
			j.err = fmt.Errorf("redis %s: %s: %w%s", w.node.redis, trip[i].item.Action, bare(err),
				advice(err))
			return 0, nil
		default:
			answered(trip[i], calls)
			trip[i-len(again)] = trip[i]
		}
	}
	copy(trip[len(trip)-len(again):], again)
	if len(w.calls) > 0 && len(again) < len(trip) {
		if !j.telling {
			j.answered(r)
		}
		if away == nil {
			w.passed(r)
		} else {
			w.node.health.watch.answered(r)
		}
	}
	return len(again), away
}

// worst returns what the calls of an action say about Redis: whether it is away or will never do it, before what
// they say about the key.
func worst(calls []*write.Call, classify func(error) retry.Class) (class retry.Class, err error) {
	for _, c := range calls {
		switch k := classify(c.Err); {
		case k == retry.Away, k == retry.Fatal:
			return k, c.Err
		case k != retry.None && class == retry.None:
			class, err = k, c.Err
		}
	}
	return class, err
}
