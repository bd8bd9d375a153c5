package write

import "github.com/freshet/freshet/event"

// What makes the past of a world come back: leftovers, a Redis that returns to what it held, and what is cached by
// somebody who tells nobody. The engine answers each by forgetting.

// forget does a change once more as a leftover.
func (w *world) forget(n int) {
	w.act(&task{o: w.owner, n: n, version: n}, Item{Intent: event.IntentForget, Leftover: true})
}

// planTroubles draws when the past comes back. It draws nothing where that does not happen, so that worlds without it
// stay as they are.
func (w *world) planTroubles() {
	whenever := func() moment { return w.ms(int(w.horizon()) + 4*worldD) }
	for n := 0; w.h.goBack > 0 && n < 3 && w.chance(w.h.goBack); n++ {
		w.at(whenever(), w.save)
	}
	for n := 0; w.h.scope > 0 && n < 3 && w.chance(w.h.scope); n++ {
		w.at(whenever(), w.astray)
	}
	for n := 0; w.h.walk > 0 && n < 3 && w.chance(w.h.walk); n++ {
		w.at(whenever(), func() { w.walk(0) })
	}
}

// lingers is what a process that is killed has sent: it takes effect when the next one is at it, or long after it.
func (w *world) lingers(do func()) {
	for n := 0; w.h.killed > 0 && n < 3 && w.chance(w.h.killed); n++ {
		w.at(w.clock+w.ms(int(w.ms(zombieAge))), do)
	}
}

// save takes a snapshot of Redis, values and companions together, to which it goes back some time later.
func (w *world) save() {
	dumps := map[string]any{}
	for _, name := range w.redis("keys", "*").([]any) {
		if name != "clock" {
			dumps[name.(string)] = w.redis("dump", name)
		}
	}
	first := w.unfinished()
	for n := range w.again { // what was done again is undone, too
		first = min(first, n)
	}
	searching := w.searching
	w.note("a snapshot of %d keys; finished: all before %d", len(dumps), first)
	w.at(w.clock+w.ms(30000), func() {
		w.note("redis goes back to the snapshot")
		w.redis("flushall")
		for name, dump := range dumps {
			w.redis("restore", name, 0, dump)
		}
		clear(w.holds)
		w.redo(first)
		if searching > 0 {
			w.search(len(w.changes))
		}
	})
}

// redo does all changes again from the first one that is not known to have been finished in what Redis holds, up to
// the last one that has been read. The owner notices only after a while what happened, and does not hurry either. It
// finishes each by the rule: D after it has become known to be visible, and after Redis came back.
func (w *world) redo(first int) {
	back, notices := w.clock, w.clock+w.ms(worldD)
	for n := first; n <= len(w.changes) && w.changes[n-1].committed <= notices; n++ {
		w.again[n]++
		w.lingers(func() { w.forget(n) })
		if w.chance(0.5) {
			w.at(notices+w.ms(worldD), func() { w.forget(n) })
		}
		due := max(back, w.owner.known[n-1]) + worldD
		w.at(max(due, notices)+w.ms(int(w.ms(20000))), func() {
			if w.again[n]--; w.again[n] == 0 {
				delete(w.again, n)
			}
			w.forget(n)
		})
	}
}

// astray has the application cache something old, which no change tells of. Somebody knows that it happened, so that it
// is searched for.
func (w *world) astray() {
	subject, n := w.rng.IntN(w.kind.subjects()), w.rng.IntN(w.visible()+1)
	w.note("application caches %d as of %d, for no reason", subject, n)
	w.kind.fill(w, subject, w.state(n))
	clear(w.holds)
	w.search(w.visible())
}

// search has everything forgotten twice: soon, and once all changes up to the n-th are finished.
func (w *world) search(n int) {
	w.searching++
	w.at(w.clock+w.ms(worldD), func() {
		w.pass(w.owner, w.owner.newest())
		o, newest := w.owner, w.owner.newest()
		w.lingers(func() { w.pass(o, newest) })
	})
	var second func()
	second = func() {
		if w.unfinished() <= n {
			w.at(w.clock+500, second)
			return
		}
		w.pass(w.owner, w.owner.newest())
		w.searching--
	}
	w.at(w.clock+worldD+w.ms(5000), second)
}

// pass forgets all subjects under the newest version that its process knew to be visible when it sent this. A member is
// not named then.
func (w *world) pass(o *owner, newest int) {
	for subject := range w.kind.subjects() {
		n := 1
		for n < len(w.changes) && w.changes[n-1].subject != subject {
			n++
		}
		it := w.kind.item(w, n)
		it.Intent, it.Leftover = event.IntentForget, true
		if it.Action == event.ActionSet || it.Action == event.ActionZSet {
			it.Fields = nil
		}
		w.note("a scope, subject %d:", subject)
		w.carryOut(o, n, o.version(newest), it)
	}
}
