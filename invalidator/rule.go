package invalidator

import (
	"math"
	"time"
)

// moment is a point in time as nanoseconds since the engine was made, on the monotonic clock. Ages reach back
// before that, so it may be negative.
type moment int64

const (
	// never is the moment that does not come: of a mark that is not known yet.
	never moment = math.MaxInt64
	// always is before every other moment.
	always moment = math.MinInt64 / 2
)

func (m moment) add(d time.Duration) moment {
	if m == never {
		return never
	}
	return m + moment(d)
}

func (m moment) sub(o moment) time.Duration { return time.Duration(m - o) }

// late is the share of D, as a divisor, that Redis may be silent for without it being noticed: a quarter.
const late = 4

// reply is one acknowledged delete of some keys: when it was sent, and when the acknowledgement came.
type reply struct{ sent, replied moment }

// rule decides when a key is finished. It is the whole rule, and it is asked about every delete that Redis
// acknowledges, be it a first, a final or a parked one: they do not differ in what they do.
//
// Let known be when it became known here that everybody can read the change, and dark the end of the last time
// that Redis was silent for longer than D/4 (see [watch]). A delete finishes the key if it was sent no earlier
// than D after both and its own reply came within D/4.
//
// Why that is enough. A stale value in the cache was read before the change was visible to its reader, so before
// known. Its write takes effect within D of the reading, or, where Redis was silent meanwhile, within D of Redis
// answering again. Either way before this delete was sent: unless Redis was silent just then, which the reply
// tells. Why less is not enough is shown by the property test, which takes every part of it away in turn.
//
// D of 0 (second_delete: none) is a promise that no reader is slow: what it has read is in the cache at once. Then
// a delete that was sent after known is the last, however long Redis took for it. One that was sent before is not:
// a reader that came between them read the old value, as fast as it may have been.
type rule struct{ without without }

// due returns when a delete may be sent that will finish the keys; never while that is not known.
func (r rule) due(known, dark moment, d time.Duration) moment {
	if d == 0 && r.without.instant {
		return always
	}
	if known == never {
		return never
	}
	if d > 0 && dark > known && !r.without.late && !r.without.dark && !r.without.again {
		known = dark
	}
	if r.without.delay {
		d = 0
	}
	return known.add(d)
}

// counts reports whether the delete finishes its keys. dark must have been asked for after the reply.
func (r rule) counts(a reply, known, dark moment, d time.Duration) bool {
	if a.sent < r.due(known, dark, d) {
		return false
	}
	if d == 0 || r.without.late {
		return true
	}
	if r.without.again && a.sent < dark {
		return false
	}
	return !isLate(a, d)
}

// isLate reports whether Redis may have been silent, for too long, around the sending of a.
func isLate(a reply, d time.Duration) bool { return a.replied.sub(a.sent) > d/late }

// without names the parts of the rule that can be taken away, to see what each is for.
type without struct {
	marks      bool // D is counted from the first delete, not from a mark
	delay      bool // the final delete follows the mark at once
	instant    bool // where no reader is slow, any acknowledged delete is the last
	age        bool // a first delete is enough as soon as the change is known to be visible
	late       bool // replies may be late
	dark       bool // only a delete's own late reply counts, not Redis' silence before it
	start      bool // what Redis did before freshet started does not matter
	again      bool // after a silence the delete is repeated at once, not D later
	term       bool // a mark covers records of later terms, too
	version    bool // a mark covers all versions
	final      bool // finished once deleted for the first time
	contiguous bool // whatever is finished is committed, not the low watermark
	largest    bool // of duplicates the first one counts, not the one with the largest D
	acked      bool // a lost reply counts as one
	parkDelay  bool // keys are parked at once, not D after their mark
	durable    bool // parked keys are finished before the store has them
	parked     bool // whatever was parked is settled by any acknowledged delete

	oldNews  bool // values are written, however long their changes have been known to be visible
	leftover bool // what an older leader left is written
	joined   bool // a run that began before a change was due serves it as well
	spoiled  bool // a run under way writes what it has read although a later change forwent its query
	finalPut bool // whatever was written once is finished
	notices  bool // notices are sent before the action is acknowledged
}
