package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// check compares what a consumer makes of the log with what was appended.
func (f *fakeKafka) check(t *testing.T, appended ...*event.Batch) {
	t.Helper()
	got, err := f.contents(nil)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, appended)
}

func compare(t *testing.T, got [][]item, appended []*event.Batch) {
	t.Helper()
	want := make([][]item, len(got))
	for _, b := range appended {
		for _, it := range items(b) {
			id := Partition(it.key, len(got))
			want[id] = append(want[id], it)
		}
	}
	if slices.EqualFunc(want, got, slices.Equal) {
		return // comparing in words takes seconds
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(item{}), cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("the partitions do not hold what was appended (-want +got):\n%s", d)
	}
}

func TestWhatIsAppendedIsProducedInOrderByKey(t *testing.T) {
	f := newFake(3)
	r := run(t, f, Options{})
	var all []*event.Batch
	for n := range 50 {
		all = append(all, batch(n+1, fmt.Sprint("a", n%5), fmt.Sprint("b", n%7), "\xff\x00", ""))
	}
	r.append(all...)
	if end := r.flush(); end.Pos != 50 {
		t.Errorf("durable up to %d, want 50", end.Pos)
	}
	f.check(t, all...)
	if err := r.stop(); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := r.Append(t.Context(), batch(51)); !errors.Is(err, ErrClosed) {
		t.Errorf("append after the end: %v, want %v", err, ErrClosed)
	}
}

func TestProgressWithoutInvalidationsIsProgress(t *testing.T) {
	f := newFake(2)
	r := run(t, f, Options{})
	r.append(batch(1))
	if e := <-r.Durable(); e.Pos != 1 {
		t.Errorf("durable up to %d, want 1", e.Pos)
	}
}

// While a record is on its way the next one gathers: idle sends at once, busy sends big.
func TestRecordsGatherWhileOneIsOnItsWay(t *testing.T) {
	f := newFake(1)
	first, release := make(chan struct{}), make(chan struct{})
	f.fate = func(_ string, _, attempt int) fate {
		if attempt == 1 {
			close(first)
			return fate{until: release, applied: true}
		}
		return fate{applied: true}
	}
	r := run(t, f, Options{})
	all := []*event.Batch{batch(1, "k")}
	r.append(all...)
	<-first
	for n := range 100 {
		all = append(all, batch(n+2, "k", "l"))
		r.append(all[n+1])
	}
	close(release)
	r.flush()
	f.check(t, all...)
	if n := len(f.data[0]); n != 2 {
		t.Errorf("%d records, want the first batch alone and all others in one", n)
	}
}

func TestRecordsAreClosedAtTheirLimit(t *testing.T) {
	f := newFake(1)
	r := run(t, f, Options{MaxRecord: 4096})
	var keys []string
	for n := range 500 {
		keys = append(keys, fmt.Sprintf("product:%d", n))
	}
	b := batch(1, keys...)
	r.append(b)
	r.flush()
	f.check(t, b)
	for _, s := range f.data[0] {
		if len(s.value) > 4096+256 {
			t.Errorf("a record of %d bytes", len(s.value))
		}
	}
	if n := len(f.data[0]); n < 2 || n > 7 {
		t.Errorf("%d records", n)
	}
}

func TestALostAcknowledgementMakesARepeatWithTheSameSeq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.fate = func(_ string, _, attempt int) fate {
			if attempt <= 2 {
				return fate{applied: true, err: errLost}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		all := []*event.Batch{batch(1, "a"), batch(2, "b")}
		r.append(all[0])
		<-r.Durable()
		r.append(all[1])
		r.flush()
		f.check(t, all...)
		if n := len(f.data[0]); n != 4 || string(f.data[0][0].value) != string(f.data[0][2].value) {
			t.Errorf("%d records; want three times the first, all the same, and the second", n)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The interleaving of doc.go: a first attempt arrives behind its successors.
func TestALateAttemptIsARepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		late := make(chan struct{})
		f.fate = func(_ string, _, attempt int) fate {
			if attempt == 1 {
				return fate{late: late, err: context.DeadlineExceeded}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		all := []*event.Batch{batch(1, "a"), batch(2, "a"), batch(3, "a")}
		r.append(all[0])
		<-r.Durable()
		r.append(all[1])
		<-r.Durable()
		close(late)
		synctest.Wait()
		r.append(all[2])
		r.flush()
		f.check(t, all...)
		var seqs []uint64
		for _, s := range f.data[0] {
			_, h, err := record.Parse(s.value)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, h.Seq)
		}
		if !slices.Equal(seqs, []uint64{1, 2, 1, 3}) {
			t.Errorf("seqs %v, want the first again behind the second", seqs)
		}
	})
}

func TestRecordsThatAreTooLargeAreSplit(t *testing.T) {
	f := newFake(2)
	f.largest = 2000
	r := run(t, f, Options{})
	var keys []string
	for n := range 1000 {
		keys = append(keys, fmt.Sprintf("product:%d", n))
	}
	all := []*event.Batch{batch(1, keys...), batch(2, keys...)}
	r.append(all...)
	r.flush()
	f.check(t, all...)
	for id := range f.data {
		if tries, n := f.attempts[fmt.Sprintf("%s/%d", names.Topic, id)], len(f.data[id]); tries > n+10 {
			t.Errorf("%d attempts for %d records: the limit is looked for too slowly", tries, n)
		}
	}
}

func TestAKeyThatIsTooLargeNamesItsTableAndTheSetting(t *testing.T) {
	f := newFake(1)
	f.largest = 2000
	r := run(t, f, Options{})
	secret := strings.Repeat("secret", 1000)
	r.append(batch(1, "a", "b", secret))
	err := r.wait()
	if !errors.Is(err, ErrTooLarge) || !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Fatalf("run: %v, want %v", err, ErrTooLarge)
	}
	for _, part := range []string{"shop.product", "max.message.bytes", names.Topic} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the key is in the error: %.200s", err)
	}
	for range r.Durable() {
		t.Error("what was not acknowledged is durable")
	}
}

// A batch that is refused leaves no trace, and goes in when there is room.
func TestAFullBufferBlocksAndTakesAllOrNothing(t *testing.T) {
	f := newFake(2)
	release := make(chan struct{})
	f.fate = func(string, int, int) fate { return fate{until: release, applied: true} }
	r := run(t, f, Options{MaxBuffered: 20_000})
	var taken []*event.Batch
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for {
		b := batch(len(taken)+1, "a", "b", "c", "d")
		refused := make(chan error, 1)
		go func() { refused <- r.Append(ctx, b) }()
		var err error
		select {
		case err = <-refused:
		case <-time.After(200 * time.Millisecond):
			cancel()
			err = <-refused
		}
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("append: %v, want the context's error", err)
			}
			break
		}
		taken = append(taken, b)
	}
	if bytes, _ := r.ledger.usage(); bytes > 20_000 || len(taken) < 5 {
		t.Errorf("%d batches, %d bytes are buffered", len(taken), bytes)
	}
	close(release)
	last := batch(1000, "a")
	r.append(last)
	if end := r.flush(); end.Pos != 1000 || len(end.GTIDs) != 2 {
		t.Errorf("durable is %+v", end)
	}
	f.check(t, append(taken, last)...)
	if bytes, oldest := r.ledger.usage(); bytes != 0 || oldest != 0 {
		t.Errorf("%d bytes are buffered, the oldest for %s", bytes, oldest)
	}
}

func TestABatchLargerThanTheBufferPassesAlone(t *testing.T) {
	f := newFake(1)
	r := run(t, f, Options{MaxBuffered: 1000})
	b := batch(1, strings.Repeat("x", 5000))
	r.append(b, batch(2, "y"))
	if end := r.flush(); end.Pos != 2 {
		t.Errorf("durable up to %d", end.Pos)
	}
}

// Also batches that touch no partition in trouble take room until what is before them is durable.
func TestMemoryIsBoundedWhileOnePartitionIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		release := make(chan struct{})
		f.fate = func(_ string, partition, _ int) fate {
			if partition == 0 {
				return fate{until: release, applied: true}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{MaxBuffered: 50_000})
		all := []*event.Batch{batch(1, keyIn(0, 2, 0))}
		r.append(all[0])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 1
		for ; ; n++ {
			b := batch(n+1, keyIn(1, 2, 0))
			if r.Append(ctx, b) != nil {
				break
			}
			all = append(all, b)
			synctest.Wait() // it is acknowledged
			if n > 1000 {
				t.Fatal("batches are let in without end")
			}
		}
		select {
		case e := <-r.Durable():
			t.Errorf("durable up to %d, and the first is not acknowledged", e.Pos)
		default:
		}
		close(release)
		if end := r.flush(); end.Pos != uint64(n) {
			t.Errorf("durable up to %d, want %d", end.Pos, n)
		}
		f.check(t, all...)
	})
}

func TestCloseWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		release := make(chan struct{})
		f.fate = func(string, int, int) fate { return fate{until: release, applied: true} }
		r := run(t, f, Options{MaxBuffered: 1000})
		b := batch(1, strings.Repeat("x", 2000))
		r.append(b)
		blocked := make(chan error, 1)
		go func() { blocked <- r.Append(context.Background(), batch(2, "y")) }()
		synctest.Wait() // it is waiting for room
		r.Close()
		if err := <-blocked; !errors.Is(err, ErrClosed) {
			t.Errorf("append: %v, want %v", err, ErrClosed)
		}
		close(release)
		if end := r.flush(); end.Pos != 1 {
			t.Errorf("durable up to %d, want 1", end.Pos)
		}
		f.check(t, b)
	})
}

// A transaction of any size goes out while it is open, and only its end makes progress.
func TestATransactionIsStreamed(t *testing.T) {
	f := newFake(2)
	r := run(t, f, Options{MaxBuffered: 100_000})
	var all []*event.Batch
	for n := range 200 {
		keys := make([]string, 100)
		for i := range keys {
			keys[i] = fmt.Sprintf("key:%d:%d", n, i)
		}
		all = append(all, part(n+1, keys...)) // blocks unless records go out
	}
	r.append(all...)
	if bytes, _ := r.ledger.usage(); bytes > 100_000 {
		t.Errorf("%d bytes are buffered", bytes)
	}
	select {
	case e := <-r.Durable():
		t.Errorf("a part of a transaction is durable: %+v", e)
	default:
	}
	last := batch(201, "z")
	r.append(last)
	if end := r.flush(); end.Pos != 201 {
		t.Errorf("durable up to %d", end.Pos)
	}
	f.check(t, append(all, last)...)
}

func TestEndsAreAddedUpWhileNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		r := run(t, f, Options{})
		for n := range 3 * mostRanges {
			b := part(n+1, "k")
			// Two sources that take turns: their runs do not join by themselves.
			b.End.AddTx("binlog.000001", uint64(n+1), event.GTID{UUID: [16]byte{byte(n%2) + 1}, Number: uint64(n/2 + 1)}, time.Time{})
			r.append(b)
		}
		synctest.Wait() // all is acknowledged
		end := <-r.Durable()
		var got event.GTIDSet
		for _, g := range end.GTIDs {
			got.AddRange(g)
		}
		want := "01000000-0000-0000-0000-000000000000:1-1536,02000000-0000-0000-0000-000000000000:1-1536"
		if len(end.GTIDs) > mostRanges || got.String() != want || end.Pos != 3*mostRanges {
			t.Errorf("the end holds %s at %d in %d runs, want %s", got.String(), end.Pos, len(end.GTIDs), want)
		}
		if rest := r.flush(); !rest.IsZero() {
			t.Errorf("a second end came: %+v", rest)
		}
	})
}

func TestTheChainGoesOnFromTheHeadsOfEarlierTerms(t *testing.T) {
	f := newFake(2)
	f.start = 100
	heads := map[int]event.Version{0: {Epoch: 1, File: 1, Pos: 500, Row: 3}}
	r := run(t, f, Options{Heads: heads})
	// The first is read again: it lies before the head.
	again, next := batch(400, keyIn(0, 2, 0)), batch(600, keyIn(0, 2, 1))
	r.append(again)
	<-r.Durable()
	if got := r.Heads(); !cmp.Equal(got, heads) {
		t.Errorf("heads %v, want those of before: %v", got, heads)
	}
	r.append(next)
	<-r.Durable()
	if _, err := f.contents(heads); err != nil {
		t.Error(err)
	}
	if got, want := r.Heads(), (map[int]event.Version{0: next.Last}); !cmp.Equal(got, want) {
		t.Errorf("heads %v, want %v", got, want)
	}
	if got, want := r.Ends(), []int64{102, 100}; !slices.Equal(got, want) {
		t.Errorf("ends %v, want %v: an idle partition's is where it ended at the start", got, want)
	}
}

func TestTheAgeOfARecordIsThatOfItsYoungestBatch(t *testing.T) {
	for _, c := range []struct {
		name string
		ages []time.Duration
		want time.Duration
	}{
		// Handed over one second apart, encoded together after the last.
		{"all known", []time.Duration{10 * time.Second, 3 * time.Second, 2500 * time.Millisecond}, 2500 * time.Millisecond},
		{"they grow", []time.Duration{10 * time.Second, 0, 9 * time.Second}, time.Second},
		{"one unknown", []time.Duration{10 * time.Second, event.Unknown, 9 * time.Second}, event.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(1)
				release := make(chan struct{})
				f.fate = func(_ string, _, attempt int) fate {
					if attempt == 1 {
						return fate{until: release, applied: true}
					}
					return fate{applied: true}
				}
				r := run(t, f, Options{})
				r.append(batch(1, "k"))
				synctest.Wait()
				for i, age := range c.ages {
					time.Sleep(time.Second)
					b := batch(i+2, "k")
					b.Age = age
					r.append(b)
				}
				close(release)
				r.flush()
				if len(f.data[0]) != 2 {
					t.Fatalf("%d records", len(f.data[0]))
				}
				_, h, err := record.Parse(f.data[0][1].value)
				if err != nil || h.Age != c.want {
					t.Errorf("age %s, %v; want %s", h.Age, err, c.want)
				}
			})
		})
	}
}

func TestRunWaitsForKafkaAndSaysSo(t *testing.T) {
	for _, c := range []struct {
		err    error
		alarms int // after a minute and a half
		soon   int // after a second
	}{
		{fmt.Errorf("dial: %w", errLost), 2, 0},
		{&broker.Error{Class: broker.Denied, What: "produce to " + names.Topic, Err: kafka.TopicAuthorizationFailed, Advice: "grant it"}, 2, 1},
	} {
		t.Run(broker.Classify(c.err).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(12)
				f.away = c.err
				r := run(t, f, Options{})
				count := func() (n int) {
					for _, rec := range r.o.Alarms.Records() {
						n += rec.Count
						if !strings.Contains(rec.Message, c.err.Error()) {
							t.Errorf("the alarm %q does not say why", rec.Message)
						}
					}
					return n
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := r.Append(ctx, batch(1, "a")); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("append while kafka is away: %v", err)
				}
				if n := count(); n != c.soon {
					t.Errorf("%d alarms after a second, want %d", n, c.soon)
				}
				f.set(func() { f.away = nil })
				var all []*event.Batch
				for n := range 20 {
					all = append(all, batch(n+1, fmt.Sprint(n), fmt.Sprint(n+100)))
				}
				r.append(all[0])
				<-r.Durable()
				before := count()
				f.set(func() { f.away = c.err })
				r.append(all[1:]...)
				time.Sleep(90 * time.Second)
				if n := count() - before; n != c.alarms {
					t.Errorf("%d alarms in a minute and a half, want %d, however many partitions there are", n, c.alarms)
				}
				f.set(func() { f.away = nil })
				r.flush()
				f.check(t, all...)
			})
		})
	}
}

func TestPartitionsThatAreAddedAreUsedOnceAllIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		release := make(chan struct{})
		f.fate = func(string, int, int) fate { return fate{until: release, applied: true} }
		r := run(t, f, Options{})
		before := []*event.Batch{batch(1, "a", "b", "c", "d", "e"), batch(2, "a", "b", "c", "d", "e")}
		r.append(before...)
		f.resize(5)
		time.Sleep(2 * DefaultRefresh)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Append(ctx, batch(3, "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append while the old partitions are not acknowledged: %v", err)
		}
		close(release)
		after := batch(4, "a", "b", "c", "d", "e")
		r.append(after)
		r.flush()
		got, err := f.contents(nil)
		if err != nil {
			t.Fatal(err)
		}
		for id := range got {
			var want []item
			for i, b := range append(before, after) {
				of := 2
				if i == len(before) {
					of = 5
				}
				for _, it := range items(b) {
					if Partition(it.key, of) == id {
						want = append(want, it)
					}
				}
			}
			if !slices.Equal(got[id], want) {
				t.Errorf("partition %d holds %v, want %v", id, got[id], want)
			}
		}
		if n := len(r.Ends()); n != 5 {
			t.Errorf("ends of %d partitions", n)
		}
	})
}

func TestATopicThatWasMadeAgainStopsTheProducer(t *testing.T) {
	t.Run("fewer partitions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			r := run(t, f, Options{})
			r.append(batch(1, "a"))
			f.set(func() { f.count = 2 })
			time.Sleep(2*DefaultRefresh + time.Second)
			f.set(func() { f.count = 3 }) // a broker had not heard of the third
			time.Sleep(time.Minute)
			r.append(batch(2, "a"))
			f.set(func() { f.count = 2 })
			if err := r.wait(); !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "had 3 partitions and has 2") {
				t.Errorf("run: %v, want %v", err, ErrTopicChanged)
			}
		})
	})
	t.Run("an offset that goes back", func(t *testing.T) {
		f := newFake(1)
		f.start = 1000
		r := run(t, f, Options{})
		r.append(batch(1, "a"))
		<-r.Durable()
		f.set(func() { f.start, f.data[0] = 0, nil })
		r.append(batch(2, "a"))
		if err := r.wait(); !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "1001") {
			t.Errorf("run: %v, want %v", err, ErrTopicChanged)
		}
		for e := range r.Durable() {
			t.Errorf("durable up to %d, though what was before it is gone", e.Pos)
		}
	})
}

func TestWhatWasNotAcknowledgedStaysUndone(t *testing.T) {
	f := newFake(1)
	arrived := make(chan struct{})
	f.fate = func(string, int, int) fate {
		close(arrived)
		return fate{until: make(chan struct{})}
	}
	r := run(t, f, Options{})
	r.append(batch(1, "a"))
	<-arrived
	if err := r.stop(); err != nil {
		t.Errorf("run: %v, want nil", err)
	}
	for e := range r.Durable() {
		t.Errorf("durable up to %d", e.Pos)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := New(newFake(1), Options{MaxRecord: -1})
	for _, want := range []string{"topic", "source", "term", "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
