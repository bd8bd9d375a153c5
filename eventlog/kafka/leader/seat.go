package leader

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/group"
)

// standing is what the consumer group says of this member.
type standing int

const (
	// undecided: no generation, or none that has said yet.
	undecided standing = iota
	// standby: the partition is somebody else's.
	standby
	// seated: the partition is ours.
	seated
)

// seat follows the standing of a member. The group tells it; the leader waits for it.
type seat struct {
	missing atomic.Bool // the topic is, as far as is known

	mu      sync.Mutex
	is      standing
	since   time.Time
	changed chan struct{} // closed at each change
}

func newSeat() *seat { return &seat{since: time.Now(), changed: make(chan struct{})} }

func (s *seat) set(is standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is != is {
		s.is, s.since = is, time.Now()
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *seat) get() (is standing, since time.Time, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is, s.since, s.changed
}

// first is the partition of the checkpoint topic that makes a leader. There should be no other, but anybody may add
// some while readers run, and each would make one more.
const first = 0

// generation is told which partitions a new generation gives us. When ours is not among them, that is all we hear of
// it. Else handle follows.
func (s *seat) generation(assigned map[string][]int) {
	for _, partitions := range assigned {
		if slices.Contains(partitions, first) {
			return
		}
	}
	s.set(standby)
}

// handle has the partition until the generation ends. What is led goes on then: see [Leader].
func (s *seat) handle(ctx context.Context, c *group.Assignment) error {
	if c.Partition != first {
		return nil
	}
	s.set(seated)
	<-ctx.Done()
	s.set(undecided)
	return nil
}

// taken waits for the seat; false if ctx ends first.
func (s *seat) taken(ctx context.Context) bool {
	for {
		is, _, changed := s.get()
		if is == seated {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// lost waits until the seat is somebody else's, or has been undecided for longer than a session, and says which. It
// returns nil if ctx ends first.
func (s *seat) lost(ctx context.Context, session time.Duration) error {
	for {
		is, since, changed := s.get()
		if is == standby {
			return errReassigned
		}
		var timeout <-chan time.Time
		if is == undecided {
			t := time.NewTimer(time.Until(since.Add(session)))
			defer t.Stop()
			timeout = t.C
		}
		select {
		case <-changed:
		case <-timeout:
			return errCutOff
		case <-ctx.Done():
			return nil
		}
	}
}
