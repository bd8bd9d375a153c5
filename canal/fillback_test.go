package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// follow returns a replica of a source.
func follow(t *testing.T, source *testbed.Server) (r *testbed.Server) {
	t.Helper()
	if source.Flavor == testbed.FlavorMariaDB {
		r = testbed.MariaDB(t, "--skip-log-bin")
	} else {
		r = testbed.MySQL(t)
	}
	r.Follow(t, source)
	return r
}

// followed is a source whose readers fill from a replica.
type followed struct {
	*running
	d       *database
	replica *testbed.Server
}

func withReplica(t *testing.T, mariaDB bool, change func(o *Options)) *followed {
	t.Helper()
	start := testbed.MySQL
	if mariaDB {
		start = testbed.MariaDB
	}
	source := start(t, "--binlog-row-metadata=FULL")
	p := &followed{d: newDatabase(t, source, "create table DB.t (id int primary key)"), replica: follow(t, source)}
	p.caughtUp(t)
	o := p.d.options()
	o.FillFrom, o.FillTimeout, o.Heartbeat = []string{p.replica.Addr}, time.Hour, 100*time.Millisecond
	if change != nil {
		change(&o)
	}
	p.running = reading(t, newRecorder(), o)
	return p
}

func (p *followed) fill() FillServer {
	if all := p.canal.Stats().Fills; len(all) == 1 {
		return all[0]
	}
	return FillServer{}
}

// caughtUp waits until the replica has all.
func (p *followed) caughtUp(t *testing.T) {
	t.Helper()
	variable := "@@global.gtid_executed"
	if p.d.Flavor == testbed.FlavorMariaDB {
		variable = "@@global.gtid_slave_pos"
	}
	want := strings.ReplaceAll(p.d.GTIDs(t), "\n", "")
	testbed.Eventually(t, 2*time.Minute, "the replica has all", func() bool {
		return strings.ReplaceAll(p.replica.QueryText(t, "SELECT "+variable), "\n", "") == want
	})
}

func (p *followed) whole(t *testing.T) {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, "the fill server has all", func() bool {
		f := p.fill()
		return f.Server != "" && f.Error == "" && f.WaitedFor && p.canal.Stats().Unconfirmed == 0
	})
}

func (p *followed) doubted(t *testing.T, what string) {
	t.Helper()
	testbed.Eventually(t, time.Minute, what, func() bool {
		l := p.doubts.List()
		return len(l) > 0 && l[len(l)-1].Cause == alarm.FillServerLeftOut
	})
}

// A replica of MariaDB that was restored says so by its gtid_slave_pos alone.
func TestAMariaDBThatHasLessThanBefore(t *testing.T) {
	t.Parallel()
	p := withReplica(t, true, nil)
	p.whole(t)
	before := p.d.GTIDs(t)
	p.d.exec("insert into DB.t values (1)")
	p.caughtUp(t)
	p.wantRows(p.d, "insert DB.t (1)")
	row := p.rows[0].version
	p.await(t, "a mark over it, which the replica has confirmed", func() bool { return p.marked(row) })
	p.replica.Exec(t, "STOP SLAVE", "SET GLOBAL gtid_slave_pos = '"+before+"'")
	p.doubted(t, "it has less than before")
}

// An operator may end the doubt as often as he likes: as long as the server is out, its readers fill with old values.
func TestTheDoubtStaysWhileTheServerIsOut(t *testing.T) {
	t.Parallel()
	p := withReplica(t, false, func(o *Options) { o.FillTimeout = time.Second })
	p.whole(t)
	p.replica.Exec(t, "STOP REPLICA")
	p.d.exec("insert into DB.t values (1)")
	for n := range 3 {
		p.doubted(t, fmt.Sprintf("it is in doubt, after it was ended %d times", n))
		d := p.doubts.List()[0]
		if err := p.doubts.Dismiss(t.Context(), d.ID, d.Last); err != nil {
			t.Fatal(err)
		}
	}
}

// leftOut waits until the server is left out, because it is stopped.
func (p *followed) leftOut(t *testing.T) {
	t.Helper()
	p.whole(t)
	p.replica.Exec(t, "STOP REPLICA")
	p.d.exec("insert into DB.t values (1)")
	p.doubted(t, "it is left out")
}

// An operator asks for the answer while the server is out, and it is back before that is given.
func TestAnAnswerThatIsAskedForWhileTheServerIsOutBeginsAgain(t *testing.T) {
	t.Parallel()
	p := withReplica(t, false, func(o *Options) { o.FillTimeout = time.Second })
	p.leftOut(t)
	is := func() doubt.Doubt { return p.doubts.List()[0] }
	testbed.Must(t, p.doubts.Ask(t.Context(), is().ID))
	asked := is()
	p.replica.Exec(t, "START REPLICA")
	testbed.Eventually(t, time.Minute, "it has come again, and an answer was asked for", func() bool {
		return is().Last.After(asked.AskedAt) && is().AskedAt.After(is().Last)
	})
}

// The answer is given while the server is back, and its readers are not over.
func TestAnAnswerWhileReadersOfTheServerAreNotOverIsNotTheLast(t *testing.T) {
	t.Parallel()
	p := withReplica(t, false, func(o *Options) { o.FillTimeout, o.FillSettles = time.Second, time.Hour })
	p.leftOut(t)
	d := p.doubts.List()[0]
	testbed.Must(t, p.doubts.Ask(t.Context(), d.ID))
	p.replica.Exec(t, "START REPLICA")
	p.whole(t)
	testbed.Must(t, p.doubts.Answered(t.Context(), d.ID, d.Last, "forgotten"))
	p.doubted(t, "it is in doubt again")
}

// A server that was left out because it was away, and was restored meanwhile, lacks more than what it was left out for.
func TestAServerThatWasRestoredWhileItWasOut(t *testing.T) {
	t.Parallel()
	var between *proxy.Proxy
	p := withReplica(t, false, func(o *Options) {
		between = proxy.Start(t, o.FillFrom[0])
		o.FillFrom, o.FillTimeout = []string{between.Addr()}, time.Second
	})
	p.whole(t)
	between.Cut()
	p.d.exec("insert into DB.t values (1)")
	p.doubted(t, "it is left out")
	p.caughtUp(t)
	p.replica.Exec(t, "STOP REPLICA", "RESET BINARY LOGS AND GTIDS")
	between.Resume()
	testbed.Eventually(t, time.Minute, "what it has lost is in doubt too", func() bool {
		return slices.ContainsFunc(p.doubts.List(), func(d doubt.Doubt) bool { return isLeftOut(d) && d.From == "" })
	})
}

// Another server may lack what changed long before it came: the doubt is about that too.
func TestAnotherServerLacksWhatChangedBefore(t *testing.T) {
	t.Parallel()
	source := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, source, "create table DB.t (id int primary key)")
	first, second := &followed{d: d, replica: follow(t, source)}, &followed{d: d, replica: follow(t, source)}
	first.caughtUp(t)
	second.caughtUp(t)
	to := &many{}
	to.lead(first.replica.Addr)
	o := d.options()
	o.Dial, o.FillFrom, o.FillTimeout = to.dial, []string{"fill:1"}, time.Second
	o.Heartbeat = 100 * time.Millisecond
	first.running = reading(t, newRecorder(), o)
	first.whole(t)
	second.replica.Exec(t, "STOP REPLICA")
	changed := time.Now()
	d.exec("insert into DB.t values (1)")
	first.wantRows(d, "insert DB.t (1)")
	first.whole(t)
	testbed.Eventually(t, 2*time.Minute, "the change is older than what is looked for", func() bool {
		return time.Since(changed) > lookFillEach+2*fillMargin
	})
	to.lead(second.replica.Addr)
	first.doubted(t, "another server is a doubt")
	since, err := time.Parse(time.RFC3339, first.doubts.List()[0].From)
	if first.doubts.List()[0].From != "" && (err != nil || since.After(changed)) {
		t.Errorf("changes are done again since %s, and it lacks one of %s: %v", since, changed, err)
	}
}

// What was lost in a gap has to reach the fill servers before the answer to the gap is over.
func TestAfterAGapFillServersMustHaveWhatWasLost(t *testing.T) {
	t.Parallel()
	for name, mariaDB := range map[string]bool{"MySQL": false, "MariaDB": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := testbed.MySQL
			stop, again := "STOP REPLICA", "START REPLICA"
			if mariaDB {
				start, stop, again = testbed.MariaDB, "STOP SLAVE", "START SLAVE"
			}
			source := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, source, "create table DB.t (id int primary key)")
			p := &followed{d: d, replica: follow(t, source)}
			p.caughtUp(t)
			before := here(t, source)
			before.Epoch = 7
			p.replica.Exec(t, stop)
			d.exec("insert into DB.t values (1)")
			o := d.options()
			o.Gap, o.FillFrom, o.FillTimeout = errLost, []string{p.replica.Addr}, time.Hour
			p.running = reading(t, startAt(before), o)
			testbed.Eventually(t, time.Minute, "it lacks what was lost", func() bool {
				f := p.fill()
				return f.Server != "" && f.Lacking == 1
			})
			p.replica.Exec(t, again)
			p.whole(t)
			if l := p.doubts.List(); slices.ContainsFunc(l, isLeftOut) {
				t.Errorf("%+v", l)
			}
		})
	}
}

func isLeftOut(d doubt.Doubt) bool { return d.Cause == alarm.FillServerLeftOut }

// A stream that follows another one has no fill servers. It must not take those of the other one for servers that are
// none any more: the doubt would come again for that, and what is done again for it would begin again.
func TestAStreamThatFollowsAnswersForNoFillServer(t *testing.T) {
	for _, follows := range []bool{false, true} {
		doubts := newBook(t)
		testbed.Must(t, doubts.Record(t.Context(), doubt.Doubt{Cause: alarm.FillServerLeftOut, Source: "s", Subject: "b:1"}))
		c, err := New(Options{
			Address: "a:1", User: "u", Source: "s", Doubts: doubts, Follow: follows, FillSettles: time.Millisecond,
		}, binding(newRecorder()), newRecorder())
		testbed.Must(t, err)
		c.watchFills(t.Context())
		if d := doubts.List()[0]; d.Asked == follows || follows && d.Count != 1 {
			t.Errorf("follows: %v: %+v", follows, d)
		}
	}
}

// Until it is known which servers the names lead to, no mark goes out.
func TestNoMarkBeforeTheFillServersAreKnown(t *testing.T) {
	c, err := New(Options{Address: "a:1", User: "u", FillFrom: []string{"b:1"}}, binding(newRecorder()), newRecorder())
	if err != nil {
		t.Fatal(err)
	}
	c.vis.begin("s", 1)
	handOver(c.vis, 1)
	mustTake(t, c.vis, byGTIDs(run(uuidA, 1, 1)))
	wantMark(t, c.vis, "nobody has looked them up", 0)
}

// A server that joins has to have what was finished without it, or that is in doubt.
func TestAServerThatJoinsAndLags(t *testing.T) {
	t.Parallel()
	p := withReplica(t, false, nil)
	p.whole(t)
	p.replica.Exec(t, "STOP REPLICA")
	o := p.d.options()
	p.d.exec("insert into DB.t values (1)")
	at := here(t, p.d.Server)
	at.Epoch = 7
	rec := startAt(at)
	o.FillFrom, o.FillTimeout, o.Heartbeat = []string{p.replica.Addr}, time.Hour, 100*time.Millisecond
	next := &followed{d: p.d, replica: p.replica, running: reading(t, rec, o)}
	next.doubted(t, "it lacks what an earlier run has finished")
	if next.doubts.List()[0].From != "" {
		t.Error("nobody knows since when")
	}
	p.replica.Exec(t, "START REPLICA")
	next.whole(t)
}

// One that was away when the run began says only later what it lacks.
func TestAServerThatAnswersLateAndLags(t *testing.T) {
	t.Parallel()
	p := withReplica(t, false, nil)
	p.whole(t)
	p.replica.Exec(t, "STOP REPLICA")
	p.d.exec("insert into DB.t values (1)")
	at := here(t, p.d.Server)
	at.Epoch = 7
	between := proxy.Start(t, p.replica.Addr)
	between.Cut()
	o := p.d.options()
	o.FillFrom, o.FillTimeout, o.Heartbeat = []string{between.Addr()}, time.Second, 100*time.Millisecond
	next := &followed{d: p.d, replica: p.replica, running: reading(t, startAt(at), o)}
	testbed.Eventually(t, time.Minute, "it reads", func() bool { return next.canal.Stats().Connected })
	p.d.exec("insert into DB.t values (2)")
	next.doubted(t, "it is left out")
	between.Resume()
	testbed.Eventually(t, time.Minute, "it lacks what an earlier run has finished", func() bool {
		return slices.ContainsFunc(next.doubts.List(), func(d doubt.Doubt) bool { return isLeftOut(d) && d.From == "" })
	})
}

// What waits for a server that joins is not what it has missed.
// Of MariaDB's sets only the last one in a domain is known.
func TestWhatAServerThatJoinsHasMissed(t *testing.T) {
	for name, of := range map[string]func(first, last uint64) event.GTIDRange{
		"MySQL": func(first, last uint64) event.GTIDRange { return run(uuidA, first, last) },
		"MariaDB": func(first, last uint64) event.GTIDRange {
			return event.GTIDRange{First: event.GTID{Server: 7, Number: first}, Last: last}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := begun()
			v.base(requirement{last: version(5), need: at(5)}, set(of(1, 3)), true)
			v.handed(at(80), 1, []event.GTIDRange{of(4, 8)})
			v.handover(requirement{last: version(70), gtids: []event.GTIDRange{of(6, 7)}})
			v.handover(requirement{last: version(80), gtids: []event.GTIDRange{of(8, 8)}})
			for has, missed := range map[uint64]bool{2: true, 4: true, 5: false, 7: false, 8: false} {
				a := upTo("f", has, of)
				if got := v.missed(&fillView{joined: true}, &a); got != missed {
					t.Errorf("with all up to %d: missed %v", has, got)
				}
				if got := v.missed(&fillView{}, &a); got != (has < 3) {
					t.Errorf("from the beginning of the run on, with all up to %d: missed %v", has, got)
				}
			}
		})
	}
}

// upTo is an answer of a server that has all up to a number.
func upTo(server string, last uint64, runs func(first, last uint64) event.GTIDRange) answer {
	return of(server, byGTIDs(runs(1, last)))
}
