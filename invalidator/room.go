package invalidator

import (
	"context"
	"sync"
	"sync/atomic"
)

// load is what unfinished work amounts to.
type load struct {
	inFlight int64 // keys that were fetched and not yet deleted once
	pending  int64 // keys that were deleted once and are not finished
	bytes    int64
}

// room is the caps, shared by all partitions. They hold up fetching and nothing else: whatever empties the queues
// (marks, acknowledgements, parking) passes them by, so they cannot lock each other out. They are asked before a
// batch is fetched, so a batch of any size passes when there is some room.
//
// All methods may be called by any goroutine.
type room struct {
	limit load
	// ready reports whether fetching makes sense at all.
	ready func() bool
	// filled is called when there is work after there was none.
	filled func()

	inFlight, pending, bytes atomic.Int64

	waiting atomic.Int32
	mu      sync.Mutex
	more    chan struct{} // closed, and created again, when there may be room
}

// take adds to the load.
func (r *room) take(l load) {
	bytes := r.bytes.Add(l.bytes)
	r.inFlight.Add(l.inFlight)
	r.pending.Add(l.pending)
	if l.bytes > 0 && bytes == l.bytes {
		r.filled()
	}
}

// give takes from the load, and wakes those who wait for room.
func (r *room) give(l load) {
	r.inFlight.Add(-l.inFlight)
	r.pending.Add(-l.pending)
	r.bytes.Add(-l.bytes)
	r.changed()
}

// changed wakes those who wait for room, to look again.
func (r *room) changed() {
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	close(r.more)
	r.more = make(chan struct{})
	r.mu.Unlock()
}

// full names the cap that is reached, in the words of the configuration; "" if none is.
func (r *room) full() string {
	inFlight := r.inFlight.Load()
	switch {
	case inFlight >= r.limit.inFlight:
		return "max_in_flight"
	case inFlight+r.pending.Load() >= r.limit.pending: // what is in flight will be pending
		return "max_pending"
	case r.bytes.Load() >= r.limit.bytes:
		return "max_memory"
	}
	return ""
}

// wait blocks until there is room, and until ready and also says so. It fails only with ctx.
func (r *room) wait(ctx context.Context, also func() bool) error {
	free := func() bool { return r.full() == "" && r.ready() && also() }
	for !free() {
		if err := r.waitForChange(ctx, free); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *room) waitForChange(ctx context.Context, free func() bool) error {
	// Who makes room looks at waiting after it has; we look for room after we count as waiting: one sees the other.
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	r.mu.Lock()
	more := r.more
	r.mu.Unlock()
	if free() {
		return nil
	}
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take adds to the load of the partition, and so of all.
func (s *partitionLoop) take(l load) {
	s.held.inFlight.Add(l.inFlight)
	s.held.pending.Add(l.pending)
	s.held.bytes.Add(l.bytes)
	s.engine.room.take(l)
}

// give takes from it, and wakes those who wait for room.
func (s *partitionLoop) give(l load) {
	s.take(load{-l.inFlight, -l.pending, -l.bytes})
	s.engine.room.changed()
}
