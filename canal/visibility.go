package canal

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
)

const (
	// maxRequirements bounds the queue of what is not yet confirmed. Beyond it, new requirements are added to the last
	// one: the marks get coarser, not wrong.
	maxRequirements = 8192
	// maxAnswers bounds the answers that are kept for telling a batch's age.
	maxAnswers = 64
	// maxBare bounds the places that are known to end no transaction. A file of the binlog has two or three.
	maxBare = 64
	// unseenAfter is how long something may wait to be confirmed before it is an alarm.
	unseenAfter = 30 * time.Second
)

// visibility knows what has been handed over and what the source says that everybody can read, and draws the line
// up to which all that was handed over is visible. The loop hands over; the heartbeat brings the answers.
type visibility struct {
	mu sync.Mutex
	// server and epoch are the stream's; answers of others are not taken.
	server string
	epoch  uint32
	// queue holds what is not confirmed, in commit order.
	queue []requirement
	// confirmed is the highest version such that everything handed over up to it is visible.
	confirmed event.Version
	// answers are kept oldest first: the first one, then ever denser towards the present.
	answers []answer
	// spacing is the least time between kept answers.
	spacing time.Duration
	// read is how far the loop had handed over everything, by place and, since the start of the run, by GTID. before is
	// what had been when the run began.
	read              binlogPos
	readEpoch         uint32
	readGTIDs, before event.GTIDSet
	// finished says that all changes of before were finished by an earlier run. Else they may not have been, or not read.
	finished bool
	// quiet counts how often the source has said in the stream that it has nothing more to send.
	quiet int
	// bare are the last places read at which an event ends that belongs to no transaction.
	bare []binlogPos
	// wanted is a place that the heartbeat waits for the loop to reach; zero: none. reached says that it has; capacity 1.
	wanted  binlogPos
	reached chan struct{}
	// wake tells the heartbeat that there is something to ask for, or to say; capacity 1.
	wake chan struct{}
	// drained says that the queue has become empty; capacity 1.
	drained chan struct{}
	// asap is set where somebody waits for the answer alone: it is asked for once without the usual pause.
	asap bool
	// unread is the newest answer, as long as the loop has not read all that it speaks of.
	unread *answer
	// seen is how many requirements of the queue, from the first on, the source has confirmed.
	seen int
	// fills are the fill servers, which must confirm them as well. lag is how long after the source they do so where they
	// cannot be asked.
	fills []*fillView
	lag   time.Duration
	// unknown says that it is not known yet which servers these are, so that nothing is confirmed.
	unknown bool
	// apart is the address of another server on which is written what does not come down the stream, so that all that was
	// read is not all; "": there is none.
	apart string
	// unheard is why no new connection to the source has come about for some time, so that another server may have taken
	// its place; "": one has.
	unheard string
	// logged is what MariaDB's binlog had of each origin when the connection was made, and what was read since; nil on
	// others, and where nobody asks for it. held is what it had replicated of each by then, logged or not.
	logged, held map[origin]uint64
	// process is which process the stream comes from, see [SourceInfo].Process.
	process string
	// news says that they have confirmed something since the last conclusion, at the time made.
	news bool
	made time.Time
}

func newVisibility(spacing, lag time.Duration) *visibility {
	return &visibility{
		spacing: spacing, lag: lag, wake: make(chan struct{}, 1), drained: make(chan struct{}, 1),
		reached: make(chan struct{}, 1),
	}
}

// begin is called at each connection with the identity of its server. What other servers said, or this one in
// another epoch, is forgotten.
func (v *visibility) begin(server string, epoch uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server == server && v.epoch == epoch {
		return
	}
	v.server, v.epoch, v.apart, v.unheard, v.logged, v.held = server, epoch, "", "", nil, nil
	v.answers, v.unread, v.seen = nil, nil, 0
	for _, f := range v.fills {
		f.reset()
	}
}

// base queues the requirement on what was there before the run, which before is all of. finished says that an earlier
// run has finished it.
func (v *visibility) base(c requirement, before event.GTIDSet, finished bool) {
	c.since = time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	c.earlier, c.unfinished = true, !finished
	v.queue, v.seen = append(v.queue[:0], c), 0
	for _, f := range v.fills {
		f.reset()
	}
	v.read, v.readEpoch, v.before, v.finished = c.need, c.last.Epoch, before, finished
}

// stream returns the server and epoch that answers are wanted of.
func (v *visibility) stream() (server string, epoch uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.server, v.epoch
}

// handover queues a requirement and returns for how long all of it has been known to be visible.
func (v *visibility) handover(c requirement) time.Duration {
	c.since = time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	age := v.age(&c)
	if v.enqueue(c) {
		signal(v.wake)
	}
	return age
}

// age returns for how long all who readers fill from have been known to have what c needs.
func (v *visibility) age(c *requirement) time.Duration {
	if v.unknown {
		return event.Unknown
	}
	age := ageBy(v.answers, c) - v.lag
	for _, f := range v.fills {
		if !f.out && !f.same {
			age = min(age, ageBy(f.answers, c))
		}
	}
	if age < 0 {
		return event.Unknown
	}
	return age
}

// enqueue reports whether the queue was empty.
func (v *visibility) enqueue(c requirement) bool {
	n := len(v.queue)
	if n < maxRequirements { // the last element may be a requirement of many batches
		v.queue = append(v.queue, c)
		return n == 0
	}
	t := &v.queue[n-1]
	if t.more == nil {
		t.more = &event.GTIDSet{}
	}
	for _, r := range t.gtids {
		t.more.AddRange(r)
	}
	t.last, t.need, t.open, t.gtids, t.seen = c.last, c.need, c.open, c.gtids, time.Time{}
	v.seen = min(v.seen, n-1)
	for _, f := range v.fills {
		f.upTo = min(f.upTo, n-1)
	}
	return false
}

// forget takes back the requirement on a transaction that was open when the connection broke and then did not come
// again: the server has lost it, so it will never be visible, and nothing must wait for it.
func (v *visibility) forget(g event.GTID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := len(v.queue) - 1; i >= 0 && v.queue[i].open == g; i-- {
		v.queue[i].gtids = without(v.queue[i].gtids, g)
		v.queue[i].open = event.GTID{}
		if v.queue[i].more != nil {
			drop(v.queue[i].more, g)
		}
	}
}

// drop does the same for a set.
func drop(s *event.GTIDSet, g event.GTID) {
	var one event.GTIDSet
	one.Add(g)
	if before := g; g.UUID == [16]byte{} && g.Number > 1 && s.Contains(g) {
		before.Number--
		s.Add(before)
		return
	}
	*s = s.Subtract(&one)
}

// without returns the runs of transactions less one, the newest of its source. On MariaDB what remains is the one
// before it in its domain.
func without(runs []event.GTIDRange, g event.GTID) []event.GTIDRange {
	out := runs[:0]
	for _, r := range runs {
		same := r.First
		same.Number = g.Number
		if same != g || r.Last != g.Number {
			out = append(out, r)
			continue
		}
		r.Last--
		mariadb := r.First.UUID == [16]byte{}
		if mariadb {
			r.First.Number = min(r.First.Number, r.Last)
		}
		if r.Last > 0 && r.First.Number <= r.Last {
			out = append(out, r)
		}
	}
	return out
}

// handed says that everything up to a place, and these transactions, has been handed over.
func (v *visibility) handed(p binlogPos, epoch uint32, gtids []event.GTIDRange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read, v.readEpoch = p, epoch
	for _, r := range gtids {
		v.readGTIDs.AddRange(r)
		if v.logged != nil {
			v.logged[origin{r.First.Domain, r.First.Server}] = r.Last
		}
	}
	if v.unread != nil && v.hasRead(v.unread) {
		signal(v.wake)
	}
	if !v.wanted.isZero() && v.isPast(v.wanted) {
		signal(v.reached)
	}
}

// isPast reports whether the loop has handed over all before a place of the stream's server.
func (v *visibility) isPast(at binlogPos) bool {
	return v.readEpoch == v.epoch && v.read.compare(at) >= 0
}

// hasRead reports whether all that the source held when it gave the answer has been handed over.
func (v *visibility) hasRead(a *answer) bool {
	if !a.end.isZero() {
		return v.readEpoch == a.epoch && v.read.compare(a.end) >= 0
	}
	rest := a.gtids.Subtract(&v.readGTIDs)
	return rest.IsEmpty()
}

// signal wakes what waits for the channel; it does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// conclusion is what follows from an answer.
type conclusion struct {
	version event.Version
	server  string // that said so
	made    time.Time
	read    bool
	// news says that it tells more than the last conclusion did.
	news bool
}

// take draws the conclusions from an answer; ok is false if it is not of the stream's server and epoch.
func (v *visibility) take(a answer) (out conclusion, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a.server != v.server || a.epoch != v.epoch {
		return conclusion{}, false
	}
	if a.named || !a.place.isZero() {
		v.answers = keep(v.answers, a, v.spacing)
	}
	for ; v.seen < len(v.queue) && a.holds(&v.queue[v.seen]); v.seen++ {
		v.queue[v.seen].seen = a.received
	}
	n := v.confirm(a.received)
	v.made = a.made
	v.unread = &a
	out = v.judge()
	out.news = out.news || n > 0
	return out, true
}

// confirm takes from the queue what the source and all fill servers have confirmed, and returns how much that was.
func (v *visibility) confirm(now time.Time) int {
	n := v.seen
	if v.unknown {
		n = 0
	}
	for _, f := range v.fills {
		if !f.out && !f.same {
			n = min(n, f.upTo)
		}
	}
	for ; v.lag > 0 && n > 0 && now.Sub(v.queue[n-1].seen) < v.lag; n-- {
	}
	if n == 0 {
		return 0
	}
	v.confirmed = v.queue[n-1].last
	v.queue = slices.Delete(v.queue, 0, n)
	v.seen -= n
	for _, f := range v.fills {
		f.upTo = max(0, f.upTo-n)
	}
	if len(v.queue) == 0 {
		if cap(v.queue) > 1024 {
			v.queue = nil
		}
		signal(v.drained)
	}
	return n
}

// again judges the newest answer once more, if the loop has since read all that it speaks of, or fill servers have
// confirmed more.
func (v *visibility) again() (out conclusion, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.news && (v.unread == nil || !v.hasRead(v.unread)) {
		return conclusion{}, false
	}
	return v.judge(), true
}

// judge says what is known by the newest answer, which it settles once everything has been read.
func (v *visibility) judge() conclusion {
	out := conclusion{version: v.confirmed, server: v.server, made: v.made, news: v.news}
	v.news = false
	if v.unread != nil && v.hasRead(v.unread) {
		out.read, out.made = v.apart == "" && v.unheard == "", v.unread.made
		v.unread = nil
	}
	return out
}

// settled waits until everything handed over has been confirmed. Nothing else is left to do, so it is asked for now:
// a catch-up does not take a pause between two questions longer than its work.
func (v *visibility) settled(ctx context.Context) error {
	v.mu.Lock()
	v.asap = true
	v.mu.Unlock()
	signal(v.wake)
	for {
		v.mu.Lock()
		n := len(v.queue)
		v.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-v.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// urgent reports, once, whether to ask without the usual pause.
func (v *visibility) urgent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	urgent := v.asap
	v.asap = false
	return urgent
}

// waiting returns how many requirements the source has not confirmed, and since when the first one waits.
func (v *visibility) waiting() (n int, since time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen < len(v.queue) {
		since = v.queue[v.seen].since
	}
	return len(v.queue) - v.seen, since
}

// unconfirmed returns how many requirements are not confirmed by all that must.
func (v *visibility) unconfirmed() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.queue)
}
