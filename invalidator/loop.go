package invalidator

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog"
)

// partitionLoop runs one partition of the log. Its loop, on the goroutine that called Serve, owns all of its state; a
// fetcher hands it entries, writers hand back jobs, a parker hands back units, and marks only poke it.
type partitionLoop struct {
	engine *Engine
	log    eventlog.Partition
	gentle bool
	lane   *lane           // how it sends: with one node its lane, else one like those of all nodes
	served instant         // since when
	ctx    context.Context // ends when the partition must be given up
	giveUp context.CancelFunc

	fetched  chan *entry
	fetchEnd chan error
	results  chan *job
	poke     chan struct{}
	toPark   chan []*unit
	parked   chan []*unit

	// The queues, in the order in which work goes through them.
	entries  fifo[*entry]            // all that is not committed, in the order of Fetch
	outboxes []*outbox               // by node: what must be sent to it
	paced    map[pacedBy]*pacedKeys  // not sent yet, by the mappings with a rate limit of their own
	waiting  map[string]*fifo[*unit] // by source: for a mark
	strays   []stray                 // for the topology to be read again
	parking  []*unit                 // keys in trouble: for the parker to be free

	topo    *topology // as it was when this turn of the loop began
	lastBox *outbox   // that was asked for last; nil: none
	nextBox int       // where the search for work begins

	packer     packer
	out        int // jobs that are out
	asked      int // keys that are out to be rebuilt by query
	parkerBusy bool
	free       []*job
	timer      *time.Timer
	timerAt    instant
	complained instant
	now        instant // when this turn of the loop began
	err        error   // why the partition ends, when not because ctx did
	ending     bool
	eof        bool

	// What others read.
	held     struct{ inFlight, pending, bytes atomic.Int64 }
	full     atomic.Bool  // the store is full: nothing is fetched
	idle     atomic.Bool  // the fetcher waits in Fetch
	starved  atomic.Bool  // there may be work for nodes of which no slot was free
	oldest   atomic.Int64 // when the oldest unfinished entry was fetched; 0: there is none
	behind   atomic.Int64 // the commit time of the oldest unfinished transaction, in Unix ns; 0: there is none
	done     atomic.Int64 // the commit time of the last transaction below the watermark, in Unix ns; 0: unknown
	unmarked atomic.Int64 // keys that wait for a mark
	troubled atomic.Int64 // keys in trouble that are not parked yet
	queried  atomic.Int64 // what is held by keys that must be rebuilt by query, in bytes
	limited  atomic.Int64 // keys that wait because of their mapping's rate limit
	answers  inbox        // from those who rebuild by query
}

// dueQueue is the units of one D and class whose changes are known to be visible, in the order in which that was
// known.
type dueQueue struct {
	d     time.Duration
	class class
	// asks says that their slots are being moved, for nobody knows how long: nothing else may wait for them.
	asks  bool
	units fifo[*unit]
}

// resultsWaiting is how many jobs wait for the loop to take them back: as many as a node takes, at least, so that its
// writers need not wait for a partition.
const resultsWaiting = 4 * (tripsInFlight + spareJobs)

// fetchAhead is how many entries wait for the loop; they are prepared while it works.
const fetchAhead = 8

func newPartition(ctx context.Context, e *Engine, p eventlog.Partition, gentle bool) *partitionLoop {
	s := &partitionLoop{
		engine: e, log: p, gentle: gentle, lane: e.manner(gentle), served: e.clock(),
		fetched:  make(chan *entry, fetchAhead),
		fetchEnd: make(chan error, 1),
		results:  make(chan *job, resultsWaiting),
		poke:     make(chan struct{}, 1),
		toPark:   make(chan []*unit),
		parked:   make(chan []*unit, 1),
		paced:    map[pacedBy]*pacedKeys{},
		waiting:  map[string]*fifo[*unit]{},
		timer:    time.NewTimer(time.Hour),
		timerAt:  never,
	}
	s.address(e.topology.Load())
	s.timer.Stop()
	s.ctx, s.giveUp = context.WithCancel(ctx)
	return s
}

// run runs the partition and leaves nothing behind.
func (s *partitionLoop) run() error {
	var helpers sync.WaitGroup
	helpers.Go(func() { s.fetch(s.ctx) })
	helpers.Go(func() { s.park(s.ctx) })
	err := s.loop()
	s.giveUp()
	helpers.Wait()
	s.timer.Stop()
	s.takeParked()
	if !s.gentle {
		s.engine.queries.held.Add(-s.queried.Load())
	}
	s.engine.room.give(load{s.held.inFlight.Load(), s.held.pending.Load(), s.held.bytes.Load()})
	return err
}

// takeParked commits what the parker stored while the loop was ending.
func (s *partitionLoop) takeParked() {
	select {
	case units := <-s.parked:
		for _, u := range units {
			s.finish(u)
		}
		s.commit()
	default:
	}
}

// loop is the owner of the partition's state.
func (s *partitionLoop) loop() error {
	for {
		if t := s.engine.topology.Load(); t != s.topo {
			s.address(t)
		}
		s.now = s.engine.clock()
		s.advance()
		s.publish()
		if over, err := s.over(); over {
			return err
		}
		s.wait()
	}
}

// over reports whether the loop is done: everything is finished after the last batch, or what was under way when
// the partition was given up has come back.
func (s *partitionLoop) over() (bool, error) {
	if s.ctx.Err() != nil && !s.ending {
		s.ending = true
		s.asked -= s.engine.queries.withdraw(s)
	}
	switch {
	case s.ending:
		return s.out == 0 && s.asked == 0, s.err
	case s.eof:
		return s.entries.len() == 0 && len(s.fetched) == 0, nil
	}
	return false, nil
}

// wait waits for something to happen and takes note of it.
func (s *partitionLoop) wait() {
	var slots chan struct{}
	toPark, fetched, ctxDone := s.toPark, s.fetched, s.ctx.Done()
	switch {
	case s.ending:
		toPark, fetched, ctxDone = nil, nil, nil
	case s.topo.several():
		if s.dispatchAny() {
			return
		}
	case s.hasWork(s.outboxes[0]):
		slots = s.lane.slots
	}
	if s.parkerBusy || len(s.parking) == 0 {
		toPark = nil
	}
	s.setTimer()
	select {
	case e := <-fetched:
		s.enter(e)
	case <-slots:
		s.dispatch(s.outboxes[0])
	case j := <-s.results:
		s.settle(j)
	case <-s.poke:
	case <-s.timer.C:
		s.timerAt = never
	case toPark <- s.parking:
		s.parking, s.parkerBusy = nil, true
	case units := <-s.parked:
		s.parkerBusy = false
		for _, u := range units {
			s.finish(u)
		}
	case err := <-s.fetchEnd:
		s.fetchEnded(err)
	case <-ctxDone:
	}
}

func (s *partitionLoop) fetchEnded(err error) {
	switch {
	case errors.Is(err, io.EOF):
		s.eof = true
	case s.ctx.Err() == nil:
		s.fail(fmt.Errorf("partition %d: fetch: %w", s.log.ID(), err))
	}
}

// fail gives the partition up with an error.
func (s *partitionLoop) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.giveUp()
}

// enter takes in an entry.
func (s *partitionLoop) enter(e *entry) {
	s.entries.push(e)
	for i := range e.units {
		switch u := &e.units[i]; {
		case u.limit != nil:
			s.pace(u)
		case u.class == queries:
			s.admit(u)
		default:
			s.outboxTo(u.node).fresh[u.class].push(u)
		}
	}
}

// advance moves what time or a mark has moved, and the low watermark.
func (s *partitionLoop) advance() {
	s.takeAnswers()
	for _, q := range s.waiting {
		for q.len() > 0 {
			u := q.head()
			if u.known = s.known(u); u.known == never {
				break
			}
			s.unmarked.Add(-int64(u.size))
			if u = q.pop(); u.final {
				s.enqueueDue(u)
			} else {
				s.ask(u)
			}
		}
	}
	if s.topo.several() {
		s.advanceBoxes()
	}
	for _, l := range s.outboxes {
		for _, q := range l.due {
			for q.units.len() > 0 && (q.units.head().parkable() || q.class == queries) && s.dueAt(q.units.head()) <= s.now {
				switch u := q.units.pop(); {
				case s.topo.several() && s.isOutdated(u): // others were before it
					s.reroute(u)
				case u.parkable():
					s.rouse(u)
					s.parking = append(s.parking, u)
				default:
					s.ask(u)
				}
			}
		}
		for s.retryReady(l) && l.retries[0].class == queries {
			s.ask(heap.Pop(&l.retries).(*unit))
		}
	}
	s.complain()
	s.commit()
}

// overdue is for how long, besides ten times D, a final delete may be outstanding while Redis is there.
const overdue = 30 * time.Second

// complain raises an alarm, once a minute, when final deletes are long overdue. Redis may be silent for more than
// D/4 again and again: then no delete ever counts, and the watermark stays where it is.
func (s *partitionLoop) complain() {
	if s.now < s.complained.add(time.Minute) {
		return
	}
	for _, l := range s.outboxes {
		for _, q := range l.due {
			if q.units.len() == 0 || l.node == nil {
				continue
			}
			patience := overdue + 10*q.d
			since := max(q.units.head().queued, q.units.head().moved, l.node.health.upSince())
			if s.now.sub(since) > patience {
				s.complained = s.now
				s.engine.alarms.Raise(alarm.RedisSlow,
					fmt.Sprintf("final deletes with a second delete of %s are more than %s overdue, "+
						"though redis %s answers: it is too slow, or silent for more than %s again and again; see what blocks it "+
						"(SLOWLOG, LATENCY DOCTOR), or use a longer second_delete", q.d, patience, l.node.redis, q.d/late))
				return
			}
		}
	}
}

// commit commits the low watermark, if it has moved.
func (s *partitionLoop) commit() {
	var last *entry
	for s.entries.len() > 0 && s.entries.head().open == 0 {
		last = s.entries.pop()
		s.give(load{bytes: last.bytes})
	}
	if last != nil && !last.ended.IsZero() {
		s.done.Store(last.ended.UnixNano())
	}
	if last != nil {
		s.log.Commit(last.token)
	}
}

// publish tells others where the partition stands.
func (s *partitionLoop) publish() {
	if s.entries.len() == 0 {
		s.oldest.Store(0)
		s.behind.Store(0)
		return
	}
	e := s.entries.head()
	s.oldest.Store(max(int64(e.fetched), 1))
	if !e.began.IsZero() {
		s.behind.Store(e.began.UnixNano())
	}
}

// setTimer sets the timer for what is next to happen by itself.
func (s *partitionLoop) setTimer() {
	at := never
	if !s.ending {
		at = s.nextMoment()
	}
	if at == s.timerAt {
		return
	}
	s.timerAt = at
	if at == never {
		s.timer.Stop()
		return
	}
	s.timer.Reset(max(at.sub(s.now), 0))
}

// nextMoment returns when the next thing falls due that is not due yet: what is due waits for a slot.
func (s *partitionLoop) nextMoment() instant {
	at := never
	sooner := func(m instant) {
		if m > s.now {
			at = min(at, m)
		}
	}
	sooner(s.lane.pacer.ready())
	for _, l := range s.outboxes {
		for _, q := range l.due {
			if q.units.len() > 0 {
				sooner(s.dueAt(q.units.head()))
			}
		}
		if len(l.retries) > 0 {
			sooner(l.retries[0].trouble.retryAt)
		}
		if l.fresh[deletes].len() > 0 || l.fresh[writes].len() > 0 {
			sooner(s.engine.pacer.ready())
		}
	}
	for _, p := range s.paced {
		if p.queue.len() > 0 {
			sooner(max(p.pacer.ready(), s.engine.pacer.ready()))
		}
	}
	return at
}
