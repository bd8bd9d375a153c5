package producer

import (
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
)

// overhead is about what a batch takes besides its own memory until it is durable: its entry, and for each run of GTIDs
// of its end.
const (
	overhead      = 256
	rangeOverhead = 96
)

// mostRanges is how many runs of GTIDs an untaken end may gather before they are put in order. Those of sources that
// take turns do not join by themselves.
const mostRanges = 1024

// ledger is the account of what was handed over and of what the brokers have acknowledged: it says whether there is
// room, how far all is durable, and what marks may say of it. Its lock is taken a few times for each batch and each
// record, and never held while anything is waited for.
type ledger struct {
	most    int // bytes that may be buffered
	latency *latency.Stages
	ends    chan event.End

	// space wakes Append: there is room, or none ever will be. drained wakes who waits for everything to be
	// acknowledged. marked wakes who produces marks.
	space, drained, marked wakeup

	mu         sync.Mutex
	partitions []*sendQueue // nil until their number is known; replaced, never changed
	offsets    []int64      // of each partition: after the last acknowledged record
	heads      []event.Version
	entries    []*entry // in order: what is not durable
	head       int      // the first of entries
	appended   uint64   // number of the last batch handed over
	durable    uint64   // number of the last batch up to which all is acknowledged
	buffered   int      // bytes
	held       bool     // nothing is let in until all is acknowledged
	closed     bool     // nothing is let in any more
	finished   bool     // ends is closed
	marks      marks
}

// entry is a batch that is not durable yet.
type entry struct {
	n     uint64
	end   event.End
	at    time.Time
	left  int // pieces that are not acknowledged
	bytes int // of what is freed when none is left
	kept  int // of what is freed when the entry is durable
}

func newLedger(most int, stages *latency.Stages) *ledger {
	return &ledger{
		most: most, latency: stages, ends: make(chan event.End, 1),
		space: newWakeup(), drained: newWakeup(), marked: newWakeup(),
	}
}

// admit enters a batch and returns the partitions to spread it over; a nil entry when it has to wait. A batch that is
// larger than all the room is let in when nothing else is there: it could not pass otherwise. It was handed over at at.
func (l *ledger) admit(b *event.Batch, at time.Time) (*entry, []*sendQueue, error) {
	e := &entry{
		end: b.End, at: at, left: 1, bytes: b.Bytes(), kept: overhead + rangeOverhead*len(b.End.GTIDs) + len(b.End.State),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, ErrClosed
	}
	if l.partitions == nil || l.held || l.buffered > 0 && l.buffered+e.bytes+e.kept > l.most {
		return nil, nil, nil
	}
	l.appended++
	e.n = l.appended
	e.end.GTIDs = slices.Clone(b.End.GTIDs)
	l.buffered += e.bytes + e.kept
	l.entries = append(l.entries, e)
	return e, l.partitions, nil
}

// split says in how many pieces a batch goes out: before the first of them does.
func (l *ledger) split(e *entry, pieces int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.left = pieces; pieces == 0 {
		l.complete(e, time.Now())
		l.advance()
	}
}

// acknowledged enters that a record of a partition is acknowledged: the offset after it, the partition's head, and
// the batches that it was the last piece of.
func (l *ledger) acknowledged(partition int, offset int64, head event.Version, pieces []piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offsets[partition], l.heads[partition] = offset, head
	now, freed := time.Now(), false
	for i := range pieces {
		e := pieces[i].entry
		if e.left--; e.left == 0 {
			l.complete(e, now)
			freed = true
		}
	}
	if freed {
		l.advance()
	}
}

// complete enters that all of a batch is acknowledged.
func (l *ledger) complete(e *entry, now time.Time) {
	l.buffered -= e.bytes
	l.latency.Append.Observe(now.Sub(e.at), now)
}

// advance moves what is durable over the batches that are acknowledged. The entries of those after one that is not
// stay, and count as buffered: memory is bounded even while one partition alone is stuck.
func (l *ledger) advance() {
	var sum event.End
	for ; l.head < len(l.entries) && l.entries[l.head].left == 0; l.head++ {
		e := l.entries[l.head]
		sum.Add(e.end)
		l.durable = e.n
		l.buffered -= e.kept
	}
	if 2*l.head >= len(l.entries) { // moves each once, however many there are
		l.entries = slices.Delete(l.entries, 0, l.head)
		l.head = 0
	}
	if !sum.IsZero() && !l.finished {
		l.offer(sum)
	}
	if l.marks.reached(l.durable, l.offsets) {
		l.marked.raise()
	}
	l.space.raise()
	if len(l.entries) == 0 {
		l.drained.raise()
		l.finish()
	}
}

// offer hands an end over. One that nobody has taken yet is taken back and added to. It never blocks, since the lock
// makes this the one sender: after the select the channel is empty and stays so.
func (l *ledger) offer(e event.End) {
	select {
	case untaken := <-l.ends:
		untaken.Add(e)
		e = untaken
	default:
	}
	l.ends <- compact(e)
}

// compact returns the same end in fewer runs of GTIDs, if it has many.
func compact(e event.End) event.End {
	if len(e.GTIDs) > mostRanges {
		var set event.GTIDSet
		for _, r := range e.GTIDs {
			set.AddRange(r)
		}
		e.GTIDs = nil
		set.Each(func(r event.GTIDRange) { e.GTIDs = append(e.GTIDs, r) })
	}
	return e
}

// finish closes the channel of ends when no more will come and nobody needs to be told more: all is acknowledged, and
// so is a mark that says so, if there are marks.
func (l *ledger) finish() {
	if l.closed && !l.finished && len(l.partitions) > 0 && len(l.entries) == 0 && l.marks.told() {
		l.finished = true
		close(l.ends)
	}
}

// close lets nothing in any more.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.space.raise()
	l.finish()
}

// stop ends all waiting: no acknowledgement will come any more.
func (l *ledger) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.space.raise()
	if !l.finished {
		l.finished = true
		close(l.ends)
	}
}

// hold lets nothing in, until grow. It reports whether all is acknowledged already.
func (l *ledger) hold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
	return len(l.entries) == 0
}

// grow adds partitions and lets batches in. Nothing may be in flight unless they are the first.
func (l *ledger) grow(more []*sendQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append([]*sendQueue(nil), l.partitions...)
	for _, p := range more {
		all = append(all, p)
		l.offsets = append(l.offsets, p.end)
		l.heads = append(l.heads, p.head)
	}
	l.partitions, l.held = all, false
	if l.marks.reached(l.durable, l.offsets) {
		l.marked.raise()
	}
	l.space.raise()
	l.finish()
}

// progress returns copies of the offsets after the last acknowledged records and of the partitions' heads.
func (l *ledger) progress() ([]int64, []event.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64(nil), l.offsets...), append([]event.Version(nil), l.heads...)
}

// usage returns how many bytes are buffered, and for how long the oldest batch has been.
func (l *ledger) usage() (bytes int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) > 0 {
		oldest = time.Since(l.entries[l.head].at)
	}
	return l.buffered, oldest
}

// wakeup wakes the one who waits, or is about to: with room for one it is never lost and never waits itself. Who is
// woken looks again, so one that comes for nothing does no harm.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) raise() {
	select {
	case w <- struct{}{}:
	default:
	}
}
