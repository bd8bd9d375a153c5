package letters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/retry"
)

const (
	// fetchBytes is how much is fetched at a time.
	fetchBytes = 1 << 20
	// fetchWait is how long a fetch waits for the next entry to be parked.
	fetchWait = 5 * time.Second
)

// signature is the metadata of freshet's own commits: kafka-consumer-groups.sh --reset-offsets leaves none.
const signature = "freshet1"

// assignment is a partition that this process was given.
type assignment struct {
	topic     string
	partition int
	offset    int64 // committed; -1: none
	foreign   bool  // by another program
	commit    func(offset int64)
	// rewind commits an offset below the last one.
	rewind func(offset int64)
}

// Serve offers the entries of an assigned partition of a retry topic through [Store.Due], until ctx ends. When Kafka
// fails it tries again forever, and what Kafka has lost it passes over, as a doubt. The handler of the group calls it
// once for each assignment.
func (s *Store) Serve(ctx context.Context, c *group.Assignment) error {
	return s.serve(ctx, assignment{
		topic: c.Topic, partition: c.Partition, offset: c.Offset, foreign: c.Metadata != signature,
		commit: func(o int64) { c.Commit(o, signature) }, rewind: func(o int64) { c.Rewind(o, signature) },
	})
}

func (s *Store) serve(ctx context.Context, c assignment) error {
	if !s.isRetry(c.topic) {
		return fmt.Errorf("parked keys: %s is no retry topic of the group %s", c.topic, s.o.Group)
	}
	what := fmt.Sprintf("%s/%d", c.topic, c.partition)
	loop := s.newLoop(what, func(err error) { s.noteUnread(what, err) })
	defer s.noteUnread(what, nil)
	for {
		err := s.serveWindow(ctx, c, loop)
		var cut *cutError
		if !errors.As(err, &cut) {
			return ended(ctx, err)
		}
		c.rewind(cut.next)
		c.offset, c.foreign = cut.next, false
	}
}

// serveWindow reads from the committed offset on, until ctx ends or the offsets begin again.
func (s *Store) serveWindow(ctx context.Context, c assignment, loop *retry.Loop) error {
	var from int64
	err := loop.Do(ctx, func() (err error) {
		from, err = s.begin(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	w := &window{
		topic: c.topic, partition: c.partition, commit: c.commit, next: from, high: from, room: make(chan struct{}, 1),
	}
	s.open(w)
	defer s.close(w)
	t := &trimmer{store: s, w: w}
	for {
		t.trim(ctx)
		if !s.waitForRoom(ctx, w) {
			return nil
		}
		if err := loop.Do(ctx, func() error { return s.read(ctx, w) }); err != nil {
			return err
		}
	}
}

// cutError says that a partition ended below the offset to read next, and where to go on.
type cutError struct{ next int64 }

func (e *cutError) Error() string {
	return fmt.Sprintf("the partition was cut, and begins again at offset %d", e.next)
}

// noteUnread keeps why a partition cannot be read, for [Store.NextDue]; nil: it can.
func (s *Store) noteUnread(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.unread, what)
	} else {
		s.unread[what] = err
	}
}

// ended is what an error means for the caller: nothing if it is only that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin returns the offset to read from. If something is missing before it, that is a doubt by then.
func (s *Store) begin(ctx context.Context, c assignment) (int64, error) {
	start, end, err := s.client.Range(ctx, c.topic, c.partition)
	if err != nil {
		return 0, err
	}
	switch {
	case c.offset < 0 && start == 0:
		return 0, nil
	case c.offset >= start && c.offset <= end:
		if !c.foreign || c.offset == start { // nothing is left out
			return c.offset, nil
		}
		if err := s.doubtForeign(ctx, &c); err != nil {
			return 0, err
		}
		c.rewind(c.offset) // the next start is to find freshet's own
		return c.offset, nil
	}
	// What there is may have been finished before: then its deletes are only repeated.
	lost := &loss{Topic: c.topic, Partition: c.partition, Committed: c.offset, Start: start, End: end}
	if err := s.doubt(ctx, lost); err != nil {
		return 0, err
	}
	if c.offset > end {
		c.rewind(start)
	} else {
		c.commit(start)
	}
	return start, nil
}

// doubt keeps durably that keys were lost.
func (s *Store) doubt(ctx context.Context, lost *loss) error {
	return s.o.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RecordsLost, Group: s.o.Group, Subject: fmt.Sprintf("%s/%d", lost.Topic, lost.Partition),
		Message: lost.String(),
	})
}

// doubtForeign keeps durably that another program has committed the group's offset.
func (s *Store) doubtForeign(ctx context.Context, c *assignment) error {
	return s.o.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.PositionSkipped, Group: s.o.Group, Subject: fmt.Sprintf("%s/%d", c.topic, c.partition),
		Message: fmt.Sprintf("the offset of group %s in %s/%d was set to %d by another program than freshet: if it was set "+
			"forward, the parked"+
			" keys between are never deleted, and may stay stale (if nobody has, the brokers keep no metadata of commits: raise"+
			" offset.metadata.max.bytes)", s.o.Group, c.topic, c.partition, c.offset),
	})
}

// waitForRoom waits until the window takes more; false when ctx ends first.
func (s *Store) waitForRoom(ctx context.Context, w *window) bool {
	for {
		s.mu.Lock()
		full := w.full(&s.o)
		s.mu.Unlock()
		if !full {
			return ctx.Err() == nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return false
		}
	}
}

// read fetches what comes next into the window.
func (s *Store) read(ctx context.Context, w *window) error {
	f, err := s.client.Fetch(ctx, w.topic, w.partition, w.next, fetchBytes, fetchWait)
	if broker.Classify(err) == broker.OutOfRange {
		return s.lost(ctx, w, err)
	}
	if err != nil {
		return err
	}
	type parked struct {
		offset int64
		entry  *retry.Entry
	}
	read := make([]parked, 0, len(f.Records))
	for _, r := range f.Records {
		e, err := decodeEntry(r.Value)
		if err != nil {
			// Kept whole for a process that can read it, and passed. If it cannot be kept, all is fetched again.
			if err := s.Bury(ctx, w.topic, w.partition, r, err); err != nil {
				return err
			}
			s.metrics.unreadable.Inc()
			s.o.Alarms.Raise(alarm.RecordUnreadable, fmt.Sprintf("a parked key in %s/%d cannot be read; it was put whole "+
				"among the dead letters and passed over, and may stay stale: see freshet dlq list", w.topic, w.partition))
			read = append(read, parked{r.Offset, nil})
			continue
		}
		read = append(read, parked{r.Offset, &e})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := f.Next
	for _, p := range read {
		if w.full(&s.o) {
			next = p.offset // fetched again when there is room
			break
		}
		s.add(w, p.offset, p.entry)
	}
	w.next, w.high = next, f.HighWatermark
	w.advance()
	return nil
}

// lost is what a fetch out of range means: the error to begin again with, or to try again after.
func (s *Store) lost(ctx context.Context, w *window, cause error) error {
	start, end, err := s.client.Range(ctx, w.topic, w.partition)
	if err != nil {
		return err
	}
	if w.next >= start && w.next <= end {
		return cause // a follower that lags answered: not lost
	}
	lost := &loss{Topic: w.topic, Partition: w.partition, Committed: w.next, Start: start, End: end}
	if err := s.doubt(ctx, lost); err != nil {
		return err
	}
	if w.next > end {
		return &cutError{start} // the offsets in the window mean other records now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.next = start // what is in the window already is still tried
	return nil
}

// newLoop returns the attempts to read a partition, until the offsets begin again. note gets the error of each that
// fails when they have failed for [broker.Grace], and nil when one has succeeded.
func (s *Store) newLoop(what string, note func(error)) *retry.Loop {
	return &retry.Loop{
		Backoff: retry.Backoff{Max: 5 * time.Second},
		Reporter: broker.Reporter(
			func(err error) {
				s.o.Log.Warn("a topic of keys in trouble cannot be read for now", "partition", what, "error", err)
			},
			func(time.Duration) {
				s.o.Log.Info("a topic of keys in trouble is read again", "partition", what)
				note(nil)
			},
		),
		Final: func(err error) bool {
			var cut *cutError
			return errors.As(err, &cut)
		},
		Note: func(err error, lasting time.Duration) {
			if lasting > broker.Grace {
				note(err)
			}
		},
	}
}
