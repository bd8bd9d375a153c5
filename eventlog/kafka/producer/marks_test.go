package producer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
)

// markAt makes the mark of a moment, which confirms the version n.
func markAt(made time.Time, n uint64, read bool) event.Mark {
	return event.Mark{Source: source, Term: 7, Version: event.Version{Epoch: 1, File: 1, Pos: n}, Made: made, Read: read}
}

func TestMarksPassBesideAStuckPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		release := make(chan struct{})
		f.fate = func(topic string, partition, _ int) fate {
			if topic == names.Topic && partition == 0 {
				return fate{until: release, applied: true}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		r.append(batch(1, keyIn(0, 2, 0), keyIn(1, 2, 0)))
		for n := range uint64(3) {
			r.Mark(markAt(time.Now(), n+1, true))
			synctest.Wait()
			m, got := f.lastMark(t)
			if m.Version.Pos != n+1 || got != int(n+1) || !m.AsOf.IsZero() || m.Ends != nil {
				t.Errorf("mark %d of %d is %+v: all of it must pass, and say nothing of what is not acknowledged", n+1, got, m)
			}
		}
		made := time.Now()
		close(release)
		synctest.Wait()
		if m, _ := f.lastMark(t); !m.AsOf.Equal(made) || !slices.Equal(m.Ends, []int64{1, 1}) {
			t.Errorf("once all is acknowledged the newest mark says so: %+v", m)
		}
	})
}

func TestMarksSayAsOfWhenAllIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.start = 40
		release := make(chan struct{})
		f.fate = func(topic string, partition, attempt int) fate {
			if topic == names.Topic && partition == 1 {
				return fate{until: release, applied: true}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		synctest.Wait() // the partitions are known
		idle := time.Now()
		r.Mark(markAt(idle, 1, true))
		synctest.Wait()
		if m, n := f.lastMark(t); n != 1 || !m.AsOf.Equal(idle) || !slices.Equal(m.Ends, []int64{40, 40}) {
			t.Errorf("when idle all of it is acknowledged, by earlier terms: %+v", m)
		}
		time.Sleep(time.Second)
		r.append(batch(1, keyIn(0, 2, 0)))
		synctest.Wait()
		first := time.Now()
		r.Mark(markAt(first, 2, true))
		time.Sleep(time.Second)
		r.append(batch(2, keyIn(1, 2, 0), keyIn(0, 2, 1)))
		r.Mark(markAt(time.Now(), 3, false)) // says nothing of what was read
		time.Sleep(time.Second)
		second := time.Now()
		r.Mark(markAt(second, 4, true))
		synctest.Wait()
		if m, _ := f.lastMark(t); m.Version.Pos != 4 || !m.AsOf.Equal(first) || !slices.Equal(m.Ends, []int64{41, 40}) {
			t.Errorf("the newest mark carries the newest moment that is acknowledged: %+v", m)
		}
		close(release)
		r.flush()
		if m, _ := f.lastMark(t); m.Version.Pos != 4 || !m.AsOf.Equal(second) || !slices.Equal(m.Ends, []int64{42, 41}) {
			t.Errorf("before the end is told, a mark says that all is acknowledged: %+v", m)
		}
		if !r.AsOf().Equal(second) {
			t.Errorf("as of %s", r.AsOf())
		}
	})
}

func TestTheNewestMarkReplacesOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		release := make(chan struct{})
		f.fate = func(topic string, _, attempt int) fate {
			switch {
			case topic == names.Topic:
				return fate{applied: true}
			case attempt == 1:
				return fate{until: release, err: errLost}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		for n := range uint64(1000) {
			r.Mark(markAt(time.Now(), n+1, true))
			if n == 0 {
				synctest.Wait()
			}
		}
		// Batches do not wait for marks.
		r.append(batch(1, "a"))
		<-r.Durable()
		close(release)
		time.Sleep(2 * time.Second)
		if m, n := f.lastMark(t); n != 1 || m.Version.Pos != 1000 {
			t.Errorf("%d marks, the last %s; want the newest alone", n, m.Version)
		}
	})
}

func TestMarksGoOnAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		r := run(t, f, Options{})
		r.append(batch(1, "a"))
		r.flush()
		r.Mark(markAt(time.Now(), 9, true))
		synctest.Wait()
		if m, _ := f.lastMark(t); m.Version.Pos != 9 {
			t.Errorf("the last mark is %+v: what was flushed may still wait for one", m)
		}
	})
}

func TestMomentsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		release := make(chan struct{})
		f.fate = func(topic string, _, _ int) fate {
			if topic == names.Topic {
				return fate{until: release, applied: true}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{})
		var last time.Time
		for n := range 1300 {
			r.append(batch(n+1, "a"))
			last = time.Now()
			r.Mark(markAt(last, uint64(n+1), true))
			time.Sleep(time.Second)
		}
		close(release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for r.AsOf() != last {
			select {
			case <-r.Durable():
			case <-ctx.Done():
				t.Fatalf("as of %s, want %s", r.AsOf(), last)
			}
		}
	})
}
