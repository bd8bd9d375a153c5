package canal

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// TestCutsAtRandomUnderLoadLoseAndRepeatNothing breaks all connections again and again while several writers commit
// transactions of several rows.
func TestCutsAtRandomUnderLoadLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *testbed.Server) {
		const writers = 4
		each := scale(50)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		p := proxy.Start(t, s.Addr)
		o := d.options()
		o.Address = p.Addr()
		rec := startAt(here(t, s))
		rec.per = 7
		r := reading(t, rec, o)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					id := (w*each + i) * 3
					if _, err := d.DB().Exec(fmt.Sprintf("insert into %s.t values (%d),(%d),(%d)", d.name, id, id+1, id+
						2)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		total := writers * each * 3
		for n := rng.IntN(40); n < total; n += 1 + rng.IntN(120) {
			r.await(t, "some more rows", func() bool { return len(r.rows) >= n })
			p.Reset()
		}
		wg.Wait()
		r.await(t, "all rows and a mark over them", func() bool {
			return len(r.rows) >= total && r.marked(r.rows[len(r.rows)-1].version)
		})
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i, c := range r.rows {
			if seen[c.text] {
				t.Errorf("%s came twice", c.text)
			}
			seen[c.text] = true
			if i > 0 && r.rows[i-1].version.Compare(c.version) >= 0 {
				t.Errorf("version %s of %s is not above %s", c.version, c.text, r.rows[i-1].version)
			}
		}
		if len(seen) != total {
			t.Errorf("%d rows, want %d", len(seen), total)
		}
	})
}

func TestWhatIsLongNotConfirmedIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		board := newBoard(t, quietLogger(t))
		h := &heart{o: &Options{Source: "s", Alarms: board}, vis: v}
		v.handover(requirement{last: version(1), gtids: []event.GTIDRange{run(uuidA, 1, 1)}})
		pass(t, unseenAfter-time.Second)
		h.complain()
		if n := len(board.Records()); n != 0 {
			t.Fatalf("%d alarms too early", n)
		}
		for range 40 { // once every half minute, not at every heartbeat
			pass(t, time.Second)
			h.complain()
		}
		if a := board.Records(); len(a) != 1 || a[0].Kind != alarm.NotVisible || a[0].Count != 2 {
			t.Fatalf("alarms %+v", a)
		}
		mustTake(t, v, byGTIDs(run(uuidA, 1, 1)))
		pass(t, time.Hour)
		h.complain()
		if a := board.Records(); a[0].Count != 2 {
			t.Fatalf("an alarm about nothing: %+v", a)
		}
	})
}

func TestLagIsZeroWhileTheSourceSaysSo(t *testing.T) {
	const heartbeat = time.Second
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name            string
		committed, read time.Duration // ago; 0: never
		want            time.Duration
	}{
		{"nothing is known", 0, 0, 0},
		{"behind since the start", time.Hour, 0, time.Hour},
		{"all was read a moment ago", time.Hour, 2 * time.Second, 0},
		{"the source is silent", time.Hour, time.Minute, time.Minute},
		{"behind since a while", 5 * time.Second, time.Minute, 5 * time.Second},
		{"its clock is ahead of ours", -time.Minute, 0, 0},
	} {
		var n counters
		if c.committed != 0 {
			n.committed.Store(now.Add(-c.committed).UnixNano())
		}
		if c.read != 0 {
			n.read.Store(now.Add(-c.read).UnixNano())
		}
		if got := n.lag(now, heartbeat); got != c.want {
			t.Errorf("%s: lag %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAnErrorThatComesAtEveryAttemptIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := fed(t)
		var log strings.Builder
		l.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r := l.newReconnect()
		for range 120 {
			r.attempts.Failed(errors.New("refused"))
			pass(t, time.Second)
		}
		if n := strings.Count(log.String(), "error=refused"); n != 2 {
			t.Errorf("logged %d times in two minutes:\n%s", n, log.String())
		}
		if r.attempts.Failed(errors.New("timeout")); !strings.Contains(log.String(), "error=timeout") {
			t.Error("another error is not logged at once")
		}
	})
}

func TestTheFirstRetryIsQuickAndTheLastOnesAreNot(t *testing.T) {
	l, _ := fed(t)
	attempts := &l.newReconnect().attempts
	refused := errors.New("refused")
	if d := attempts.Failed(refused); d > firstRetry {
		t.Errorf("the first attempt waits %s", d)
	}
	longest := time.Duration(0)
	for range 2000 {
		longest = max(longest, attempts.Failed(refused))
	}
	if longest > lastRetry || longest < lastRetry/2 {
		t.Errorf("the longest wait is %s, want nearly %s", longest, lastRetry)
	}
}
