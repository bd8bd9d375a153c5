package consumer

import (
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// chunk is what one fetch brought of a partition.
type chunk struct {
	records []broker.Record
	// from is the first offset that the chunk stands for, next the one after the last.
	from, next int64
	// size is about what it holds, in bytes.
	size int
	// jumped: what lay before from was lost and is passed over.
	jumped bool
	// lost ends the partition.
	lost error
}

// feed is what is fetched of a partition ahead of its work. At most three fetches are in memory: one that is being
// handed out, one that waits, and one under way.
type feed struct {
	p    *assignedPartition
	loop *retry.Loop   // of attempts to fetch; belongs to the request that it is in, or to restore, else to the lock
	more chan struct{} // raised when there is something to take

	// What follows is guarded by the fetcher's lock.
	lane    *lane    // nil while it is not to be fetched: in trouble, lost or gone
	under   *request // that it is in
	gone    bool     // the partition is not ours any more
	chunks  []chunk  // that wait
	waiting int      // their bytes
	next    int64    // where to fetch from
	end     int64    // of the log, as last heard
	ask     int      // how much
	turn    uint64   // when records came last
	jumped  bool     // what lay before next was lost and is passed over
}

func newFeed(p *assignedPartition, from int64) *feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &feed{
		p: p, loop: p.c.newLoop(), more: make(chan struct{}, 1),
		next: from, end: p.end, ask: fetchBytes / 4,
	}
}

// urgent reports whether the feed must be fetched now. One that is less than half empty goes with others.
func (d *feed) urgent() bool { return d.waiting < fetchBytes/2 }

// ready reports whether a fetch will be answered at once: with records, or, after an error, with another one.
func (d *feed) ready() bool { return d.next < d.end || d.loop.Failing() }

// took takes what a fetch brought.
func (d *feed) took(f *broker.Fetched) {
	d.loop.Succeeded()
	d.p.observe(f.LogStart, f.HighWatermark)
	d.end = f.HighWatermark
	if len(f.Records) > 0 { // else others have filled the answer
		d.ask = adapt(d.ask, f.Records)
	}
	if f.Next > d.next || d.jumped {
		d.put(chunk{
			records: f.Records, from: d.next, next: f.Next, jumped: d.jumped,
			size: size(f.Records) + (1+len(f.Records))*overhead,
		})
	}
	d.next, d.jumped = f.Next, false
}

// put hands a chunk over.
func (d *feed) put(c chunk) {
	d.chunks = append(d.chunks, c)
	d.waiting += c.size
	raise(d.more)
}

// overhead is about what a record takes besides its bytes, and a chunk besides its records.
const overhead = 128

// size returns the bytes of records.
func size(records []broker.Record) int {
	n := 0
	for i := range records {
		n += len(records[i].Key) + len(records[i].Value)
	}
	return n
}

// adapt returns how much to ask for next: what is compressed well takes many times its size in memory.
func adapt(ask int, records []broker.Record) int {
	switch n := size(records); {
	case n > fetchBytes*3/2:
		return max(ask/2, leastBytes)
	case n < fetchBytes/2:
		return min(ask*2, fetchBytes)
	}
	return ask
}
