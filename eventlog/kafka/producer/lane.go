package producer

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

const (
	// busyRequests is how many requests may be under way to one broker when much waits: meanwhile the next one gathers.
	busyRequests = 2
	// quietRequests is how many may be when little waits, so that a change need not wait for those before: with four,
	// at 1,000 transactions a second, some did.
	quietRequests = 12
	// little is how many rows that is.
	little = 64
	// full is the size from which nothing more is gathered into a record, in bytes before compression: some five
	// thousand keys. Larger ones cost no less for each key, and those who read them hold a few of each partition.
	full = 128 << 10
	// mostPartitions is how many partitions a request is for. Were each record as large as [DefaultMaxRecord], that
	// would be a third of what brokers take (socket.request.max.bytes, 100 MiB).
	mostPartitions = 64
)

// lanes carry records to the brokers: there is one for each broker that leads partitions. A request is for all
// partitions of a lane that have something by then, so what a request costs is paid once, not for each partition; and a
// broker that hangs holds up its own partitions alone.
type lanes struct {
	p *Producer

	mu    sync.Mutex
	parts []*sendQueue
	of    map[int]*lane
}

// lane is the way to one broker. Those who send on it wait for wake.
type lane struct {
	wake wakeup

	// Under the lock of the lanes.
	next     int  // where the next request begins to look, so that no partition is passed over
	requests int  // under way, for partitions that are not in trouble
	retrying bool // there is one for those that are
}

// add begins to send what partitions get, to the brokers that lead them.
func (l *lanes) add(ctx context.Context, g *errgroup.Group, parts []*sendQueue, leaders []int) {
	l.mu.Lock()
	l.parts = append(l.parts, parts...)
	l.mu.Unlock()
	l.lead(ctx, g, leaders)
}

// lead moves partitions to the lanes of the brokers that lead them now. What is under way stays where it is.
func (l *lanes) lead(ctx context.Context, g *errgroup.Group, leaders []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.parts {
		if s.id >= len(leaders) {
			continue
		}
		to := l.of[leaders[s.id]]
		if to == nil {
			to = &lane{wake: newWakeup()}
			if l.of == nil {
				l.of = map[int]*lane{}
			}
			l.of[leaders[s.id]] = to
			for range quietRequests + 1 {
				g.Go(func() error { return l.send(ctx, g, to) })
			}
		}
		if s.lane.Swap(to) != to {
			to.wake.raise()
		}
	}
}

// send carries what partitions of a lane have to the broker until ctx ends. What fails in a way that no attempt can
// retrying is returned.
//
// One request at a time is for a partition, so the order is kept across attempts; meanwhile the next record gathers. So
// an idle partition sends at once, and a busy one sends as much at a time as it takes for the round trip not to matter.
func (l *lanes) send(ctx context.Context, g *errgroup.Group, on *lane) error {
	for ctx.Err() == nil {
		taken, retrying := l.take(ctx, on)
		if len(taken) == 0 {
			select {
			case <-on.wake:
			case <-ctx.Done():
			}
			continue
		}
		failed, err := l.p.request(ctx, taken)
		if err != nil {
			return err
		}
		if failed {
			if leaders, err := l.p.client.Leaders(ctx, l.p.o.Topics.Topic); err == nil {
				l.lead(ctx, g, leaders)
			}
		}
		l.release(on, taken, retrying)
	}
	return nil
}

// take takes the partitions that the next request is for; none if none should be sent now. Partitions in trouble go by
// themselves, so that one whose replicas do not answer holds up no other again.
func (l *lanes) take(ctx context.Context, on *lane) (taken []*sendQueue, retrying bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil { // what was given back since was given back for that
		return nil, false
	}
	if !on.retrying {
		if taken = l.due(on); len(taken) > 0 {
			on.retrying = true
			on.wake.raise() // others may have something, too
			return taken, true
		}
	}
	taken, rows, next := l.some(on)
	if len(taken) == 0 || on.requests >= quietRequests || on.requests >= busyRequests && rows > little {
		return nil, false
	}
	if next != on.next { // there is more, for another request if there may be one, or else for who comes back first
		on.next = next
		on.wake.raise()
	}
	on.requests++
	for _, s := range taken {
		s.taken = true
	}
	return taken, false
}

// some returns the partitions that have something, up to mostPartitions; how many rows that is, and where the next
// request is to begin to look: at the first that was left out, if one was.
func (l *lanes) some(on *lane) (found []*sendQueue, rows, next int) {
	for i := range l.parts {
		at := (on.next + i) % len(l.parts)
		s := l.parts[at]
		if s.taken || s.lane.Load() != on || !s.again.IsZero() {
			continue
		}
		if n := s.waiting(); n > 0 {
			if len(found) == mostPartitions {
				return found, rows, at
			}
			rows += n
			found = append(found, s)
		}
	}
	return found, rows, on.next
}

// due takes the partitions in trouble if the time has come for one of them, those first that have waited for longest.
func (l *lanes) due(on *lane) (taken []*sendQueue) {
	for _, s := range l.parts {
		if !s.taken && s.lane.Load() == on && !s.again.IsZero() {
			taken = append(taken, s)
		}
	}
	slices.SortFunc(taken, func(a, b *sendQueue) int { return a.again.Compare(b.again) })
	if len(taken) == 0 || taken[0].again.After(time.Now()) {
		return nil
	}
	taken = taken[:min(len(taken), mostPartitions)]
	for _, s := range taken {
		s.taken = true
	}
	return taken
}

// release gives partitions back after a request. Who releases looks for more himself; those of a partition that has
// moved are told.
func (l *lanes) release(on *lane, taken []*sendQueue, retrying bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if retrying {
		on.retrying = false
	} else {
		on.requests--
	}
	for _, s := range taken {
		s.taken = false
		if to := s.lane.Load(); to != on {
			to.wake.raise()
		}
	}
}

// request makes one attempt for some partitions, and reports whether it failed for any.
func (p *Producer) request(ctx context.Context, taken []*sendQueue) (failed bool, err error) {
	to := make([]broker.ProduceTo, len(taken))
	enc, ok := p.encoders.Get().(*record.Encoder)
	if !ok {
		enc = &record.Encoder{}
	}
	for i, s := range taken {
		s.seal(&p.o, enc)
		to[i] = broker.ProduceTo{Partition: s.id, Records: []broker.Record{{Key: p.key, Value: s.sealed.value}}}
	}
	p.encoders.Put(enc)
	p.metrics.inFlight.Add(float64(len(taken)))
	start := time.Now()
	results := p.client.ProduceAll(ctx, p.o.Topics.Topic, to)
	took := time.Since(start).Seconds()
	p.metrics.inFlight.Sub(float64(len(taken)))
	var again []*sendQueue
	var pause time.Duration
	for i, s := range taken {
		if results[i].Err == nil {
			p.metrics.seconds.Observe(took)
		} else if failed = true; ctx.Err() != nil {
			continue
		}
		wait, err := p.settle(s, results[i])
		if err != nil {
			return failed, err
		}
		if wait > 0 {
			again, pause = append(again, s), max(pause, wait)
		}
	}
	p.retry(again, pause)
	return failed, nil
}

// retry has partitions tried again after a while: all together, for many with a pause of their own each would be tried
// whenever the shortest of all is over.
func (p *Producer) retry(again []*sendQueue, pause time.Duration) {
	if len(again) == 0 {
		return
	}
	at := time.Now().Add(pause)
	for _, s := range again {
		s.again = at
	}
	time.AfterFunc(pause, func() {
		for _, s := range again {
			s.lane.Load().wake.raise()
		}
	})
}
