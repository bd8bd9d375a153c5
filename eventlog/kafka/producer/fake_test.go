package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }

const source = "shard-1"

var names = broker.Names{Topic: "shop.invalidations"}

// fakeKafka plays the brokers, for what a real one does not do when asked to: it appends and loses the answer, appends
// later, or does not answer.
type fakeKafka struct {
	// fate, if set, decides about an attempt before it is made. The attempts of a partition are counted from 1.
	fate func(topic string, partition, attempt int) fate

	mu       sync.Mutex
	count    int   // partitions of the topic of invalidations
	leaders  []int // of these; those that are not in it are led by broker 0
	away     error
	largest  int // bytes of a value; 0: any
	data     [][]stored
	marks    [][]byte
	start    int64   // offset of the first record of each partition
	requests [][]int // for the topic of invalidations: their partitions
	attempts map[string]int
	inFlight map[string]bool
	changed  chan struct{} // closed and replaced whenever something is appended
	broken   error
}

// stored is a record as it was sent, and a copy of what it was then.
type stored struct{ value, copied []byte }

// fate is what becomes of an attempt.
type fate struct {
	until   <-chan struct{} // waits for it first, or for the context's end
	applied bool            // it is appended
	late    <-chan struct{} // it is appended when this is closed
	err     error           // the answer
}

var errLost = errors.New("connection reset by peer")

func newFake(partitions int) *fakeKafka {
	return &fakeKafka{
		count: partitions, data: make([][]stored, partitions),
		attempts: map[string]int{}, inFlight: map[string]bool{}, changed: make(chan struct{}),
	}
}

// ProduceAll answers once it has an answer for each partition, as brokers do.
func (f *fakeKafka) ProduceAll(ctx context.Context, topic string, to []broker.ProduceTo) []broker.ProduceResult {
	if topic == names.Topic {
		var ids []int
		for _, t := range to {
			ids = append(ids, t.Partition)
		}
		f.set(func() { f.requests = append(f.requests, ids) })
	}
	results := make([]broker.ProduceResult, len(to))
	var wg sync.WaitGroup
	for i, t := range to {
		wg.Go(func() { results[i].Offset, results[i].Err = f.produce(ctx, topic, t.Partition, t.Records) })
	}
	wg.Wait()
	return results
}

func (f *fakeKafka) produce(ctx context.Context, topic string, partition int, records []broker.Record) (int64, error) {
	name := fmt.Sprintf("%s/%d", topic, partition)
	f.mu.Lock()
	if f.inFlight[name] {
		f.broken = fmt.Errorf("two produce requests for %s at once", name)
	}
	f.inFlight[name] = true
	f.attempts[name]++
	n, decide := f.attempts[name], f.fate
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inFlight[name] = false
		f.mu.Unlock()
	}()
	what := fate{applied: true}
	if decide != nil {
		what = decide(topic, partition, n)
	}
	if what.until != nil {
		select {
		case <-what.until:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	value := records[0].Value
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away != nil:
		return 0, f.away
	case f.largest > 0 && len(value) > f.largest:
		return 0, fmt.Errorf("produce to %s: %w", name, kafka.MessageSizeTooLarge)
	case what.late != nil:
		kept := slices.Clone(value)
		go func() {
			<-what.late
			f.mu.Lock()
			defer f.mu.Unlock()
			f.append(topic, partition, kept)
		}()
	case what.applied:
		offset := f.append(topic, partition, value)
		if what.err == nil {
			return offset, nil
		}
	}
	return 0, what.err
}

// append appends; the lock is held.
func (f *fakeKafka) append(topic string, partition int, value []byte) int64 {
	close(f.changed)
	f.changed = make(chan struct{})
	if topic == names.Marks() {
		f.marks = append(f.marks, slices.Clone(value))
		return int64(len(f.marks) - 1)
	}
	f.data[partition] = append(f.data[partition], stored{value, slices.Clone(value)})
	return f.start + int64(len(f.data[partition])-1)
}

func (f *fakeKafka) Leaders(context.Context, string) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return nil, f.away
	}
	leaders := make([]int, f.count)
	copy(leaders, f.leaders)
	return leaders, nil
}

func (f *fakeKafka) End(_ context.Context, _ string, partition int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.start + int64(len(f.data[partition])), f.away
}

// resize gives the topic another number of partitions.
func (f *fakeKafka) resize(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count = n
	for len(f.data) < n {
		f.data = append(f.data, nil)
	}
}

// set changes the fake under its lock.
func (f *fakeKafka) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// lastMark returns the newest mark there is.
func (f *fakeKafka) lastMark(t testing.TB) (m record.Mark, n int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.marks) == 0 {
		return record.Mark{}, 0
	}
	m, err := record.ParseMark(f.marks[len(f.marks)-1])
	if err != nil {
		t.Fatal(err)
	}
	return m, len(f.marks)
}

// item is one invalidation as it was appended.
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

// contents returns what a consumer makes from each partition.
func (f *fakeKafka) contents(heads map[int]event.Version) ([][]item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	values := make([][][]byte, len(f.data))
	for id, records := range f.data {
		for at, r := range records {
			if string(r.value) != string(r.copied) {
				return nil, fmt.Errorf("partition %d: the bytes of record %d were written to after they were sent", id, at)
			}
			values[id] = append(values[id], r.copied)
		}
	}
	if f.broken != nil {
		return nil, f.broken
	}
	return consume(values, heads)
}

// consume returns what a consumer makes from each partition's records, passing over repeats, or what is wrong with a
// chain.
func consume(values [][][]byte, heads map[int]event.Version) ([][]item, error) {
	all := make([][]item, len(values))
	for id, records := range values {
		head, seq := heads[id], uint64(0)
		for at, value := range records {
			b, h, err := record.Parse(value)
			if err != nil {
				return nil, fmt.Errorf("partition %d: record %d: %w", id, at, err)
			}
			if h.Seq <= seq {
				continue
			}
			if h.Seq != seq+1 || h.Prev != head || h.Source != source || h.Term != 7 {
				return nil, fmt.Errorf("partition %d: record %d has %+v behind seq %d and head %s", id, at, h, seq, head)
			}
			seq = h.Seq
			if b.Last.Compare(head) > 0 {
				head = b.Last
			}
			all[id] = append(all[id], items(b)...)
		}
	}
	return all, nil
}

// running is a producer and its Run.
type running struct {
	*Producer
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
	err    error
	ended  bool
}

// run runs a producer until the test ends.
func run(t testing.TB, c Client, o Options) *running {
	t.Helper()
	if o.Source, o.Term = source, 7; o.Topics.Topic == "" {
		o.Topics = names
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Alarms == nil {
		var err error
		if o.Alarms, err = alarm.New(o.Log, nil); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if o.Doubts, err = doubt.New(nil, o.Alarms, nil); err != nil {
		t.Fatal(err)
	}
	p, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Producer: p, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// stop ends Run and returns what it returned.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

// wait waits for Run to return.
func (r *running) wait() error {
	if !r.ended {
		r.err, r.ended = <-r.done, true
	}
	return r.err
}

func (r *running) append(bs ...*event.Batch) {
	r.t.Helper()
	for _, b := range bs {
		if err := r.Append(context.Background(), b); err != nil {
			r.t.Fatalf("append: %v", err)
		}
	}
}

// flush closes the producer, waits until all is acknowledged, and returns all ends that were not taken.
func (r *running) flush() event.End {
	r.t.Helper()
	r.Close()
	var sum event.End
	for e := range r.Durable() {
		sum.Add(e)
	}
	return sum
}

// batch makes the transaction n, which ends at n.
func batch(n int, keys ...string) *event.Batch {
	b := part(n, keys...)
	b.End.AddTx("binlog.000001", uint64(n), event.GTID{Server: 1, Number: uint64(n)}, time.Unix(int64(n), 0))
	return b
}

// part makes a part of the transaction n, which goes on.
func part(n int, keys ...string) *event.Batch {
	b := &event.Batch{Source: source, Term: 7, Age: event.Unknown, At: time.Now()}
	if len(keys) > 0 {
		b.AddOrigin(event.Origin{
			Table: "shop.product", Tx: event.Tx{GTID: event.GTID{Server: 1, Number: uint64(n)}},
			Event: event.Version{Epoch: 1, File: 1, Pos: uint64(n)}, D: 2 * time.Second,
		})
	}
	for row, k := range keys {
		b.Add(append(b.Text(), k...), uint32(row+1), event.ActionDelete)
	}
	return b.Clone()
}

// keyIn returns the i-th key of a partition.
func keyIn(partition, of, i int) string {
	for n := 0; ; n++ {
		k := fmt.Sprintf("key:%d", n)
		if Partition(k, of) == partition {
			if i--; i < 0 {
				return k
			}
		}
	}
}
