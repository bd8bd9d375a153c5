package producer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
)

// inEach makes the transaction n, with so many keys in each of the partitions.
func inEach(n, keys, of int, partitions ...int) *event.Batch {
	var all []string
	for _, id := range partitions {
		for i := range keys {
			all = append(all, keyIn(id, of, i))
		}
	}
	return batch(n, all...)
}

// requested returns the partitions of each request until now.
func (f *fakeKafka) requested() (all [][]int) {
	f.set(func() {
		for _, ids := range f.requests {
			all = append(all, slices.Sorted(slices.Values(ids)))
		}
	})
	return all
}

func TestOneRequestIsForAllPartitionsOfABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(4)
		f.leaders = []int{1, 2, 1, 2}
		r := run(t, f, Options{})
		synctest.Wait() // a sender that is still on its way to its wait may find some of the batch
		b := inEach(1, 3, 4, 0, 1, 2, 3)
		r.append(b)
		r.flush()
		f.check(t, b)
		got := f.requested()
		slices.SortFunc(got, slices.Compare)
		if fmt.Sprint(got) != "[[0 2] [1 3]]" {
			t.Errorf("requests for %v", got)
		}
	})
}

// A broker that does not answer holds up its own partitions, and no others, however much waits.
func TestABrokerThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(4)
		f.leaders = []int{1, 2, 1, 2}
		release := make(chan struct{})
		f.fate = func(_ string, partition, _ int) fate {
			if partition%2 == 0 {
				return fate{until: release, applied: true}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		var all []*event.Batch
		for n := range 20 {
			all = append(all, inEach(n+1, little, 4, 0, 1, 2, 3))
			r.append(all[n])
			synctest.Wait()
		}
		f.set(func() {
			if len(f.data[0])+len(f.data[2]) > 0 || len(f.data[1]) != 20 || len(f.data[3]) != 20 {
				t.Errorf("%d, %d, %d and %d records", len(f.data[0]), len(f.data[1]), len(f.data[2]), len(f.data[3]))
			}
		})
		close(release)
		r.flush()
		f.check(t, all...)
	})
}

// A partition in trouble is tried by itself, so that those that shared its request wait for it once.
func TestAPartitionInTroubleHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		repaired := make(chan struct{})
		f.fate = func(_ string, partition, _ int) fate {
			if partition != 1 {
				return fate{applied: true}
			}
			select {
			case <-repaired:
				return fate{applied: true}
			case <-time.After(8 * time.Second): // its replicas do not answer
				return fate{err: errLost}
			}
		}
		r := run(t, f, Options{})
		all := []*event.Batch{inEach(1, little, 3, 0, 1, 2)}
		r.append(all...)
		time.Sleep(9 * time.Second) // the first attempt has failed
		for n := range 10 {
			all = append(all, inEach(n+2, little, 3, 0, 1, 2))
			r.append(all[n+1])
			synctest.Wait()
		}
		f.set(func() {
			if len(f.data[0]) != 11 || len(f.data[1]) != 0 || len(f.data[2]) != 11 {
				t.Errorf("%d, %d and %d records", len(f.data[0]), len(f.data[1]), len(f.data[2]))
			}
		})
		for i, ids := range f.requested()[1:] {
			if len(ids) > 1 && slices.Contains(ids, 1) {
				t.Errorf("request %d is for %v", i+1, ids)
			}
		}
		close(repaired)
		r.flush()
		f.check(t, all...)
	})
}

// Little goes at once, alongside what is under way; much gathers for the next request.
func TestRequestsGatherWhenMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = quietRequests + 2
		f := newFake(partitions)
		release := make(chan struct{})
		f.fate = func(string, int, int) fate { return fate{until: release, applied: true} }
		r := run(t, f, Options{})
		var all []*event.Batch
		add := func(b *event.Batch) {
			all = append(all, b)
			r.append(b)
			synctest.Wait()
		}
		for id := range busyRequests {
			add(inEach(id+1, 1, partitions, id))
		}
		add(inEach(10, little+1, partitions, busyRequests))
		if got := f.requested(); len(got) != busyRequests {
			t.Errorf("much was sent alongside %d requests: %v", busyRequests, got)
		}
		close(release)
		synctest.Wait()
		hold := make(chan struct{})
		f.set(func() { f.fate = func(string, int, int) fate { return fate{until: hold, applied: true} } })
		before := len(f.requested())
		for id := range partitions {
			add(inEach(20+id, 1, partitions, id))
		}
		if got := f.requested()[before:]; len(got) != quietRequests {
			t.Errorf("little was sent in %v side by side", got)
		}
		close(hold)
		r.flush()
		f.check(t, all...)
		if got := f.requested()[before:]; len(got) != quietRequests+1 {
			t.Errorf("what waited was sent in %v", got[quietRequests:])
		}
	})
}

func TestAPartitionFollowsItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.leaders = []int{1, 1}
		moved := make(chan struct{})
		f.fate = func(_ string, partition, attempt int) fate {
			if partition == 0 && attempt == 1 {
				f.set(func() { f.leaders = []int{2, 1} })
				close(moved)
				return fate{err: errLost}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{Refresh: time.Hour})
		all := []*event.Batch{inEach(1, 1, 2, 0)}
		r.append(all[0])
		<-moved
		<-r.Durable()
		all = append(all, inEach(2, 1, 2, 0, 1))
		r.append(all[1])
		r.flush()
		f.check(t, all...)
		if got := f.requested(); len(got) != 4 || len(got[2]) != 1 || len(got[3]) != 1 {
			t.Errorf("requests for %v: two brokers share one", got)
		}
	})
}

func TestNothingIsSentOnceTheContextHasEnded(t *testing.T) {
	var l lanes
	s := &sendQueue{left: 1}
	on := &lane{wake: newWakeup()}
	s.lane.Store(on)
	l.parts = []*sendQueue{s}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if taken, _ := l.take(ctx, on); taken != nil || s.taken {
		t.Errorf("%d taken", len(taken))
	}
	if taken, _ := l.take(t.Context(), on); len(taken) != 1 {
		t.Errorf("%d taken, want the one", len(taken))
	}
}

// However many are in trouble and stay there: one that is out of it is sent, and none is tried more often than one
// alone.
func TestManyPartitionsInTroubleHoldUpNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bad = mostPartitions + 6
		f := newFake(bad + 1)
		repaired := make(chan struct{})
		f.fate = func(_ string, partition, attempt int) fate {
			select {
			case <-repaired:
			default:
				if partition < bad || attempt == 1 {
					return fate{err: errLost}
				}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		var all []int
		for id := range bad + 1 {
			all = append(all, id)
		}
		b := inEach(1, 1, bad+1, all...)
		r.append(b)
		time.Sleep(20 * time.Second)
		f.set(func() {
			if len(f.data[bad]) != 1 {
				t.Error("the one that is out of trouble was not sent")
			}
			for id := range bad { // pauses of a second at most, of half of one on average where there is one partition
				if n := f.attempts[fmt.Sprintf("%s/%d", names.Topic, id)]; n < 10 || n > 60 {
					t.Errorf("partition %d was tried %d times in 20 s", id, n)
				}
			}
		})
		close(repaired)
		r.flush()
		f.check(t, b)
	})
}

// laneOf returns a lane with partitions from an id on, each with so many rows.
func laneOf(l *lanes, from, n, rows int) *lane {
	on := &lane{wake: newWakeup()}
	for id := from; id < from+n; id++ {
		s := &sendQueue{id: id, left: rows}
		s.lane.Store(on)
		l.parts = append(l.parts, s)
	}
	return on
}

// ids returns the numbers of the first partition and of the last, and how many there are.
func ids(taken []*sendQueue) string {
	if len(taken) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d to %d", len(taken), taken[0].id, taken[len(taken)-1].id)
}

// Of more partitions than a request is for, each comes before one comes again, whatever other brokers have taken
// meanwhile.
func TestARequestBeginsWhereTheOneBeforeStopped(t *testing.T) {
	var l lanes
	first, second := laneOf(&l, 0, 100, 1000), laneOf(&l, 100, 100, 1000)
	take := func(on *lane, want string) []*sendQueue {
		t.Helper()
		taken, _ := l.take(t.Context(), on)
		if got := ids(taken); got != want {
			t.Errorf("taken: %s, want %s", got, want)
		}
		return taken
	}
	a := take(first, "64 of 0 to 63")
	select {
	case <-first.wake:
	default:
		t.Error("nobody is woken for what was left")
	}
	x := take(second, "64 of 100 to 163")
	l.release(first, a, false)
	l.release(second, x, false)
	take(first, "64 of 64 to 27")
	take(second, "64 of 164 to 127")
	take(first, "36 of 28 to 63")
}
