package invalidator

import (
	"time"
	"unsafe"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// entry is one batch from when it was fetched until everything before it is committed. Entries stand in the order
// of Fetch; the low watermark is the last one before which, itself included, nothing is open.
type entry struct {
	batch *event.Batch // nil once nothing of it is open, and while it is packed
	// packed is the batch while all that is open of it waits for its second delete; it stays for the next time. spread
	// is set when the batch holds what cannot be packed.
	packed []byte
	spread bool
	token  eventlog.Token
	// source, term and last are the batch's; aged is since when everybody had been known to see it when it came, by
	// its age; never: that was not known.
	source string
	term   uint64
	last   event.Version
	aged   instant
	// walked says that the batch holds rows that were read from their table: aged is when, and marks say nothing of it.
	walked bool
	// foreign says that its versions may be those of other keys: what is parked of it says so.
	foreign bool
	// began and ended are the commit times of its first and its last transaction, by the source's clock; the zero
	// time where the batch does not say.
	began, ended time.Time
	fetched      instant
	deleted      instant // when all its keys had been deleted once
	bytes        int64
	open         int32 // units that are not finished, and slots of paced keys that refer to it
	resting      int32 // units that wait for their second delete (see [unit].resting)
	undeleted    int32 // units that were not deleted once, and slots of which it has the key
	// absorbed is how many of open are keys that a later change's action is to serve as well (see [pacedKeys]): they
	// need the batch no more. shared is set once there were any: how long its keys took cannot be known any more.
	absorbed int32
	shared   bool
	units    []unit
	one      [1]unit // room for the usual case
}

// unitBytes and entryBytes are about what a unit and an entry hold besides their batch, with the queues' slots.
const (
	entryBytes = int64(unsafe.Sizeof(entry{})) + 3*8
	unitBytes  = int64(unsafe.Sizeof(unit{})) + 2*8
)

// unit is the keys of a batch that have D and fate in common: they wait for the same mark and fall due together.
// It is owned by its partition's goroutine. While a part of it is in a job, a writer reads its keys.
type unit struct {
	entry *entry
	d     time.Duration
	// node has the slots of its keys, by the topology of that instant; nil: nobody has, or they still wait for a turn.
	node   *node
	routed instant
	// moved is when it was noticed that some of its slots have another owner; always: they never had.
	moved instant
	// limit is there if its mapping has a rate limit of its own.
	limit *limit
	// idx are the ordinals of its invalidations in the batch; nil: the first size ones.
	idx  []uint32
	size int

	// known is since when it is known here that everybody can read the changes; never: it is not.
	known instant
	// queued is when its final delete was queued for the first time; 0: it was not.
	queued instant
	// first is what the first actions say about the marks that they have begun.
	first firstAction
	// queried is what it holds as long as its keys are to be rebuilt by query.
	queried int64
	class   class
	// deleted is set once Redis has acknowledged a delete of each key, or refused it.
	deleted bool
	// final says that the delete under way, or the next one, is not the first.
	final bool
	// paced says that it waits for long before its first action, for its mapping's rate limit or for queries, and so
	// counts as pending from the start.
	paced bool
	// forget says that its keys are forgotten, though they should be rebuilt by query.
	forget bool
	// resting says that it is a unit of plain deletes that waits for its second delete, so that its keys may be packed.
	resting bool
	// asks says that the owner of its slots has said ASK: they are being moved, and the keys are not there any more.
	asks bool
	// touched says that it is among those that answers have come for.
	touched bool

	// The delete under way: how many keys have been put into jobs, how many jobs are out, and what came back.
	next, out int
	sent      instant       // of the first part sent
	replied   instant       // of the last part
	slowest   time.Duration // the longest that a part's reply took
	failed    []failure     // keys in trouble, by their place in the unit
	forgone   []int         // keys that wait for no query any more, by their place in the unit
	apart     int           // how many of these have been set apart

	trouble *trouble
}

// firstAction is what is known of the first action of some keys once it was answered. The final one may confirm the
// marks that it has begun: see "What the sender owes" in the documentation of package write.
type firstAction struct {
	// begun is when the last of the marks was begun, by Redis' clock in ms; 0: none was.
	begun int64
	// unproven says that a reply of one of them was lost, or came when a newer change might have been finished.
	unproven bool
}

// and adds what is known of further keys.
func (f firstAction) and(o firstAction) firstAction {
	return firstAction{max(f.begun, o.begun), f.unproven || o.unproven}
}

// confirms returns by when a mark was begun that the final action may confirm; 0: none.
func (f firstAction) confirms() int64 {
	if f.unproven {
		return 0
	}
	return f.begun
}

// limit is what a unit has in addition if its mapping has a rate limit of its own.
type limit struct {
	rate, mapping int
	// absorbed are the entries of older changes that its actions serve as well; each is listed as often as it has
	// keys here.
	absorbed []*entry
}

// trouble is what a unit of keys in trouble has in addition.
type trouble struct {
	errors      []string // by key
	bytes       int64    // about what it holds
	attempts    int
	first, last time.Time
	retryAt     instant
	park        bool // no further attempt in place: it must be parked as soon as its final delete is due
}

// key returns the i-th key.
func (u *unit) key(i int) string { return u.entry.batch.Key(u.ordinal(i)) }

func (u *unit) ordinal(i int) int {
	if u.idx == nil {
		return i
	}
	return int(u.idx[i])
}

// begin makes the unit ready to be deleted, again or for the first time.
func (u *unit) begin() {
	u.next, u.out = 0, 0
	u.sent, u.replied, u.slowest = never, always, 0
	u.failed, u.forgone, u.apart = nil, nil, 0
}

// answered takes note of a part's reply, and of how long the slowest of its round trips took.
func (u *unit) answered(a reply, slowest time.Duration) {
	u.sent = min(u.sent, a.sent)
	u.replied = max(u.replied, a.replied)
	u.slowest = max(u.slowest, slowest)
}

// reply is the unit's delete as the rule sees it: as early and as slow as its earliest and its slowest part.
func (u *unit) reply() reply { return reply{u.sent, u.sent.add(u.slowest)} }

// newEntry makes the entry of a batch out of its groups, which were split by the topology of that instant.
func newEntry(b *event.Batch, token eventlog.Token, groups []group, routed, now instant) *entry {
	e := &entry{
		batch: b, token: token, fetched: now, open: int32(len(groups)), undeleted: int32(len(groups)),
		ended: b.End.Committed, began: b.End.Committed, bytes: entryBytes,
		source: b.Source, term: b.Term, last: b.Last, aged: never, foreign: b.Leftover || b.Named,
	}
	if n := len(b.Origins); n > 0 {
		e.began = b.Origins[0].Time()
		if e.ended.IsZero() { // the batch came without its end, from another process
			e.ended = b.Origins[n-1].Time()
		}
	}
	if len(groups) == 0 {
		e.batch = nil
		return e
	}
	if len(groups) > 1 {
		e.units = make([]unit, len(groups))
	} else {
		e.units = e.one[:]
	}
	e.bytes += batchBytes(b)
	for i, g := range groups {
		e.units[i] = unit{
			entry: e, d: g.d, class: g.class, idx: g.idx, size: g.size, known: never,
			node: g.node, routed: routed, moved: always, paced: g.class == queries,
		}
		if g.rate > 0 {
			e.units[i].limit = &limit{rate: g.rate, mapping: g.mapping}
		}
		e.units[i].begin()
		e.bytes += int64(4*cap(g.idx)) + unitBytes + e.units[i].extra()
	}
	if len(groups) == 1 {
		e.bytes -= int64(unsafe.Sizeof(unit{})) // it is in the entry
	}
	return e
}

// extra is about what the keys of a unit hold while they wait one by one.
func (u *unit) extra() int64 {
	n := int64(0)
	if u.limit != nil {
		n += slotBytes
	}
	if u.class == queries {
		n += waiterBytes
	}
	return n * int64(u.size)
}

// awaitQueries has the keys that wait for queries count as in flight, as all do where nothing is fetched far ahead.
func (e *entry) awaitQueries() {
	for i := range e.units {
		e.units[i].paced = false
	}
}

// load returns what the entry begins with. Keys that are paced by themselves, or wait for queries, wait for as long as
// it takes, so they count as pending: they must not hold up others as what is in flight does.
func (e *entry) load() load {
	l := load{bytes: e.bytes}
	for i := range e.units {
		if u := &e.units[i]; u.limit != nil || u.paced {
			l.pending += int64(e.units[i].size)
		} else {
			l.inFlight += int64(e.units[i].size)
		}
	}
	return l
}
