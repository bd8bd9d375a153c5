package write

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
)

// A world plays changes of the rows behind one key, on simulated time: the database, servers that lag, an application
// that fills what it misses within D, and processes that come and go, each doing what the engine does with the key: a
// first action at once, a final one D after the change is known to be visible, again where the reply was late. Redis is
// real, but for its clock.

// hazards are the chances of what may go wrong, from 0 to 1.
type hazards struct {
	evict    float64 // Redis loses the key, or what is next to it
	handover float64 // another process takes over, from where the one before had committed or earlier
	rewind   float64 // ... and the source begins a new epoch with it
	rename   float64 // ... and has another name
	zombie   float64 // what the process before had in hand takes effect long afterwards, all at once
	overlap  float64 // ... and it does not know for a while that it is over
	late     float64 // replies come late, or are lost, and the action is repeated
	leftover float64 // an older leader left records behind: they are forgotten, soon or long afterwards
	stuck    float64 // what a process sends takes effect long afterwards, and it goes on then, over or not
	slow     float64 // changes reach the process when they are old, or nobody takes over for long
	fewMarks float64 // companions hold few entries
	refused  float64 // Redis refuses a value, and the change is forgotten instead
	torn     float64 // a hash in pieces loses some of them
	goBack   float64 // Redis comes back with what it held a while ago, and what was done since is done again
	scope    float64 // something old gets into Redis of which no change tells, and is searched for
	walk     float64 // rows are read from their table, and written or forgotten
	waits    float64 // ... and are handed on only when they are old
	killed   float64 // whatever walks, does again or searches is killed, and begins again

	careless carelessness // what walks do wrong
}

const (
	worldD    = 2000  // ms
	zombieAge = 40000 // ms
	// worldBegins is Redis' time at the beginning, in seconds.
	worldBegins = 1000
)

// moment is simulated milliseconds.
type moment = int64

// happening is something that happens at a moment.
type happening struct {
	at    moment
	order int
	do    func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// rowChange is one change of a subject: the row, field or member. The n-th writes the value n, or removes it.
type rowChange struct {
	subject            int
	gone               bool
	committed, visible moment
}

type world struct {
	ctx     context.Context
	h       hazards
	rng     *rand.Rand
	client  *redis.Client
	b       *Builder
	scripts *scripts
	kind    kind
	changes []rowChange
	clock   moment
	agenda  agenda
	order   int
	owner   *owner
	owners  int
	trace   []string
	fault   string

	// holds is what freshet wrote for a subject, while that is in Redis.
	holds   map[int]event.Version
	written int

	// again are the changes that are being done again, each as often as that is not finished.
	again map[int]int
	// searching and walking are how many scopes and walks are not over.
	searching, walking int
	// left is how often something was left since something newer is known.
	left int
}

// kind is a way to keep the rows in Redis.
type kind interface {
	subjects() int
	// item is the action of a change, without what all have.
	item(w *world, n int) *Item
	// misses says whether the application finds nothing for the subject.
	misses(w *world, subject int) bool
	// fill writes what the application read: state holds the last change of each subject, 0 for none.
	fill(w *world, subject int, state []int)
	// wrong says what in Redis is not as the state.
	wrong(w *world, state []int) string
}

// owner is a process that has the key's partition.
type owner struct {
	w      *world
	source string
	epoch  uint32
	base   uint64
	from   int
	begins moment
	ends   moment // it is told to stop then, if not 0
	known  []moment
	tasks  []*task
}

// task is a change in a process's hands, or a row that was read from its table: its value is that of the n-th change.
type task struct {
	o        *owner
	n        int
	version  int         // under which change's version it is handed on
	known    moment      // since when everybody is known to see it
	over     func() bool // whether the process has ended
	forgets  bool        // its key is forgotten, and nothing written
	answered bool        // the first action was answered, or its reply was lost
	begun    int64       // what may be confirmed: see Item.Begun
	done     bool
}

func (w *world) at(t moment, do func()) {
	w.order++
	heap.Push(&w.agenda, happening{max(t, w.clock), w.order, do})
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) ms(most int) moment { return moment(w.rng.IntN(most + 1)) }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%6d ", w.clock)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.note(format, args...)
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// redis runs a command.
func (w *world) redis(words ...any) any {
	v, err := w.client.Do(w.ctx, words...).Result()
	if err != nil && err != redis.Nil {
		w.fail("redis %v: %v", words, err)
	}
	return v
}

const worldKey = "k"

// layOut draws the changes.
func (w *world) layOut() {
	n := 2 + w.rng.IntN(10)
	var t, visible moment = 1000, 1000
	for range n {
		t += w.ms(2500)
		visible = max(visible, t+w.ms(800))
		w.changes = append(w.changes, rowChange{
			subject: w.rng.IntN(w.kind.subjects()), gone: w.chance(0.25), committed: t, visible: visible,
		})
	}
}

// state returns the last change of each subject among the first n, counted from 1; 0 for none.
func (w *world) state(n int) []int {
	s := make([]int, w.kind.subjects())
	for i, c := range w.changes[:n] {
		s[c.subject] = i + 1
	}
	return s
}

// visible returns how many changes readers see now.
func (w *world) visible() int {
	n := 0
	for n < len(w.changes) && w.changes[n].visible <= w.clock {
		n++
	}
	return n
}

// horizon is when the last of the changes is visible.
func (w *world) horizon() moment { return w.changes[len(w.changes)-1].visible }

// run plays the world to its end and leaves what was wrong in fault.
func (w *world) run() {
	w.redis("flushall")
	w.holds, w.again = map[int]event.Version{}, map[int]int{}
	w.layOut()
	for t, pace := moment(0), 1000; t < w.horizon()+zombieAge; t += 300 + w.ms(pace) {
		w.at(t, w.read)
		if w.chance(w.h.evict) {
			w.at(t+w.ms(300), w.evict)
		}
		if t > w.horizon()+3*worldD {
			pace = 6000
		}
	}
	w.takeOver(&owner{w: w, source: "s", epoch: 1, base: 1000, from: 1, begins: w.ms(500)})
	w.planTroubles()
	for w.agenda.Len() > 0 && w.fault == "" {
		next := heap.Pop(&w.agenda).(happening)
		w.clock = next.at
		next.do()
	}
	w.check("at the end")
}

// check looks for what is not as the rows say.
func (w *world) check(when string) {
	if w.fault != "" {
		return
	}
	if s := w.kind.wrong(w, w.state(len(w.changes))); s != "" {
		w.fail("%s: %s", when, s)
	}
}

// isQuiet says that all changes have been visible for long, and that the owner of the key has done all of them: nothing
// that comes now may leave anything older.
func (w *world) isQuiet() bool {
	return w.clock > w.horizon()+worldD && w.unfinished() > len(w.changes) &&
		len(w.again)+w.searching+w.walking == 0
}

// unfinished returns the first change that the owner of the key has not finished.
func (w *world) unfinished() int {
	for _, t := range w.owner.tasks {
		if !t.done {
			return t.n
		}
	}
	return len(w.changes) + 1
}

// read is a reader of the application: what it misses it fills, within D.
func (w *world) read() {
	subject := w.rng.IntN(w.kind.subjects())
	if !w.kind.misses(w, subject) {
		return
	}
	n := w.visible()
	state := w.state(n)
	w.at(w.clock+w.ms(worldD), func() {
		w.note("application fills %v as of %d", subject, n)
		w.kind.fill(w, subject, state)
		clear(w.holds)
	})
}

// evict has Redis lose the key or something next to it.
func (w *world) evict() {
	names := []string{worldKey}
	for _, k := range [...]Kind{KindVersion, KindField, KindOldField, KindMember, KindOldMember} {
		if name := string(w.b.names.Append(nil, k, worldKey)); w.redis("exists", name) == int64(1) {
			names = append(names, name)
		}
	}
	name := names[w.rng.IntN(len(names))]
	both := w.chance(0.4)
	w.note("evict %s (the key too: %v)", name, both)
	w.redis("unlink", name)
	if both {
		w.redis("unlink", worldKey)
	}
	w.look()
}

// look takes note of what Redis does not hold any more. A companion that is gone takes no value along.
func (w *world) look() {
	for subject := range w.holds {
		if w.kind.misses(w, subject) {
			delete(w.holds, subject)
		}
	}
}

// takeOver makes o the owner, and draws who comes after it.
func (w *world) takeOver(o *owner) {
	before := w.owner
	w.owner = o
	w.note("owner of %s epoch %d from %d", o.source, o.epoch, o.from)
	lag := w.ms(1500)
	known := moment(0)
	for _, c := range w.changes {
		k := c.visible + w.ms(1500)
		if c.visible < o.begins && w.chance(0.5) {
			k = o.begins + lag // no age came along, and a mark only now
		}
		known = max(known, k)
		o.known = append(o.known, known)
	}
	sent := o.begins
	for n := o.from; n <= len(w.changes); n++ {
		pipe := w.ms(200)
		if w.chance(w.h.slow) {
			pipe = w.ms(20000)
		}
		sent = max(sent, w.changes[n-1].committed+pipe)
		t := &task{o: o, n: n, version: n, known: o.known[n-1], over: o.over}
		o.tasks = append(o.tasks, t)
		w.at(sent, t.send)
	}
	if before == nil {
		w.leftovers()
	}
	if w.owners++; w.owners < 6 && w.chance(w.h.handover) {
		w.at(o.begins+w.ms(int(w.horizon())), w.handOver)
	}
}

// leftovers are forgotten at any time, in any order.
func (w *world) leftovers() {
	for n := range w.changes {
		if w.chance(w.h.leftover) {
			later := 4000
			if w.chance(0.5) {
				later = zombieAge
			}
			w.at(w.changes[n].committed+w.ms(later), func() { w.forget(n + 1) })
		}
	}
}

// handOver makes another process the owner.
func (w *world) handOver() {
	o := w.owner
	o.ends = w.clock
	if w.chance(w.h.overlap) {
		o.ends += w.ms(2000)
	}
	if w.chance(w.h.stuck) {
		o.ends += w.ms(20000)
	}
	committed := o.from - 1
	for _, t := range o.tasks {
		if !t.done {
			break
		}
		committed = t.n
	}
	for w.chance(w.h.zombie) {
		w.at(o.ends+w.ms(int(w.ms(zombieAge))), o.burst)
	}
	next := &owner{w: w, source: o.source, epoch: o.epoch, base: o.base, begins: w.clock + w.ms(500)}
	next.from = 1 + w.rng.IntN(committed+1)
	if w.chance(w.h.rewind) {
		next.epoch, next.base = o.epoch+1, uint64(w.rng.IntN(2000)+20)
	}
	if w.chance(w.h.rename) {
		next.source, next.base = o.source+"'", uint64(w.rng.IntN(2000)+20)
	}
	if w.chance(w.h.slow) {
		next.begins += w.ms(20000)
	}
	w.at(next.begins, func() { w.takeOver(next) })
}

// burst is what the process had in hand when it was stopped: it had sent it.
func (o *owner) burst() {
	for _, t := range o.tasks {
		if !t.done && o.w.changes[t.n-1].committed < o.ends {
			o.w.note("zombie:")
			o.w.act(t, t.judge(o.ends))
		}
	}
}

// judge says what the process thinks at a moment of sending it.
func (t *task) judge(at moment) Item {
	it := Item{D: worldD * time.Millisecond}
	age := max(-1, at-t.known)
	it.Judge(event.IntentPut, worldBegins*1000+at, time.Duration(age)*time.Millisecond, false)
	return it
}

// version is that of the n-th change, to this owner; of 0 it is one before all of them.
func (o *owner) version(n int) event.Version {
	return event.Version{Epoch: o.epoch, File: 1, Pos: o.base + uint64(n), Row: 1}
}

// newest is the newest change that everybody is known to see.
func (o *owner) newest() int {
	newest := o.from - 1
	for n := range o.known {
		if o.known[n] <= o.w.clock {
			newest = max(newest, n+1)
		}
	}
	return newest
}

func (o *owner) over() bool { return o.ends != 0 && o.w.clock >= o.ends }

// send does what the engine does: it judges, and sends.
func (t *task) send() {
	w, known := t.o.w, t.known
	if t.over() {
		return
	}
	sent, judged := w.clock, t.judge(w.clock)
	if t.forgets {
		judged.Intent, judged.Leftover = event.IntentForget, true
	}
	if w.chance(w.h.refused) {
		judged.Intent = event.IntentForget
	}
	took := w.ms(50)
	late := w.chance(w.h.late)
	if late {
		took = w.ms(3000)
	}
	if w.chance(w.h.stuck / 4) {
		took = w.ms(20000)
	}
	w.at(sent+took, func() {
		begun := w.act(t, judged)
		lost := late && w.chance(0.5)
		inTime := !lost && w.clock < known+worldD/2
		if !t.answered && inTime {
			t.begun = begun
		}
		t.answered = true
		if !lost && sent >= known+worldD && took <= worldD/4 {
			t.done = true
			return
		}
		next := known + worldD
		switch {
		case lost && w.chance(0.5):
			next = w.clock + w.ms(300) // it is sent again as soon as there is a connection
		case took > worldD/4 || lost:
			next = max(next, w.clock+worldD)
		}
		w.at(next, t.send)
	})
}

// act does the action of a change, and returns when the mark was begun that it left, if that confirms nothing yet.
func (w *world) act(t *task, judged Item) int64 {
	it := w.kind.item(w, t.n)
	it.Begun, it.Until, it.Leftover = t.begun, judged.Until, judged.Leftover
	if judged.Intent == event.IntentForget {
		it.Intent = event.IntentForget
	}
	return w.carryOut(t.o, t.n, t.o.version(t.version), it)
}

// carryOut does an action on the subject of a change, under a version.
func (w *world) carryOut(o *owner, n int, v event.Version, it *Item) int64 {
	it.Key, it.Source, it.Version, it.D = worldKey, o.source, v, worldD*time.Millisecond
	calls := w.b.Append(nil, it)
	w.scripts.run(calls)
	defer w.b.Reset()
	w.redis("hset", "clock", "s", worldBegins+w.clock/1000, "u", w.clock%1000*1000)
	for i, c := range calls {
		if i > 0 && w.chance(w.h.torn) {
			w.tear(c)
		}
		send(w.ctx, w.client, []*Call{c})
	}
	outcome, err := w.b.Outcome(it, calls)
	w.note("%s/%d %s (leftover %v) %d as %s of %d (gone %v): %s", o.source, o.epoch, it.Intent, it.Leftover, n, v,
		w.changes[n-1].subject, w.changes[n-1].gone, outcome)
	if err != nil {
		w.fail("%v", err)
		return 0
	}
	subject := w.changes[n-1].subject
	switch h := w.holds[subject]; outcome {
	case Written:
		if h.Epoch == it.Version.Epoch && h.Compare(it.Version) > 0 {
			w.fail("%s replaces %s", it.Version, h)
		}
		w.written++
		w.holds[subject] = it.Version
	case Removed:
		delete(w.holds, subject)
	case Forgotten, Absent:
		w.look()
	case Older:
		if it.Leftover {
			w.left++
		}
	}
	if w.isQuiet() {
		w.check("once all is done")
	}
	return w.b.Begun(calls)
}

// tear takes away a part of what is staged.
func (w *world) tear(c *Call) {
	for _, word := range c.words {
		if len(word) > 10 && word[:10] == "freshet:t:" {
			w.note("torn")
			w.redis("hdel", word, "a")
			if w.chance(0.3) {
				w.redis("unlink", word)
			}
		}
	}
}
