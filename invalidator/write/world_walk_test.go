package write

import (
	"math"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// carelessness is a rule of walks that is not kept, for a test that shows that the world finds it.
type carelessness int

const (
	// asksLate takes the version after the row was read, and asksAhead one that not everybody can see.
	asksLate carelessness = iota + 1
	asksAhead
	// countsFromSending counts D, and how old the value is, from when it is sent.
	countsFromSending
)

// walk reads the rows from their table and hands them on, as values or to be forgotten, under the newest version that
// everybody is known to see before the source is asked. What it reads may have newer changes, too. Where its process
// ends, the next one reads the rows again; attempt says how often that was.
func (w *world) walk(attempt int) {
	o, asked, newest := w.owner, w.clock, w.owner.newest()
	if w.h.careless == asksAhead {
		for newest < len(w.changes) && w.changes[newest].committed <= asked {
			newest++
		}
	}
	w.note("a walk reads the rows, under %s", o.version(newest))
	dies := moment(math.MaxInt64)
	if attempt < 3 && w.chance(w.h.killed) {
		dies = asked + w.ms(3*worldD)
	}
	over := func() bool { return o.over() || w.clock >= dies }
	forget := w.chance(0.2)
	var rows []*task
	read := false
	w.walking++
	w.at(asked+w.ms(500), func() {
		state := w.state(w.visible())
		w.at(w.clock+w.ms(1500), func() {
			read = true
			if w.h.careless == asksLate {
				newest = o.newest()
			}
			for _, n := range state {
				if !w.gone(n) {
					rows = append(rows, w.hand(&task{o: o, n: n, version: newest, known: asked, over: over, forgets: forget}))
				}
			}
		})
	})
	var look func()
	look = func() {
		open := !read
		for _, t := range rows {
			open = open || !t.done
		}
		switch {
		case !open:
			w.walking--
		case over():
			w.walking--
			w.at(w.clock+w.ms(5000), func() { w.walk(attempt + 1) })
		default:
			w.at(w.clock+500, look)
		}
	}
	w.at(asked+500, look)
}

// hand hands on a row that was read: at once, or after it has waited.
func (w *world) hand(t *task) *task {
	waits := w.ms(200)
	if w.chance(w.h.waits) {
		waits = w.ms(8000)
		if w.chance(0.3) {
			waits = w.ms(zombieAge)
		}
	}
	w.at(w.clock+waits, func() {
		if w.h.careless == countsFromSending {
			t.known = w.clock
		}
		t.send()
	})
	return t
}

// Every rule of a walk is needed: without it some world ends with a value that is older than its row.
func TestEveryRuleOfAWalkIsNeeded(t *testing.T) {
	client := testbed.Redis(t).Client()
	s := simulated(t)
	for name, c := range map[string]struct {
		careless carelessness
		hazards  hazards
		seed     uint64 // of the first world that shows it
	}{
		"the version is that of before the row was read": {asksLate, hazards{walk: 0.9, waits: 0.9}, 159},
		"the version is one that everybody can see":      {asksAhead, hazards{walk: 0.9, waits: 0.9}, 13},
		"a value is as old as the question": {
			countsFromSending, hazards{walk: 0.9, waits: 0.9, evict: 0.9}, 65,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.hazards
			h.careless = c.careless
			counterexample(t, c.seed, func(seed uint64) *world { return play(t, client, s, whole{}, h, seed) },
				func(seed uint64) *world { return play(t, client, s, whole{}, c.hazards, seed) })
		})
	}
}
