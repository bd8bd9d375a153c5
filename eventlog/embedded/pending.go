package embedded

import (
	"slices"
	"sync"

	"github.com/freshet/freshet/event"
)

// mostRanges is how many runs of GTIDs an untaken end may gather before they are put in order. Those of sources that
// take turns do not join by themselves.
const mostRanges = 1024

// pending is what was fetched and is not committed, and the ends of what is.
type pending struct {
	ends chan event.End // room for one; closed when no more will come

	mu        sync.Mutex
	fetched   []numbered // in order; those with progress only
	head      int        // the first of fetched that is not committed
	committed uint64
	last      uint64 // number of the last batch, once closing
	closing   bool
	consuming bool
	consumed  bool
	finished  bool
}

// numbered is the end of the batch n.
type numbered struct {
	n   uint64
	end event.End
}

// begin reports whether this is the first consumer.
func (p *pending) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.consuming
	p.consuming = true
	return first
}

// end says that the consumer has returned.
func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumed = true
	p.finish()
}

// close says that last is the number of the last batch.
func (p *pending) close(last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing, p.last = true, last
	p.finish()
}

// finish closes the channel when no more ends can come.
func (p *pending) finish() {
	if p.closing && !p.finished && (p.consumed || p.committed == p.last) {
		p.finished = true
		close(p.ends)
	}
}

// add notes a batch that is handed out. A batch inside a transaction has no end: nothing is gained by its commit.
func (p *pending) add(n uint64, end event.End) {
	if end.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetched = append(p.fetched, numbered{n, end})
}

// commit offers the ends of all batches up to n.
func (p *pending) commit(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= p.committed || p.finished {
		return
	}
	p.committed = n
	// The batches are the consumer's as well, so their ends are only read: the sum has memory of its own.
	var sum event.End
	for ; p.head < len(p.fetched) && p.fetched[p.head].n <= n; p.head++ {
		sum.Add(p.fetched[p.head].end)
	}
	if 2*p.head >= len(p.fetched) { // moves each once, however many there are
		p.fetched = slices.Delete(p.fetched, 0, p.head)
		p.head = 0
	}
	if !sum.IsZero() {
		offer(p.ends, sum, func(untaken event.End) event.End { return add(untaken, sum) })
	}
	p.finish()
}

// add returns a followed by b.
func add(a, b event.End) event.End {
	a.Add(b)
	if len(a.GTIDs) > mostRanges {
		var set event.GTIDSet
		for _, r := range a.GTIDs {
			set.AddRange(r)
		}
		a.GTIDs = nil
		set.Each(func(r event.GTIDRange) { a.GTIDs = append(a.GTIDs, r) })
	}
	return a
}

// uncommitted returns how many batches with an end were fetched and are not committed.
func (p *pending) uncommitted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.fetched) - p.head
}

// offer puts v into a channel with room for one. A value that nobody has taken yet is taken back and folded with v.
// It never blocks as long as there is one sender at a time: after the select the channel is empty and stays so.
func offer[T any](c chan T, v T, fold func(untaken T) T) {
	select {
	case untaken := <-c:
		v = fold(untaken)
	default:
	}
	c <- v
}
