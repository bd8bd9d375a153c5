package consumer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

const (
	// fetchBytes is what one fetch may bring of a partition, as the brokers store it, and what it should bring once
	// unpacked. A record that is larger comes whole. A partition for which as much waits is not fetched.
	fetchBytes = 512 << 10
	// leastBytes is how far the former is lowered when records are compressed well.
	leastBytes = 32 << 10
	// answerBytes is what one request may bring of all its partitions together, as the brokers store it.
	answerBytes = 2 << 20
	// poll is how long a request waits for records when there are none.
	poll = time.Second
	// soon is how near the end of a request must be for others to wait for it, so that all go on in one request.
	soon = 10 * time.Millisecond
	// mostWaiting is how many requests to a broker wait for records when they come one by one: with one, or one for
	// each of 12 partitions, they are later.
	mostWaiting = 4
)

// cluster is what is asked of the brokers. A [broker.Client] is one.
type cluster interface {
	Leaders(ctx context.Context, topic string) ([]int, error)
	Range(ctx context.Context, topic string, partition int) (start, end int64, err error)
	FetchAll(ctx context.Context, topic string, from []broker.FetchFrom, maxBytes int,
		wait time.Duration) []broker.FetchResult
}

// fetcher fetches for all partitions: those that one broker leads come in one request, since a request costs all who
// take part much more than what it brings. A request has a goroutine, which hands over what it brought and goes on with
// the next one to that broker, as long as there is one to make. All else is done under the lock, by the goroutine that
// changes it.
type fetcher struct {
	c *Consumer

	mu    sync.Mutex
	lanes map[int]*lane // by the broker's number; -1: those of which no leader is known
	turns uint64
}

// lane is the way to a broker.
type lane struct {
	feeds []*feed // those that it leads, without those in trouble
	under []*request
}

// request is one that is under way.
type request struct {
	ctx    context.Context // ends when nobody wants any of it any more
	cancel context.CancelFunc
	feeds  []*feed
	from   []broker.FetchFrom
	wait   time.Duration
	due    time.Time // when it is answered at the latest, if the broker is well
	wanted int       // how many of its feeds are still ours
}

// next returns the requests that are to be made now of what has room. The caller holds the lock.
//
// A feed that is nearly empty makes a request, and all others that have room go with it. None is made while another is
// about to be answered: the feeds that come to have room meanwhile gather for the one after it, so that in a catch-up
// few requests carry many partitions. One that waits for records to be written, though, can take a second, which nobody
// waits for: it gets company. So that the company does not stay, both wait to the same moment; who comes back first,
// with nothing, then waits for the other, and at rest one request a second goes to each broker.
//
// When one that has waited brings records (came), others wait for nobody, and in two requests, the first for the half
// whose records are the latest: a request is ended by the first record of any of its partitions, and a broker looks at
// all of them each time that it is made again. So the more records come one by one, the fewer partitions share one.
func (f *fetcher) next(l *lane, came bool) []*request {
	now := time.Now()
	wait := poll
	for _, u := range l.under {
		left := u.due.Sub(now)
		switch {
		case u.wait == 0, !came && left < soon:
			return nil
		case !came:
			wait = min(wait, left)
		}
	}
	var feeds []*feed
	urgent := false
	for _, d := range l.feeds {
		if d.under == nil && d.waiting < fetchBytes {
			feeds = append(feeds, d)
			urgent = urgent || d.urgent()
			if d.ready() {
				wait = 0
			}
		}
	}
	if !urgent {
		return nil
	}
	// The broker fills its answer in this order, up to answerBytes: first come those that have had nothing for longest.
	slices.SortStableFunc(feeds, func(a, b *feed) int { return cmp.Compare(a.turn, b.turn) })
	if half := len(feeds) / 2; came && wait > 0 && half > 0 && len(l.under)+2 <= mostWaiting {
		return []*request{l.request(feeds[half:], now, wait), l.request(feeds[:half], now, wait)}
	}
	return []*request{l.request(feeds, now, wait)}
}

// request makes a request for some feeds.
func (l *lane) request(feeds []*feed, now time.Time, wait time.Duration) *request {
	r := &request{feeds: feeds, wait: wait, due: now.Add(wait), wanted: len(feeds)}
	r.from = make([]broker.FetchFrom, len(feeds))
	for i, d := range feeds {
		d.under = r
		r.from[i] = broker.FetchFrom{Partition: d.p.id, Offset: d.next, MaxBytes: d.ask}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	l.under = append(l.under, r)
	return r
}

// pump makes the requests that are to be made now. The caller holds the lock, and some feed of the lane is ours, so
// that Run still waits.
func (f *fetcher) pump(l *lane) { f.start(l, f.next(l, false)) }

// start begins requests. The caller holds the lock.
func (f *fetcher) start(l *lane, requests []*request) {
	for _, r := range requests {
		f.c.loops.Add(1)
		go f.run(l, r)
	}
}

// run makes a request, and those that follow from it.
func (f *fetcher) run(l *lane, r *request) {
	defer f.c.loops.Done()
	for r != nil {
		results := f.c.cluster.FetchAll(r.ctx, f.c.o.Names.Topic, r.from, answerBytes, r.wait)
		r.cancel()
		r = f.answered(l, r, results)
	}
}

// answered hands over what a request brought, and returns the next one, if there is one; what else must be asked it
// starts.
func (f *fetcher) answered(l *lane, r *request, results []broker.FetchResult) *request {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.under = slices.DeleteFunc(l.under, func(u *request) bool { return u == r })
	came := false
	for i, d := range r.feeds {
		d.under = nil
		res := &results[i]
		switch {
		case d.gone:
			d.loop.Stop()
		case res.Err != nil:
			f.remove(d)
			f.c.loops.Add(1)
			go f.restore(d, res.Err)
		default:
			if len(res.Records) > 0 {
				f.turns++
				d.turn = f.turns
				came = r.wait > 0
			}
			d.took(&res.Fetched)
		}
	}
	for _, d := range r.feeds {
		if d.lane != nil && d.lane != l { // it has another leader now
			f.pump(d.lane)
		}
	}
	requests := f.next(l, came)
	if len(requests) == 0 {
		return nil
	}
	f.start(l, requests[1:])
	return requests[0]
}

// take returns the next chunk of a feed, if one waits.
func (f *fetcher) take(d *feed) (chunk, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(d.chunks) == 0 {
		return chunk{}, false
	}
	c := d.chunks[0]
	d.chunks[0] = chunk{} // not to keep it
	d.chunks = d.chunks[1:]
	was := d.urgent()
	d.waiting -= c.size
	if d.lane != nil && d.under == nil && !was && d.urgent() {
		f.pump(d.lane)
	}
	return c, true
}

// restore does what must be done before a feed can be fetched on: it waits after an error, looks where to go on when
// the offset is not there any more, and finds the leader. The feed is in no lane meanwhile, and its place is that of
// restore. It also begins a feed, without an error.
func (f *fetcher) restore(d *feed, err error) {
	defer f.c.loops.Done()
	p := d.p
	switch {
	case err == nil, p.ctx.Err() != nil:
	case broker.Classify(err) == broker.OutOfRange:
		from, lost := p.locate(d.next)
		switch {
		case p.ctx.Err() != nil:
		case lost != nil:
			f.mu.Lock()
			defer f.mu.Unlock()
			d.put(chunk{lost: lost})
			d.loop.Stop()
			return
		case from == d.next:
			_ = d.loop.Wait(p.ctx, err) // the brokers do not agree yet
		default:
			d.next, d.jumped = from, true
		}
	default:
		_ = d.loop.Wait(p.ctx, err)
	}
	for p.ctx.Err() == nil {
		leaders, err := f.c.cluster.Leaders(p.ctx, p.assignment.Topic)
		if err != nil {
			_ = d.loop.Wait(p.ctx, err)
			continue
		}
		leader := -1 // the request will say what is wrong
		if p.id < len(leaders) {
			leader = leaders[p.id]
		}
		f.enter(d, leader)
		return
	}
	d.loop.Stop()
}

// enter makes a feed one that is fetched from a broker.
func (f *fetcher) enter(d *feed, leader int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.gone {
		d.loop.Stop()
		return
	}
	f.join(d, leader)
	f.pump(d.lane)
}

// join puts a feed into a lane, which must be pumped then. The caller holds the lock.
func (f *fetcher) join(d *feed, leader int) {
	l := f.lanes[leader]
	if l == nil {
		l = &lane{}
		f.lanes[leader] = l
	}
	d.lane = l
	l.feeds = append(l.feeds, d)
}

// lead moves feeds to the brokers that lead them now. A broker that no longer leads a partition may answer as a
// follower (KIP-392), without an error and late. What is under way stays where it is.
func (f *fetcher) lead(leaders []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var moved []*feed
	for broker, l := range f.lanes {
		for _, d := range l.feeds {
			if d.p.id < len(leaders) && leaders[d.p.id] != broker {
				moved = append(moved, d)
			}
		}
	}
	for _, d := range moved {
		f.remove(d)
		f.join(d, leaders[d.p.id])
	}
	for _, d := range moved {
		f.pump(d.lane)
	}
}

// remove takes a feed out of its lane. The caller holds the lock.
func (f *fetcher) remove(d *feed) {
	if l := d.lane; l != nil {
		l.feeds = slices.DeleteFunc(l.feeds, func(o *feed) bool { return o == d })
		d.lane = nil
	}
}

// leave ends a feed. It does not wait for the request that the feed is in, if there is one: that goes on for the
// others, and what it brings of this one is dropped.
func (f *fetcher) leave(d *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.gone {
		return // it was stopped before
	}
	idle := d.lane != nil && d.under == nil
	f.remove(d)
	d.gone, d.chunks, d.waiting = true, nil, 0
	if idle {
		d.loop.Stop() // else its worker does
	}
	if r := d.under; r != nil {
		if r.wanted--; r.wanted == 0 {
			r.cancel()
		}
	}
}
