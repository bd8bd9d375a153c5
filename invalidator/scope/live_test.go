package scope

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router/keyspace"
)

// A reader that has read the old row before everybody could see the change may fill the cache when the first pass has
// looked there. The second finds it.
func TestWhatASlowReaderFillsBetweenThePassesIsFound(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	l.set("product:7", "product:8")
	l.began = func(n int) {
		if n != 1 {
			return
		}
		if l.there("product:7") || l.there("product:8") {
			t.Error("the first pass leaves keys")
		}
		l.set("product:7")
		l.mark(10)
	}
	l.ended(l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10), Newest: l.newest}, Options{}))
	if l.there("product:7") {
		t.Error("stale: a key that was filled before the mark is still there")
	}
}

// A reader may take D from when everybody could see the place.
func TestTheSecondPassBeginsDAfterTheMark(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	settling, last := l.stages()
	done := l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10), Newest: l.newest}, Options{})
	<-settling
	from := time.Now()
	l.mark(10)
	l.ended(done)
	if waited := last().Sub(from); waited < liveD {
		t.Errorf("stale: the second pass begins %s after the mark, want %s", waited, liveD)
	}
}

// While Redis hangs, what readers write waits with it: they may take D from when it is back.
func TestTheSecondPassBeginsDAfterRedisIsBack(t *testing.T) {
	t.Parallel()
	const d = 10 * time.Second // so that Redis is paused well before it has passed
	l := newLive(t, setting{})
	settling, last := l.stages()
	k := keysOf(t, "", spectest.Keys("product:{id}").D(d))
	done := l.start(&Task{Keys: k, Source: "s", At: place(10), Newest: l.newest}, Options{})
	<-settling
	l.unmarked(done)
	l.mark(10)
	marked := time.Now()
	testbed.Eventually(t, time.Minute, "D has begun", func() bool { return time.Since(marked) > d/20 })
	testbed.Must(t, l.server.Pause())
	paused := time.Now()
	<-l.away
	from := time.Now()
	testbed.Must(t, l.server.Resume())
	l.ended(done)
	if last().Before(paused) {
		t.Fatal("the machine is too slow: D had passed before Redis was paused")
	}
	if waited := last().Sub(from); waited < d {
		t.Errorf("stale: the second pass begins %s after Redis is back, want %s", waited, d)
	}
}

// stages returns a signal that the first pass is over, and what says when the last partition began.
func (l *live) stages() (settling <-chan struct{}, last func() time.Time) {
	over, at := make(chan struct{}), time.Time{}
	l.began = func(n int) {
		if n == 1 {
			close(over)
		}
		at = time.Now()
	}
	return over, func() time.Time { return at }
}

// unmarked waits until the probe waits for its mark.
func (l *live) unmarked(done <-chan error) {
	l.Helper()
	testbed.Eventually(l, time.Minute, "the probe waits for its mark", func() bool {
		if len(done) > 0 {
			l.Fatal("stale: the scope does not wait for the mark")
		}
		return l.engine.Snapshot().Unmarked > 0
	})
}

// What is not yet known to be visible holds the second pass up, and an older mark does not end that.
func TestTheSecondPassWaitsForTheMarkOfThePlace(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	l.mark(9)
	settling, _ := l.stages()
	done := l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{})
	<-settling
	l.mark(9)
	l.unmarked(done)
	l.mark(10)
	l.ended(done)
}

// Without a place it is what readers read before now, whatever the marks have long said.
func TestWithoutAPlaceTheSecondPassWaitsForD(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	l.mark(100)
	var first, second time.Time
	l.began = func(n int) {
		switch n {
		case 1:
			first = time.Now()
		case 2:
			second = time.Now()
		}
	}
	// Redis has answered for D: nothing but the probe itself makes it wait.
	l.ended(l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{}))
	l.n = 0
	l.ended(l.start(&Task{Keys: product(t, ""), Source: "s"}, Options{}))
	if waited := second.Sub(first); waited < liveD {
		t.Errorf("stale: the second pass begins after %s, want %s", waited, liveD)
	}
}

// rebuilt is a mapping whose values are made of the row, without a second delete.
func rebuilt(t testing.TB) *keyspace.Keyspace {
	m := spectest.Keys("product:{id}")
	m.Rebuild = spectest.FromRow(event.FormString)
	m.Rebuild.Value = spectest.Text("{id}", 22)
	return keysOf(t, "", m)
}

func TestValuesOfOlderChangesGoAndDoNotComeBack(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	w := l.log()
	w.put("product:1", "older", 5)
	if v := l.value("product:1"); v != "older" {
		t.Fatalf("the value is %q", v)
	}
	l.mark(10)
	l.ended(l.start(&Task{Keys: rebuilt(t), Source: "s", At: place(8), Newest: l.newest}, Options{}))
	if v := l.value("product:1"); v != "" {
		t.Errorf("stale: the older value %q is still there", v)
	}
	w.put("product:1", "older", 5)
	if v := l.value("product:1"); v != "" {
		t.Errorf("stale: a replay brings %q back", v)
	}
	newer := uint64(30)
	testbed.Eventually(t, 2*time.Minute, "a newer change is written", func() bool {
		newer++ // a value that a busy machine is late with is forgotten instead
		w.put("product:1", "newest", newer)
		return l.value("product:1") == "newest"
	})
}

// A backlog may hold values of changes before the place, of keys that neither pass can find.
func TestAnOlderValueOfABacklogIsWaitedFor(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	w := l.log()
	l.mark(10)
	backlog := sync.OnceFunc(func() { w.put("product:1", "older", 5) })
	finished := func(context.Context) error {
		backlog()
		return nil
	}
	l.ended(l.start(&Task{Keys: rebuilt(t), Source: "s", At: place(8), Newest: l.newest, Finished: finished}, Options{}))
	backlog()
	if v := l.value("product:1"); v != "" {
		t.Errorf("stale: the value %q of a change before the place is there", v)
	}
}

// What waits for the log ends with its context.
func TestAScopeThatWaitsForTheLogEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		finished := func(ctx context.Context) error {
			stop()
			<-ctx.Done()
			return ctx.Err()
		}
		e := &fakeEngine{}
		task := Task{Keys: product(t, ""), Finished: finished}
		if err := run(t, ctx, &fakeRedis{}, e, Options{}, task); !errors.Is(err, context.Canceled) || len(e.served) != 1 {
			t.Errorf("it ends with %v, after %d partitions", err, len(e.served))
		}
	})
}
