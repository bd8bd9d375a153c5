package canal

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func handOver(v *visibility, n uint64) time.Duration {
	return v.handover(requirement{last: version(10 * n), gtids: []event.GTIDRange{run(uuidA, n, n)}})
}

// of is an answer of another server.
func of(server string, a answer) answer {
	a.server = server
	return a
}

func wantMark(t *testing.T, v *visibility, what string, n uint64) {
	t.Helper()
	want := event.Version{}
	if n > 0 {
		want = version(10 * n)
	}
	if v.again(); v.confirmed != want {
		t.Errorf("%s: mark %s, want %s", what, v.confirmed, want)
	}
}

func TestAMarkCoversWhatTheSourceAndEachFillServerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		f, g := v.watchFill("f:3306"), v.watchFill("g:3306")
		for n := range uint64(4) {
			handOver(v, n+1)
		}
		mustTake(t, v, byGTIDs(run(uuidA, 1, 3)))
		wantMark(t, v, "the source alone", 0)
		v.fillAnswered(f, of("f", byGTIDs(run(uuidA, 1, 4)))) // it may show it before the source does
		wantMark(t, v, "one fill server", 0)
		pass(t, 2*time.Second)
		a := of("g", byGTIDs(run(uuidA, 1, 2), run(uuidA, 4, 4)))
		if wait, more := v.fillAnswered(g, a); !more || wait != 2*time.Second {
			t.Errorf("it has it %s later: %v", wait, more)
		}
		wantMark(t, v, "the other lacks the third", 2)
		if c, lacks := v.fillLacks(g); !lacks || c.last != version(30) {
			t.Errorf("it lacks %s: %v", c.last, lacks)
		}
		v.fillAnswered(g, of("g", byGTIDs(run(uuidA, 1, 4))))
		wantMark(t, v, "all have the third", 3)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 4)))
		wantMark(t, v, "all have all", 4)
		if n := v.unconfirmed(); n != 0 {
			t.Errorf("%d wait", n)
		}

		pass(t, 3*time.Second)
		if age := handOver(v, 4); age != 3*time.Second {
			t.Errorf("age %s by answers of all", age)
		}
		mustTake(t, v, byGTIDs(run(uuidA, 1, 5)))
		if age := handOver(v, 5); age != event.Unknown {
			t.Errorf("age %s though fill servers have not said that they have it", age)
		}
		mustTake(t, v, byGTIDs(run(uuidA, 1, 5)))
		v.leaveOut(f, true)
		v.fillAnswered(g, of("s", byGTIDs())) // it is the server that is streamed from
		wantMark(t, v, "one is left out, and one is the source itself", 5)
		v.leaveOut(f, false)
		handOver(v, 6)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 6)))
		wantMark(t, v, "it is waited for again", 5)
		v.dropFill(f)
		wantMark(t, v, "it is gone", 6)
	})
}

// Another server is streamed from: what fill servers have said is asked again, for GTIDs may have been used again.
func TestAfterAFailoverFillServersAreAskedAgain(t *testing.T) {
	v := begun()
	f := v.watchFill("f:3306")
	handOver(v, 1)
	v.fillAnswered(f, of("f", byGTIDs(run(uuidA, 1, 1))))
	v.begin("f", 2)
	a := of("f", byGTIDs(run(uuidA, 1, 1)))
	a.epoch = 2
	if _, ok := v.take(a); !ok {
		t.Fatal("not taken")
	}
	wantMark(t, v, "before it has answered again", 0)
	v.fillAnswered(f, a)
	wantMark(t, v, "it is the source now", 1)
}

// What cannot be asked has a change some time after the source.
func TestALagPutsMarksAndAgesOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisibility(time.Second, 5*time.Second)
		v.begin("s", 1)
		handOver(v, 1)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 1)))
		wantMark(t, v, "at once", 0)
		pass(t, 4*time.Second)
		handOver(v, 2)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 2)))
		wantMark(t, v, "after 4 s", 0)
		pass(t, time.Second)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 2)))
		wantMark(t, v, "after 5 s", 1)
		if age := handOver(v, 2); age != event.Unknown {
			t.Errorf("age %s after a second", age)
		}
		pass(t, 6*time.Second)
		if age := handOver(v, 2); age != 2*time.Second {
			t.Errorf("age %s, 7 s after the source had it", age)
		}
	})
}

// A queue that is full takes more into its last requirement: a fill server that had that must have the new one as well.
func TestAFullQueueWaitsForFillServersToo(t *testing.T) {
	v := begun()
	f := v.watchFill("f:3306")
	for n := range uint64(maxRequirements) {
		handOver(v, n+1)
	}
	all := byGTIDs(run(uuidA, 1, maxRequirements))
	v.fillAnswered(f, of("f", all))
	handOver(v, maxRequirements+1)
	mustTake(t, v, byGTIDs(run(uuidA, 1, maxRequirements+1)))
	wantMark(t, v, "it lacks the last", maxRequirements-1)
	v.fillAnswered(f, of("f", byGTIDs(run(uuidA, 1, maxRequirements+1))))
	wantMark(t, v, "it has the last", maxRequirements+1)
}

// many leads each new connection to the next of some servers, or all to one of them.
type many struct {
	mu      sync.Mutex
	servers []string
	next    int
}

func (m *many) lead(servers ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = servers
}

func (m *many) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address == "fill:1" {
		m.mu.Lock()
		m.next++
		address = m.servers[m.next%len(m.servers)]
		m.mu.Unlock()
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// A name that leads to several servers by turns is found out, and one that leads to another server leaves a doubt: what
// that one had by then is not known. So does a server that has less than before.
func TestAnotherServerAtTheAddressOfAFillServer(t *testing.T) {
	t.Parallel()
	source := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	replicas := make([]*testbed.Server, 2)
	for i := range replicas {
		replicas[i] = testbed.MySQL(t)
		replicas[i].Follow(t, source)
	}
	d := newDatabase(t, source, "create table DB.t (id int primary key)")
	to := &many{}
	to.lead(replicas[0].Addr, replicas[1].Addr)
	o := d.options()
	o.Dial, o.FillFrom, o.FillTimeout = to.dial, []string{"fill:1"}, time.Hour
	o.Heartbeat = 100 * time.Millisecond
	r := reading(t, newRecorder(), o)
	fill := func() FillServer {
		if all := r.canal.Stats().Fills; len(all) == 1 {
			return all[0]
		}
		return FillServer{}
	}
	testbed.Eventually(t, 2*time.Minute, "the balancer is found out", func() bool {
		return strings.Contains(fill().Error, "balancer")
	})
	d.exec("insert into DB.t values (1)")
	r.wantRows(d, "insert DB.t (1)")

	to.lead(replicas[0].Addr)
	whole := func(what string) {
		testbed.Eventually(t, 2*time.Minute, what, func() bool {
			s := r.canal.Stats()
			return fill().Error == "" && fill().WaitedFor && s.Unconfirmed == 0
		})
	}
	whole("the server has all")
	if l := r.doubts.List(); len(l) != 0 {
		t.Fatalf("in doubt before anything happened: %+v", l)
	}
	asked := func(what string, n int) {
		testbed.Eventually(t, 2*time.Minute, what, func() bool {
			l := r.doubts.List()
			if len(l) != n {
				return false
			}
			for _, d := range l {
				if d.Cause != alarm.FillServerLeftOut || d.Subject != "fill:1" || !d.Asked {
					return false
				}
			}
			return true
		})
	}
	to.lead(replicas[1].Addr)
	asked("another server is a doubt, which is answered once it has all", 1)
	if r.doubts.List()[0].From == "" {
		t.Error("it is not known since when")
	}
	whole("it is waited for")

	replicas[1].Exec(t, "STOP REPLICA", "RESET BINARY LOGS AND GTIDS")
	testbed.Eventually(t, 2*time.Minute, "it has less than before", func() bool { return len(r.doubts.List()) == 2 })
	if fill().WaitedFor {
		t.Error("it is waited for though it has lost all")
	}
	replicas[1].Exec(t, "SET GLOBAL gtid_purged = '"+strings.ReplaceAll(source.GTIDs(t), "\n", "")+"'", "START REPLICA")
	asked("it has all again", 2)
	whole("it is waited for again")
}

// A fill server that does not keep GTIDs, or that nobody reaches, is left out once it lacks something.
func TestAFillServerThatCannotBeAskedIsLeftOut(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	held := testbed.FreeAddress(t)
	for what, address := range map[string]string{
		"without GTIDs": shared[1].get(t).Addr, "away": held, "no name": "no.such.name.invalid:3306",
	} {
		t.Run(what, func(t *testing.T) {
			o := d.options()
			o.FillFrom, o.FillTimeout, o.Heartbeat = []string{address}, time.Second, 100*time.Millisecond
			r := reading(t, newRecorder(), o)
			testbed.Eventually(t, 2*time.Minute, "it reads", func() bool { return r.canal.Stats().Connected })
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", nextID.Add(1)))
			testbed.Eventually(t, 2*time.Minute, "it is left out", func() bool {
				l := r.doubts.List()
				return len(l) == 1 && l[0].Cause == alarm.FillServerLeftOut && l[0].Subject == address && !l[0].Asked &&
					r.canal.Stats().Unconfirmed == 0
			})
			if s := r.canal.Stats().Fills[0].String(); !strings.Contains(s, "left out: ") {
				t.Error(s)
			}
		})
	}
}

var nextID atomic.Int64
