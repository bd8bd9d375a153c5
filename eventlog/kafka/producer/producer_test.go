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

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// check compares what a consumer makes from the log with what was appended.
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

// The interleaving of doc.go: a first attempt arrives after its successors.
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

// The definitions of tables that an end carries after DDL may be large, and wait as long as the end.
func TestWhatAnEndCarriesForCanalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		release := make(chan struct{})
		f.fate = func(string, int, int) fate { return fate{until: release, applied: true} }
		r := run(t, f, Options{MaxBuffered: 50_000})
		r.append(batch(1, "a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 1
		for ; n < 100; n++ {
			b := batch(n + 1)
			b.End.State = make([]byte, 10_000)
			if r.Append(ctx, b) != nil {
				break
			}
		}
		if n > 5 {
			t.Errorf("%d states of 10 kB wait in a buffer of 50 kB", n)
		}
		close(release)
		if end := r.flush(); end.Pos != uint64(n) {
			t.Errorf("durable up to %d, want %d", end.Pos, n)
		}
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
			b.End.AddTx("binlog.000001", uint64(n+1), event.GTID{UUID: [16]byte{byte(n%2) + 1}, Number: uint64(n/2 + 1)},
				time.Time{})
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
