package letters

import (
	"context"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// DefaultTrimEvery is the default of [Options].TrimEvery.
const DefaultTrimEvery = 10 * time.Minute

// trimmer removes what is finished from one partition of a retry topic: these topics have no retention, since a parked
// key waits for as long as it takes, and would grow forever.
type trimmer struct {
	store *Store
	w     *window
	next  time.Time // when to look again
	below int64     // what lies below is gone
	off   bool      // we may not
}

// trim removes the records below the group's committed offset, if it is time for that.
//
// The offset is asked for, and not taken from what was committed here: that is sent later, and may never arrive. Were
// records removed before, a crash would leave a commit below the log's start, which means lost keys to who reads on.
func (t *trimmer) trim(ctx context.Context) {
	if t.off || time.Now().Before(t.next) {
		return
	}
	s := t.store
	t.next = time.Now().Add(s.o.TrimEvery)
	offsets, err := s.client.GroupOffsets(ctx, s.o.Group, t.w.topic)
	committed, found := offsets[t.w.partition]
	if err == nil && (!found || committed.Offset <= t.below) {
		return
	}
	if err == nil {
		err = s.client.Trim(ctx, t.w.topic, t.w.partition, committed.Offset)
	}
	switch {
	case err == nil:
		t.below = committed.Offset
	case broker.Classify(err) == broker.Denied:
		t.off = true
		s.o.Log.Warn("parked keys that are finished cannot be removed, so their topic grows: grant the right, or give "+
			"the topic a retention.ms far longer than any outage", "topic", t.w.topic, "error", err)
	case ctx.Err() == nil: // the next time will do
		s.o.Log.Debug("parked keys that are finished cannot be removed for now", "topic", t.w.topic, "error", err)
	}
}
