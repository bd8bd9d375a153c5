package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
)

// fake is a topic on brokers that answer as Kafka does, in no time or in as much as is said.
type fake struct {
	mu      sync.Mutex
	leaders []int
	logs    [][]broker.Record
	errs    map[int]error         // of partitions
	hung    map[int]chan struct{} // brokers, until closed
	locates chan struct{}         // Range waits for it, if there is one
	takes   time.Duration         // each answer
	follow  bool                  // brokers answer for what they do not lead, too
	changed chan struct{}
	asked   []asked
}

// asked is a request that came.
type asked struct {
	broker     int
	partitions []int
	at         time.Time
}

var errMoved = errors.New("another broker leads it")

func newFake(leaders ...int) *fake {
	return &fake{
		leaders: leaders, logs: make([][]broker.Record, len(leaders)),
		errs: map[int]error{}, hung: map[int]chan struct{}{}, changed: make(chan struct{}),
	}
}

// change changes something, and wakes who waits for it.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// write appends n records of a size to a partition.
func (f *fake) write(partition, n, size int) {
	f.change(func() {
		for range n {
			l := f.logs[partition]
			f.logs[partition] = append(l, broker.Record{Offset: int64(len(l)), Value: make([]byte, size)})
		}
	})
}

// requests returns what was asked since the last call.
func (f *fake) requests() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.asked
	f.asked = nil
	return out
}

func (f *fake) Leaders(context.Context, string) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.leaders...), nil
}

func (f *fake) Range(ctx context.Context, _ string, partition int) (start, end int64, err error) {
	if f.locates != nil {
		select {
		case <-f.locates:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return 0, int64(len(f.logs[partition])), nil
}

func (f *fake) FetchAll(ctx context.Context, _ string, from []broker.FetchFrom, maxBytes int,
	wait time.Duration,
) []broker.FetchResult {
	f.mu.Lock()
	a := asked{broker: f.leaders[from[0].Partition], at: time.Now()}
	for _, p := range from {
		a.partitions = append(a.partitions, p.Partition)
	}
	f.asked = append(f.asked, a)
	hung := f.hung[a.broker]
	f.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	waits := wait > 0
	for {
		if hung != nil {
			select {
			case <-hung:
			case <-ctx.Done():
			}
		}
		f.mu.Lock()
		out, some := f.answer(a.broker, from, maxBytes)
		changed := f.changed
		f.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			for i := range out {
				out[i] = broker.FetchResult{Err: ctx.Err()}
			}
			return out
		case some || !waits:
			time.Sleep(f.takes)
			return out
		}
		select {
		case <-changed:
		case <-late.C:
			waits = false
		case <-ctx.Done():
		}
	}
}

// answer fills an answer, and reports whether there is anything in it.
func (f *fake) answer(from int, parts []broker.FetchFrom, maxBytes int) (out []broker.FetchResult, some bool) {
	for _, p := range parts {
		log := f.logs[p.Partition]
		r := broker.FetchResult{Fetched: broker.Fetched{Next: p.Offset, HighWatermark: int64(len(log))}}
		switch {
		case f.leaders[p.Partition] != from && !f.follow:
			r = broker.FetchResult{Err: errMoved}
		case f.errs[p.Partition] != nil:
			r = broker.FetchResult{Err: f.errs[p.Partition]}
		default:
			for n := 0; r.Next < r.HighWatermark; r.Next++ {
				rec := log[r.Next]
				if n += len(rec.Value); (n > p.MaxBytes || len(rec.Value) > maxBytes) && some {
					break
				}
				maxBytes -= len(rec.Value)
				r.Records, some = append(r.Records, rec), true
			}
		}
		some = some || r.Err != nil
		out = append(out, r)
	}
	return out, some
}

// bench is a consumer on a fake.
type bench struct {
	*testing.T
	*fake
	c *Consumer
}

// onFake runs a test on a fake, in time that passes when nothing else does.
func onFake(t *testing.T, f func(*bench), leaders ...int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := New(nil, Options{
			Names: broker.Names{Topic: "t"}, Group: "g", Log: quietLog(),
			Bury: func(context.Context, string, int, broker.Record, error) error { return nil },
		})
		must(t, err)
		b := &bench{T: t, fake: newFake(leaders...), c: c}
		c.cluster = b.fake
		defer func() {
			c.end()
			c.loops.Wait()
		}()
		f(b)
	})
}

// assignment begins a partition.
func (b *bench) assignment(id int) (p *assignedPartition, revoke func()) {
	b.Helper()
	p = &assignedPartition{c: b.c, assignment: &group.Assignment{Topic: "t", Partition: id}, id: id, what: "t"}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithCancel(b.Context())
	if !b.c.enlist(p) {
		b.Fatal("the consumer has ended")
	}
	b.c.attend(p, 0, cancel)
	return p, cancel
}

func (b *bench) claimAll() (all []*assignedPartition) {
	b.Helper()
	for id := range b.leaders {
		p, _ := b.assignment(id)
		all = append(all, p)
	}
	synctest.Wait()
	return all
}

// drain takes all that waits of a partition, and all that comes because there is room then; it returns how many
// records.
func (b *bench) drain(p *assignedPartition) (n int) {
	for {
		synctest.Wait()
		c, ok := b.c.fetcher.take(p.feed)
		if !ok {
			return n
		}
		n += len(c.records)
	}
}

// expect drains a partition and compares.
func (b *bench) expect(p *assignedPartition, want int) {
	b.Helper()
	if n := b.drain(p); n != want {
		b.Fatalf("%d records of partition %d, want %d", n, p.id, want)
	}
}
