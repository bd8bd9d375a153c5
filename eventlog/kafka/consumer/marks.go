package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// newest holds the newest mark of each source for a slow receiver, in the order in which their sources came; and those
// of leaders before that say more: the first marks of a leader know of nothing that is visible yet.
type newest struct {
	out chan event.Mark

	mu    sync.Mutex
	order []string
	marks map[string][]event.Mark // oldest first: their terms rise, their versions fall
	more  chan struct{}           // raised when there is something to deliver
}

// maxWaiting is how many marks of a source wait at most. There are more than two only where leaders began further back
// one after the other.
const maxWaiting = 8

func newNewest() *newest {
	return &newest{out: make(chan event.Mark), marks: map[string][]event.Mark{}, more: make(chan struct{}, 1)}
}

// put replaces what waits of the same source and does not say more. A mark of an older leader than the newest is left
// out, and one that says less than that of the same leader: it was produced twice, and may come again after those that
// came after it.
func (n *newest) put(m event.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait := n.marks[m.Source]
	if len(wait) == 0 {
		n.order = append(n.order, m.Source)
	} else if last := wait[len(wait)-1]; m.Term < last.Term || m.Term == last.Term && m.Version.Compare(last.Version) < 0 {
		return
	}
	wait = slices.DeleteFunc(wait, func(old event.Mark) bool { return old.Version.Compare(m.Version) <= 0 })
	wait = append(wait, m)
	n.marks[m.Source] = wait[max(0, len(wait)-maxWaiting):]
	raise(n.more)
}

// raise wakes the one who waits, or is about to: more has room for one.
func raise(more chan struct{}) {
	select {
	case more <- struct{}{}:
	default:
	}
}

// first returns the mark whose turn it is.
func (n *newest) first() (event.Mark, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.order) == 0 {
		return event.Mark{}, false
	}
	return n.marks[n.order[0]][0], true
}

// delivered takes away the mark that was handed over, unless a newer one has taken its place. What is left waits for
// its source's next turn.
func (n *newest) delivered(m event.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order = slices.Delete(n.order, 0, 1)
	wait := slices.DeleteFunc(n.marks[m.Source], func(old event.Mark) bool { return old == m })
	n.marks[m.Source] = wait
	if len(wait) == 0 {
		delete(n.marks, m.Source)
	} else {
		n.order = append(n.order, m.Source)
	}
}

// deliver hands marks to who receives, until ctx ends. It is the only one that takes marks away, so the first source
// stays the first while it waits; the mark in hand is looked up again whenever one was put.
func (n *newest) deliver(ctx context.Context) {
	for {
		m, ok := n.first()
		out := n.out
		if !ok {
			out = nil
		}
		select {
		case out <- m:
			n.delivered(m)
		case <-n.more:
		case <-ctx.Done():
			return
		}
	}
}

// readMarks reads the topic of marks from its beginning and on, until ctx ends.
func (c *Consumer) readMarks(ctx context.Context) {
	topic := c.o.Names.Marks()
	loop := c.newLoop()
	next, known := int64(0), false
	for ctx.Err() == nil {
		if !known {
			start, _, err := c.client.Range(ctx, topic, 0)
			if err != nil {
				_ = loop.Wait(ctx, err)
				continue
			}
			next, known = start, true
		}
		f, err := c.client.Fetch(ctx, topic, 0, next, fetchBytes, poll)
		switch {
		case err == nil:
			loop.Succeeded()
			next = f.Next
			for i := range f.Records {
				c.mark(&f.Records[i])
			}
		case broker.Classify(err) == broker.OutOfRange:
			known = false // compacted, or created again; the next marks of each source say all that its old ones said
			_ = loop.Wait(ctx, err)
		default:
			_ = loop.Wait(ctx, err)
		}
	}
}

// mark takes a record of the topic of marks.
func (c *Consumer) mark(r *broker.Record) {
	if r.Value == nil {
		c.history.forget(string(r.Key)) // a tombstone: the source is no more
		return
	}
	m, err := record.ParseMark(r.Value)
	if err != nil {
		c.o.Alarms.Raise(alarm.RecordUnreadable, fmt.Sprintf("a mark in %s cannot be read and is passed over: %v:"+
			" final deletes wait for one that can", c.o.Names.Marks(), err))
		return
	}
	c.metrics.marks.Inc()
	if now := time.Now(); m.AsOf.After(now) {
		m.AsOf = now // the reader's clock is ahead of ours: it would look fresh for as long after it has died
	}
	c.history.add(&m)
	c.newest.put(m.Mark)
}
