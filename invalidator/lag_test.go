package invalidator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/event"
)

func TestTheLagIsTrueWhenIdle(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.unheard()
		r.lag(time.Minute, "since it is served: nothing is known yet")
		r.markRead(3, true)
		r.pass(time.Second)
		r.lag(0, "before anything happened")
		r.appendCommitted(4, time.Now().Add(-time.Minute))
		r.markRead(4, false)
		r.pass(time.Second)
		r.lag(61*time.Second, "while a commit of 61 s ago is not finished")
		r.pass(2 * time.Second)
		r.lag(4*time.Second, "since the reader had last handed over everything; it has not any more")
		r.markRead(4, true)
		r.pass(4 * time.Second)
		r.lag(0, "though the reader had handed over everything")
		r.pass(time.Minute)
		r.lag(64*time.Second, "when nothing was heard from the source for 64 s")
		r.appendCommitted(5, time.Now().Add(-10*time.Second))
		r.markRead(5, false)
		r.pass(3 * time.Second)
		r.lag(13*time.Second, "since the last commit that was finished")
	})
}

func TestTheLagOfAReaderThatNeverCaughtUpIsThatOfItsCommits(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.unheard()
		b := batchOf(4, d2, "a")
		b.Origins[0].Committed, b.End = time.Now().Add(-time.Hour).UnixMicro(), event.End{} // as from another process
		r.append(b)
		r.markRead(4, false)
		r.pass(3 * time.Second)
		r.lag(time.Hour+3*time.Second, "since the only commit that was finished")
	})
}

// freshLog is a partition of a log with several.
type freshLog struct {
	*fakeLog
	asOf time.Time
}

func (l *freshLog) FreshAsOf() time.Time { return l.asOf }

func TestTheLagOfOnePartitionOfManyIsWhatItsLogSays(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		l := &freshLog{fakeLog: newFakeLog()}
		l.id = 11
		ctx, revoke := context.WithCancel(r.Context())
		served := make(chan error, 1)
		go func() { served <- r.engine.Serve(ctx, l) }()
		r.markRead(3, true)
		r.pass(time.Second)
		lag := func(want time.Duration) {
			r.Helper()
			if got := r.engine.Snapshot().Partitions[1]; got.ID != 11 || got.Lag != want {
				r.Fatalf("%+v, want a lag of %s", got, want)
			}
		}
		lag(time.Second) // since it is served: the reader is done, but nothing is known of this partition
		l.asOf = time.Now().Add(-time.Second)
		lag(0)
		r.pass(9 * time.Second)
		r.markRead(3, true)
		lag(10 * time.Second) // something was put into it that has not come
		revoke()
		if err := <-served; err != nil {
			r.Fatal(err)
		}
	})
}

func TestALagIsShownForEachPartitionThatIsServed(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		reg := prometheus.NewPedanticRegistry()
		if err := r.engine.metrics.register(reg); err != nil {
			r.Fatal(err)
		}
		shown := func(want string) {
			r.Helper()
			const name = "freshet_invalidator_partition_lag_seconds"
			if want != "" {
				want = "# HELP " + name + " How far a partition's finished work is behind the source's commits: " +
					"0 while idle and known to be caught up.\n# TYPE " + name + " gauge\n" + want
			}
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), name); err != nil {
				r.Error(err)
			}
		}
		other, again := newFakeLog(), newFakeLog()
		other.id = 11
		ctx, revoke := context.WithCancel(r.Context())
		served := make(chan error, 2)
		for _, l := range []*fakeLog{other, again} {
			go func() { served <- r.engine.Serve(ctx, l) }()
		}
		r.markRead(3, true)
		r.appendCommitted(4, time.Now().Add(-30*time.Second))
		shown(`freshet_invalidator_partition_lag_seconds{partition="11"} 0
freshet_invalidator_partition_lag_seconds{partition="7"} 30
`)
		revoke()
		<-served
		<-served
		r.stop()
		synctest.Wait()
		shown("")
	})
}

// lag checks the lag.
func (r *rig) lag(want time.Duration, when string) {
	r.Helper()
	if got := r.engine.Snapshot().Lag; got != want {
		r.Fatalf("%s, want %s %s", got, want, when)
	}
}

// markRead is mark, and says whether the reader has handed over everything.
func (r *rig) markRead(pos uint64, read bool) {
	m := markAt(pos)
	m.Read = read
	r.engine.Mark(m)
	synctest.Wait()
}

// appendCommitted hands over a batch of one key with a commit time.
func (r *rig) appendCommitted(pos uint64, committed time.Time) {
	b := batchOf(pos, d2, "a")
	b.Origins[0].Committed, b.End.Committed = committed.UnixMicro(), committed
	r.append(b)
}
