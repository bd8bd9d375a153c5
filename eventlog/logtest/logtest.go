package logtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// Patience is how long the suite waits for what must happen.
const Patience = 30 * time.Second

// blockedAfter is how long an Append must not return to count as blocked.
const blockedAfter = 100 * time.Millisecond

// Log is both ends of an event log.
type Log interface {
	Append(ctx context.Context, b *event.Batch) error
	Mark(m event.Mark)
	Durable() <-chan event.End
	Consume(ctx context.Context, handle func(context.Context, eventlog.Partition) error) error
	Marks() <-chan event.Mark
}

// Opened is a log as one process has it.
type Opened struct {
	Log Log
	// Close says that no more will be appended.
	Close func()
}

// Harness opens the log under test.
type Harness struct {
	// Open opens the log as a new process would. It is called again after a crash: the suite then has ended all
	// its calls into the one before by their contexts, and never called its Close. A new test needs a new log.
	Open func(t *testing.T) Opened
	// DurableFollowsCommit: an end is durable when the work up to it is committed, not before.
	DurableFollowsCommit bool
	// Stall, if set, keeps the log from passing batches on until resume is called, so that it becomes full. Where
	// it is nil, a log is full that nobody fetches from.
	Stall func(t *testing.T) (resume func())
	// LoseAcknowledgements, if set, lets what the log writes from now on take effect while the answers are lost,
	// until restore is called.
	LoseAcknowledgements func(t *testing.T) (restore func())
}

// Run runs the suite. newHarness is called once for each test in it.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"keeps the order of each key", keepsOrder},
		{"carries what is odd unchanged", carriesWhatIsOdd},
		{"carries every action with all it has", carriesEveryAction},
		{"carries every action again in the next life", carriesActionsAgain},
		{"carries large values in large batches", carriesLargeBatches},
		{"ends with EOF after the rest", endsWithEOF},
		{"takes nothing after close", takesNothingAfterClose},
		{"returns from consume when its context ends", returnsWhenContextEnds},
		{"makes progress durable in order", makesProgressDurable},
		{"commits without going back", commitsWithoutGoingBack},
		{"gains nothing inside a transaction", gainsNothingInsideATransaction},
		{"delivers again what was not committed", deliversAgain},
		{"survives a lost acknowledgement", survivesLostAcknowledgement},
		{"loses nothing in many crashes", losesNothingInCrashes},
		{"stops at what the handler cannot take", stopsAtPoison},
		{"blocks when full", blocksWhenFull},
		{"closes while full", closesWhileFull},
		{"passes marks past a full log", passesMarksWhenFull},
		{"keeps the newest mark", keepsNewestMark},
		{"works under load", worksUnderLoad},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newHarness(t)) })
	}
}

// source is the name of the source in all batches and marks.
const source = "logtest"

// step is how far apart the batches end in the binlog.
const step = 100

// keysOf returns the keys of batch i. Each key is in several batches.
func keysOf(i int) []string {
	all := []string{"a:1", "b:2", "c:3", "d:4", "e:5", "f:6", "g:7"}
	return []string{all[i%7], all[(i+2)%7], all[(i*3)%7]}
}

// batch makes batch i, from 1: one whole transaction.
func batch(i int, keys ...string) *event.Batch {
	if keys == nil {
		keys = keysOf(i)
	}
	var b event.Batch
	fill(&b, i, keys...)
	return b.Clone()
}

// fill builds batch i in the memory of another.
func fill(b *event.Batch, i int, keys ...string) {
	b.Reset()
	b.Source, b.Term, b.At = source, 1, time.Now()
	b.AddOrigin(event.Origin{
		Table: "shop.product", Tx: event.Tx{GTID: gtid(i)},
		Event: event.Version{Epoch: 1, File: 1, Pos: uint64(i * step)}, D: 2 * time.Second,
	})
	for row, k := range keys {
		b.Add(append(b.Text(), k...), uint32(row+1), event.ActionDelete)
	}
	b.End.AddTx("binlog.000001", uint64(i*step), gtid(i), time.Unix(int64(i), 0))
}

// gtid is that of batch i.
func gtid(i int) event.GTID { return event.GTID{UUID: [16]byte{15: 1}, Number: uint64(i)} }

// item is one invalidation as it was delivered.
type item struct {
	key     string
	version event.Version
}

func items(b *event.Batch) []item {
	out := make([]item, b.Len())
	for i := range out {
		out[i] = item{b.Key(i), b.Version(i)}
	}
	return out
}

// process is one life of a process that has the log open.
type process struct {
	t      *testing.T
	o      Opened
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	saved   event.End     // the last that was durable
	gtids   event.GTIDSet // of all that was durable
	closed  bool          // the channel of ends
	changed chan struct{}
}

// start opens the log. The process ends with the test, or by crash.
func start(t *testing.T, h Harness) *process {
	t.Helper()
	p := &process{t: t, o: h.Open(t), changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithTimeout(context.Background(), Patience)
	p.group.Go(p.save)
	t.Cleanup(p.crash)
	return p
}

// crash ends all calls into the log, and waits for them.
func (p *process) crash() {
	p.cancel()
	p.group.Wait()
}

// save is the checkpoint: it keeps the last durable end.
func (p *process) save() {
	for {
		var e event.End
		open := true
		select {
		case e, open = <-p.o.Log.Durable():
		case <-p.ctx.Done():
			return
		}
		p.mu.Lock()
		if open && e.Pos < p.saved.Pos {
			p.t.Errorf("the durable end went back from %d to %d", p.saved.Pos, e.Pos)
		}
		if open {
			p.saved = e
			for _, r := range e.GTIDs {
				p.gtids.AddRange(r)
			}
		}
		p.closed = !open
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if !open {
			return
		}
	}
}

// await waits until what is saved is as it must be, and fails the test if it never is.
func (p *process) await(what string, cond func(saved event.End, closed bool) bool) {
	p.t.Helper()
	for {
		p.mu.Lock()
		ok, changed, saved := cond(p.saved, p.closed), p.changed, p.saved
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			p.t.Fatalf("%s: not within %s; the durable end is %d", what, Patience, saved.Pos)
		}
	}
}

// awaitAll waits until the channel of ends is closed, and checks that it has told of n batches and of each of them.
func (p *process) awaitAll(n int) {
	p.t.Helper()
	p.await("the channel of durable ends is closed", func(_ event.End, closed bool) bool { return closed })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved.Pos != uint64(n*step) {
		p.t.Errorf("the durable end is %d, want %d", p.saved.Pos, n*step)
	}
	if want := fmt.Sprintf("00000000-0000-0000-0000-000000000001:1-%d", n); p.gtids.String() != want {
		p.t.Errorf("durable are the transactions %s, want %s", p.gtids.String(), want)
	}
}

// durable returns how many batches, from the first, are durable.
func (p *process) durable() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.saved.Pos / step)
}

// append appends the batches from to last, each built in the memory of the one before: the log has its own of all that
// it keeps.
func (p *process) append(from, last int) {
	p.t.Helper()
	var b event.Batch
	for i := from; i <= last; i++ {
		fill(&b, i, keysOf(i)...)
		if err := p.o.Log.Append(p.ctx, &b); err != nil {
			p.t.Errorf("append batch %d: %v", i, err)
			return
		}
	}
}

// consume runs a consumer until it ends; the channel gets what Consume returned.
func (p *process) consume(handle func(context.Context, eventlog.Partition) error) <-chan error {
	done := make(chan error, 1)
	p.group.Go(func() { done <- p.o.Log.Consume(p.ctx, handle) })
	return done
}

// result waits for a consumer to end.
func (p *process) result(done <-chan error) error {
	p.t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(Patience):
		p.t.Fatal("consume does not return")
		return nil
	}
}

// deliveries gathers what the consumers of all partitions are given.
type deliveries struct {
	mu    sync.Mutex
	items []item
}

func (d *deliveries) add(b *event.Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.items = append(d.items, items(b)...)
}

// all fetches and commits everything until the log is closed.
func (d *deliveries) all(ctx context.Context, p eventlog.Partition) error {
	return each(ctx, p, func(b *event.Batch, token eventlog.Token) {
		d.add(b)
		p.Commit(token)
	})
}

// each fetches everything until the log is closed.
func each(ctx context.Context, p eventlog.Partition, take func(b *event.Batch, token eventlog.Token)) error {
	for {
		b, token, err := p.Fetch(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		take(b, token)
	}
}

// fetch fetches from the log and commits nothing; enough is done when n invalidations have come.
func (d *deliveries) fetch(n int, enough *once) func(context.Context, eventlog.Partition) error {
	return func(ctx context.Context, p eventlog.Partition) error {
		for {
			b, _, err := p.Fetch(ctx)
			if err != nil {
				return err
			}
			d.add(b)
			d.mu.Lock()
			got := len(d.items)
			d.mu.Unlock()
			if got >= n {
				enough.done()
			}
		}
	}
}

// once is something that happens, in one partition or in several.
type once struct {
	mu sync.Mutex
	c  chan struct{}
	ok bool
}

func (o *once) channel() chan struct{} {
	if o.c == nil {
		o.c = make(chan struct{})
	}
	return o.c
}

// done says that it has happened.
func (o *once) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ok {
		o.ok = true
		close(o.channel())
	}
}

// wait waits for it.
func (o *once) wait(p *process) {
	p.t.Helper()
	o.mu.Lock()
	c := o.channel()
	o.mu.Unlock()
	select {
	case <-c:
	case <-p.ctx.Done():
		p.t.Fatalf("it did not happen within %s", Patience)
	}
}

// check fails the test unless the batches from to last were delivered, each key's in their order. Deliveries that
// come again are allowed: an order that starts over from an earlier version.
func (d *deliveries) check(t *testing.T, from, last int) {
	t.Helper()
	want := map[string][]event.Version{}
	for i := from; i <= last; i++ {
		for _, it := range items(batch(i)) {
			want[it.key] = append(want[it.key], it.version)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[string]int{}
	for _, it := range d.items {
		n := next[it.key]
		if n < len(want[it.key]) && want[it.key][n] == it.version {
			next[it.key]++
			continue
		}
		// Again, or from before: never something that skips what has not been seen.
		if n < len(want[it.key]) && it.version.Compare(want[it.key][n]) > 0 {
			t.Errorf("key %s: version %s came before %s", it.key, it.version, want[it.key][n])
		}
	}
	for key, versions := range want {
		if next[key] < len(versions) {
			t.Errorf("key %s: %d of %d versions came; %s is missing", key, next[key], len(versions), versions[next[key]])
		}
	}
}
