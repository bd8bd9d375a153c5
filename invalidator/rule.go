package invalidator

import (
	"math"
	"time"
)

// instant is a point in time as nanoseconds since the engine was made, on the monotonic clock. Ages reach back
// before that, so it may be negative.
type instant int64

const (
	// never is the instant that does not come: of a mark that is not known yet.
	never instant = math.MaxInt64
	// always is before every other instant.
	always instant = math.MinInt64 / 2
)

func (m instant) add(d time.Duration) instant {
	if m == never {
		return never
	}
	return m + instant(d)
}

func (m instant) sub(o instant) time.Duration { return time.Duration(m - o) }

// late is the share of D, as a divisor, that Redis may be silent for without it being noticed: a quarter.
const late = 4

// reply is one acknowledged delete of some keys: when it was sent, and when the acknowledgement came.
type reply struct{ sent, replied instant }

// counts is the rule: it reports whether a delete finishes its keys. It is asked about every delete that Redis
// acknowledges, be it a first, a final or a parked one: they do not differ in what they do. dark must have been asked
// for after the reply.
//
// Let known be when it became known here that everybody can read the change, and dark the end of the last time
// that Redis was silent for longer than D/4 (see [watch]). A delete finishes the key if it was sent no earlier
// than D after both and its own reply came within D/4.
//
// Why that is enough. A stale value in the cache was read before the change was visible to its reader, so before
// known. Its write takes effect within D of the reading, or, where Redis was silent meanwhile, within D of Redis
// answering again. Either way before this delete was sent: unless Redis was silent just then, which the reply
// tells. Why less is not enough is shown by testdata/mutants: each of them takes a part of it away.
//
// D of 0 (second_delete: none) is a promise that no reader is slow: what it has read is in the cache at once. Then
// a delete that was sent after known is the last, however long Redis took for it. One that was sent before is not:
// a reader that came between them read the old value, as fast as it may have been.
func counts(a reply, known, dark instant, d time.Duration) bool {
	return a.sent >= due(known, dark, d) && (d == 0 || !isLate(a, d))
}

// due returns when a delete may be sent that will finish the keys; never while that is not known.
func due(known, dark instant, d time.Duration) instant {
	if d > 0 {
		known = max(known, dark)
	}
	return known.add(d)
}

// dueAt returns when a delete of the unit may be sent that will finish it.
func (s *partitionLoop) dueAt(u *unit) instant {
	return due(u.known, u.dark(), u.d)
}

// dark returns the end of the last time that the unit's node was silent for longer than D/4, or that one of its slots
// moved: what was on its way to the former owner may come to the new one. never: nobody has its slots, or they are
// being moved, so that the silences of two nodes matter.
func (u *unit) dark() instant {
	if u.node == nil || u.asks {
		return never
	}
	return max(u.node.health.watch.dark(u.d), u.moved)
}

// isLate reports whether Redis may have been silent, for too long, around the sending of a.
func isLate(a reply, d time.Duration) bool { return a.replied.sub(a.sent) > d/late }
