package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// lives is a site whose freshet is killed at the steps of a doubt's life. There is a proxy in front of the source, and
// one in front of Redis.
type lives struct {
	*site        // the process that answers
	reads  *site // the process that reads the source: the same one, but around Kafka
	binlog *proxy.Binlog
	resp   *proxy.RESP
	kafka  *testbed.KafkaCluster // nil: the log is the embedded one
	// running is the process of each.
	running map[*site]*testbed.Running
}

// livesKeys is how many keys are stale: the pages of a pass are of 200.
const livesKeys = 700

// A freshet that is killed at any step of a doubt's life has it again when it starts, and answers it: from the event
// that it has not read yet up to the last key of the second pass. Once the doubt is gone, nothing is forgotten again.
//
// It is one doubt, which freshet must know after each start: otherwise the next step is never reached.
func TestAFreshetThatIsKilledAtAnyStepOfADoubtGoesOnWithIt(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.SomeOf(t, testbed.Databases) {
		t.Run(name, func(t *testing.T) {
			l := newLives(t, start(t))
			l.beforeItIsWritten()
			l.whileItIsAnswered()
			l.aroundItsEnd()
		})
	}
}

// newLives starts freshet on a site between proxies. Its log is the embedded one.
func newLives(t *testing.T, source *testbed.Server) *lives {
	t.Helper()
	l := livesOn(newSite(t, source))
	l.reads, l.role = l.site, "run"
	l.begin()
	return l
}

func livesOn(s *site) *lives {
	s.t.Helper()
	l := &lives{site: s, binlog: proxy.StartBinlog(s.t, s.source.Addr), running: map[*site]*testbed.Running{}}
	l.resp = proxy.StartRESP(s.t, s.redis.Addr)
	l.sourceAt, l.redisAt, l.extra = l.binlog.Addr(), []string{l.resp.Addr()}, "scope_rate: 5000\n"
	return l
}

// begin starts what there is, and makes keys stale.
func (l *lives) begin() {
	l.t.Helper()
	for _, s := range []*site{l.reads, l.site} {
		if l.running[s] == nil {
			l.running[s] = s.start(s.role)
		}
	}
	for s := range l.running {
		s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
	}
	l.cache("other:1")
	l.fill()
}

// fill makes keys stale.
func (l *lives) fill() {
	l.t.Helper()
	var words []any
	for id := range livesKeys {
		words = append(words, fmt.Sprintf("product:%d", id), "old")
	}
	testbed.Must(l.t, l.redis.Client().MSet(l.t.Context(), words...).Err())
}

// again kills a process at a step, and starts it. What its lines had held is dropped.
func (l *lives) again(s *site, step string, release func()) {
	l.t.Helper()
	l.kill(s, step)
	release()
	l.running[s] = s.start(s.role)
}

// kill kills a process at a step. The brokers need not wait until its session is over.
func (l *lives) kill(s *site, step string) {
	l.t.Helper()
	l.running[s].Kill9()
	l.t.Logf("killed: %s", step)
	if l.kafka != nil {
		l.expel(s)
	}
}

// beforeItIsWritten kills freshet when the event has not come yet, and when it has just come.
func (l *lives) beforeItIsWritten() {
	l.t.Helper()
	const query = 2 // the event that has the statement
	for i, v := range []proxy.Verdict{proxy.HoldBefore, proxy.HoldAfter} {
		l.binlog.OnEvent(func(e proxy.Event) proxy.Verdict {
			if e.Type == query {
				return v
			}
			return proxy.Deliver
		})
		if i == 0 {
			l.source.Exec(l.t, "TRUNCATE shop.product")
		} else {
			l.running[l.reads] = l.reads.start(l.reads.role)
		}
		select {
		case <-l.binlog.Held():
		case <-time.After(patience):
			l.t.Fatal("the statement does not come")
		}
		l.kill(l.reads, fmt.Sprintf("the statement is held, %d", i))
		l.binlog.OnEvent(nil)
		l.binlog.Reset()
		l.binlog.Release()
	}
	l.running[l.reads] = l.reads.start(l.reads.role)
	l.await("it is in doubt", func(st *app.Status) bool { return len(st.Doubts) > 0 })
	l.again(l.site, "it is in doubt", func() {})
}

// held holds the first UNLINK of freshet's that is meant, before Redis gets it. It never does.
func (l *lives) held(what string, meant func(keys []string) bool) {
	l.t.Helper()
	reached, released := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	was := false
	l.resp.OnCommand(func(c proxy.Command) proxy.Action {
		mu.Lock()
		first := c.Name == "UNLINK" && !was && meant(c.Keys)
		was = was || first
		after := was
		mu.Unlock()
		if first {
			close(reached)
		}
		if !after {
			return proxy.Forward
		}
		<-released
		return proxy.DropCommand
	})
	select {
	case <-reached:
	case <-time.After(patience):
		l.t.Fatalf("%s: it does not come to that: %+v", what, l.status())
	}
	l.again(l.site, what, func() {
		l.resp.OnCommand(nil)
		close(released)
	})
}

// pages is meant for held: the command that comes once so many keys were forgotten.
func pages(after int) func(keys []string) bool {
	n := 0
	return func(keys []string) bool {
		n += len(keys)
		return n > after
	}
}

func isProbe(key string) bool { return strings.Contains(key, "freshet:probe") }

// late has a slow reader fill the cache when freshet asks whether they are over, and is meant for held: what the second
// pass forgets.
func (l *lives) late() func(keys []string) bool {
	settled := false
	return func(keys []string) bool {
		if settled {
			return true
		}
		if settled = slices.ContainsFunc(keys, isProbe); settled {
			l.fill()
		}
		return false
	}
}

// whileItIsAnswered kills freshet in each page of the first pass, between the passes, and in the second. All keys are
// stale when the first pass begins.
func (l *lives) whileItIsAnswered() {
	l.t.Helper()
	after := []int{0, 200, 400, 600}
	if l.kafka != nil { // where each takes longer
		after = testbed.Some(l.t, after)
	}
	for _, n := range after {
		l.fill()
		l.held(fmt.Sprintf("first pass, after %d keys", n), pages(n))
	}
	l.held("between the passes", func(keys []string) bool { return slices.ContainsFunc(keys, isProbe) })
	for range 2 {
		l.held("second pass", l.late())
	}
}

// aroundItsEnd kills freshet about the time at which the doubt ends, and after that.
func (l *lives) aroundItsEnd() {
	l.t.Helper()
	for range testbed.Cut(3, 30) {
		l.afterTheLastKey()
	}
	for id := range livesKeys {
		l.gone(fmt.Sprintf("product:%d", id))
	}
	l.freshAgain()
	l.kept("other:1")
	l.cache("product:1") // by a reader, later
	for s := range l.running {
		l.again(s, "the doubt is gone", func() {})
	}
	l.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
	if st := l.status(); len(st.Doubts) > 0 || raised(st, alarm.TruncatedTable) {
		l.t.Errorf("the doubt is there again: %+v", st.Doubts)
	}
	l.cache("product:9999")
	l.write(9999)
	l.gone("product:9999")
	l.kept("product:1", "other:1")
}

// afterTheLastKey kills freshet when Redis gets the last key of the second pass, or a moment later: the doubt is just
// about to be dismissed, or just was.
func (l *lives) afterTheLastKey() {
	l.t.Helper()
	reached := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	late := l.late()
	l.resp.OnCommand(func(c proxy.Command) proxy.Action {
		mu.Lock()
		defer mu.Unlock()
		if c.Name == "UNLINK" && late(c.Keys) && len(l.allCached()) == len(c.Keys)+1 { // with the one of others
			once.Do(func() { close(reached) })
		}
		return proxy.Forward
	})
	l.source.Exec(l.t, "TRUNCATE shop.product") // the same doubt, once more
	select {
	case <-reached:
	case <-time.After(patience):
		l.t.Fatalf("it does not come to an end: %+v", l.status())
	}
	<-time.After(time.Duration(rand.IntN(60)) * time.Millisecond)
	l.again(l.site, "after the last key", func() { l.resp.OnCommand(nil) })
}
