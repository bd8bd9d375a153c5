package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

func TestRunWaitsForKafkaAndSaysSo(t *testing.T) {
	for _, c := range []struct {
		err    error
		alarms int // after a minute and a half
		soon   int // after a second
	}{
		{fmt.Errorf("dial: %w", errLost), 2, 0},
		{&broker.Error{
			Class: broker.Denied, What: "produce to " + names.Topic, Err: kafka.TopicAuthorizationFailed,
			Advice: "grant it",
		}, 2, 1},
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
			if err := r.wait(); !errors.Is(err, ErrTopicChanged) ||
				!strings.Contains(err.Error(), "had 3 partitions and has 2") {
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

// One that was made again while no reader ran: the next one says so, and goes on.
func TestAnEmptyPartitionThatWasWrittenToRaisesAnAlarm(t *testing.T) {
	f := newFake(3)
	f.data[1] = []stored{{}}
	head := event.Version{Epoch: 1, File: 1, Pos: 5, Row: 1}
	r := run(t, f, Options{Heads: map[int]event.Version{0: head, 1: head}})
	r.append(batch(1, "a"))
	<-r.Durable()
	records := r.o.Alarms.Records()
	if len(records) != 1 || records[0].Kind != alarm.RecordsLost ||
		!strings.Contains(records[0].Message, "partition 0 of "+names.Topic) {
		t.Errorf("alarms %+v, want one, about partition 0", records)
	}
}

// Over how many partitions keys are spread is kept before any is, also when partitions are added.
func TestNothingIsProducedBeforeItsPartitionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		var away atomic.Bool
		away.Store(true)
		kept := make(chan int, 10)
		r := run(t, f, Options{Keep: func(ctx context.Context, n int, ends func(context.Context) ([]int64, error)) error {
			if away.Load() {
				return errLost
			}
			at, err := ends(ctx)
			if err == nil {
				kept <- len(at)
			}
			return err
		}})
		refused := func(b *event.Batch) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Append(ctx, b); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("append while it cannot be kept: %v", err)
			}
		}
		refused(batch(1, "a"))
		away.Store(false)
		r.append(batch(2, "a", "b", "c", "d", "e"))
		<-r.Durable()
		away.Store(true)
		f.resize(5)
		time.Sleep(2 * DefaultRefresh)
		refused(batch(3, "a"))
		away.Store(false)
		r.append(batch(4, "a", "b", "c", "d", "e"))
		r.flush()
		if before, after := <-kept, <-kept; before != 2 || after != 5 || len(kept) > 0 {
			t.Errorf("kept were %d partitions, then %d, and %d times more", before, after, len(kept))
		}
		if got, err := f.contents(nil); err != nil || len(got) != 5 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
