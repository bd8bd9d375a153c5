package canal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

var (
	uuidA = [16]byte{0xa}
	uuidB = [16]byte{0xb}
)

func gtid(u [16]byte, n uint64) event.GTID { return event.GTID{UUID: u, Number: n} }

func run(u [16]byte, first, last uint64) event.GTIDRange {
	return event.GTIDRange{First: gtid(u, first), Last: last}
}

func set(runs ...event.GTIDRange) event.GTIDSet {
	var s event.GTIDSet
	for _, r := range runs {
		s.AddRange(r)
	}
	return s
}

func at(pos uint64) binlogPos { return binlogPos{"binlog.000001", 1, pos} }

func version(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

// byGTIDs is an answer with a set, given now.
func byGTIDs(runs ...event.GTIDRange) answer {
	now := time.Now()
	return answer{server: "s", epoch: 1, made: now, received: now, gtids: set(runs...), named: true, whole: true}
}

// byPlace is an answer with a position, given now.
func byPlace(pos uint64) answer {
	now := time.Now()
	return answer{server: "s", epoch: 1, made: now, received: now, place: at(pos), end: at(pos)}
}

func begun() *visibility {
	v := newVisibility(time.Second, 0)
	v.begin("s", 1)
	return v
}

func mustTake(t *testing.T, v *visibility, a answer) conclusion {
	t.Helper()
	out, ok := v.take(a)
	if !ok {
		t.Fatal("the answer was not taken")
	}
	return out
}

func TestAMarkCoversWhatTheAnswersHoldAndNothingBehindTheFirstThatTheyDoNot(t *testing.T) {
	v := begun()
	v.handover(requirement{last: version(10), gtids: []event.GTIDRange{run(uuidA, 1, 3)}})
	v.handover(requirement{last: version(20), gtids: []event.GTIDRange{run(uuidA, 4, 4), run(uuidB, 1, 1)}})
	v.handover(requirement{last: version(30), gtids: []event.GTIDRange{run(uuidA, 5, 5)}})
	for _, c := range []struct {
		a       answer
		want    event.Version
		waiting int
	}{
		{byGTIDs(run(uuidA, 1, 2)), event.Version{}, 3},
		{byGTIDs(run(uuidA, 1, 3)), version(10), 2},
		// 5 is visible before 4 and B:1: no mark may skip them.
		{byGTIDs(run(uuidA, 1, 3), run(uuidA, 5, 5)), version(10), 2},
		{byGTIDs(run(uuidA, 1, 5)), version(10), 2},
		{byGTIDs(run(uuidA, 1, 5), run(uuidB, 1, 9)), version(30), 0},
	} {
		out := mustTake(t, v, c.a)
		if out.version != c.want || v.unconfirmed() != c.waiting {
			t.Errorf("after %s: mark %s with %d waiting, want %s with %d", c.a.gtids.String(), out.version,
				v.unconfirmed(), c.want,
				c.waiting)
		}
	}
}

func TestAPositionHoldsATransactionThatBeginsBeforeIt(t *testing.T) {
	v := begun()
	// A transaction from 100 to 300, handed over in two batches while it is still being read.
	v.handover(requirement{last: version(150), need: at(101)})
	v.handover(requirement{last: version(250), need: at(101)})
	v.handover(requirement{last: version(350), need: at(301)})
	if out := mustTake(t, v, byPlace(100)); out.version != (event.Version{}) {
		t.Errorf("an answer at its beginning confirms it: %s", out.version)
	}
	if out := mustTake(t, v, byPlace(300)); out.version != version(250) {
		t.Errorf("an answer at its end: mark %s, want %s", out.version, version(250))
	}
	if out := mustTake(t, v, byPlace(400)); out.version != version(350) || v.unconfirmed() != 0 {
		t.Errorf("mark %s, %d waiting", out.version, v.unconfirmed())
	}
}

func TestTheAgeOfABatchIsThatOfTheFirstAnswerThatHoldsAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		mustTake(t, v, byGTIDs(run(uuidA, 1, 10)))
		pass(t, 5*time.Second)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 20)))
		pass(t, 3*time.Second)
		for _, c := range []struct {
			r    event.GTIDRange
			want time.Duration
		}{
			{run(uuidA, 1, 10), 8 * time.Second},
			{run(uuidA, 10, 11), 3 * time.Second},
			{run(uuidA, 20, 21), event.Unknown},
			{run(uuidB, 1, 1), event.Unknown},
		} {
			if got := v.handover(requirement{last: version(1), gtids: []event.GTIDRange{c.r}}); got != c.want {
				t.Errorf("%v: age %s, want %s", c.r, got, c.want)
			}
		}
	})
}

func TestAnswersOfAnotherServerOrEpochAreNotTaken(t *testing.T) {
	v := begun()
	v.handover(requirement{last: version(10), need: at(5), gtids: []event.GTIDRange{run(uuidA, 1, 1)}})
	other, earlier := byPlace(1000), byPlace(1000)
	other.server, earlier.epoch = "x", 0
	for _, a := range []answer{other, earlier} {
		if _, ok := v.take(a); ok {
			t.Errorf("an answer of server %s, epoch %d was taken", a.server, a.epoch)
		}
	}
	// The server changes: what was said before counts no more, and positions do not tell of the old epoch.
	mustTake(t, v, byPlace(8))
	v.begin("y", 2)
	a := byPlace(1000)
	a.server, a.epoch = "y", 2
	v.handover(requirement{
		last: event.Version{Epoch: 1, File: 1, Pos: 20}, need: at(15),
		gtids: []event.GTIDRange{run(uuidA, 2, 2)},
	})
	v.handover(requirement{last: event.Version{Epoch: 2, File: 1, Pos: 4}, need: at(5)})
	if mustTake(t, v, a); v.unconfirmed() != 2 || !v.foreign() {
		t.Errorf("a position of the new server confirmed the old one's: %d waiting", v.unconfirmed())
	}
	a.gtids, a.named, a.whole = set(run(uuidA, 1, 2)), true, true
	if out := mustTake(t, v, a); v.unconfirmed() != 0 || out.version.Epoch != 2 || v.foreign() {
		t.Errorf("by GTID: %d waiting, mark %s", v.unconfirmed(), out.version)
	}
}

func TestNothingIsConfirmedBeforeWhatEarlierRunsReadIs(t *testing.T) {
	v := begun()
	v.base(requirement{last: version(5), need: at(5)}, event.GTIDSet{}, true)
	v.handover(requirement{last: version(10), gtids: []event.GTIDRange{run(uuidA, 7, 7)}})
	a := byGTIDs(run(uuidA, 7, 7))
	a.whole = false
	if out := mustTake(t, v, a); v.unconfirmed() != 2 || !out.version.IsZero() {
		t.Errorf("mark %s while the position itself is not visible", out.version)
	}
	a.whole = true
	if out := mustTake(t, v, a); v.unconfirmed() != 0 || out.version != version(10) {
		t.Errorf("mark %s, %d waiting", out.version, v.unconfirmed())
	}
}

func TestALostTransactionIsNotWaitedFor(t *testing.T) {
	v := begun()
	v.handover(requirement{last: version(10), gtids: []event.GTIDRange{run(uuidA, 1, 3)}, open: gtid(uuidA, 3)})
	v.handover(requirement{last: version(20), gtids: []event.GTIDRange{run(uuidA, 3, 3)}, open: gtid(uuidA, 3)})
	v.forget(gtid(uuidA, 9))
	if mustTake(t, v, byGTIDs(run(uuidA, 1, 2))); v.unconfirmed() != 2 {
		t.Fatalf("%d waiting, want 2", v.unconfirmed())
	}
	v.forget(gtid(uuidA, 3))
	if mustTake(t, v, byGTIDs(run(uuidA, 1, 1))); v.unconfirmed() != 2 {
		t.Fatalf("%d waiting, want 2: transaction 2 is not visible", v.unconfirmed())
	}
	if out := mustTake(t, v, byGTIDs(run(uuidA, 1, 2))); v.unconfirmed() != 0 || out.version != version(20) {
		t.Fatalf("%d waiting, mark %s", v.unconfirmed(), out.version)
	}
}

func TestALostTransactionIsNotWaitedForBeyondTheBound(t *testing.T) {
	v := begun()
	for i := uint64(1); i < maxRequirements; i++ {
		v.handover(requirement{last: version(i), gtids: []event.GTIDRange{run(uuidA, 1, 1)}})
	}
	for i := uint64(0); i < 5; i++ {
		v.handover(requirement{
			last: version(maxRequirements + i), gtids: []event.GTIDRange{run(uuidA, 2, 3)}, open: gtid(uuidA, 3),
		})
	}
	v.forget(gtid(uuidA, 3))
	out := mustTake(t, v, byGTIDs(run(uuidA, 1, 2)))
	if v.unconfirmed() != 0 || out.version != version(maxRequirements+4) {
		t.Fatalf("%d waiting, mark %s", v.unconfirmed(), out.version)
	}
}

func TestOnMariaDBALostTransactionLeavesTheOneBeforeIt(t *testing.T) {
	g := func(n uint64) event.GTID { return event.GTID{Domain: 1, Server: 2, Number: n} }
	got := without([]event.GTIDRange{{First: g(7), Last: 7}}, g(7))
	if len(got) != 1 || got[0].Last != 6 || got[0].First != g(6) {
		t.Errorf("%v, want 6", got)
	}
	if got := without([]event.GTIDRange{{First: g(1), Last: 1}}, g(1)); len(got) != 0 {
		t.Errorf("%v, want none", got)
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	v := begun()
	const n = 3 * maxRequirements
	for i := uint64(1); i <= n; i++ {
		u := uuidA
		if i%3 == 0 {
			u = uuidB
		}
		v.handover(requirement{last: version(i), gtids: []event.GTIDRange{run(u, i, i)}})
	}
	if len(v.queue) != maxRequirements {
		t.Fatalf("%d requirements are kept, want %d", len(v.queue), maxRequirements)
	}
	var all []event.GTIDRange
	for i := uint64(1); i <= n; i++ {
		u := uuidA
		if i%3 == 0 {
			u = uuidB
		}
		all = append(all, run(u, i, i))
	}
	if out := mustTake(t, v, byGTIDs(all[:n-1]...)); v.unconfirmed() != 1 || out.version != version(maxRequirements-1) {
		t.Errorf("without the last one: %d waiting, mark %s", v.unconfirmed(), out.version)
	}
	if out := mustTake(t, v, byGTIDs(all...)); v.unconfirmed() != 0 || out.version != version(n) {
		t.Errorf("with all: %d waiting, mark %s", v.unconfirmed(), out.version)
	}
}

func TestAFewAnswersReachBackForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		for i := uint64(1); i <= 4*3600*10; i++ { // four hours, asked ten times a second
			mustTake(t, v, byGTIDs(run(uuidA, 1, i)))
			pass(t, 100*time.Millisecond)
		}
		if n := len(v.answers); n > maxAnswers {
			t.Fatalf("%d answers are kept", n)
		}
		age := func(n uint64) time.Duration {
			return v.handover(requirement{last: version(n), gtids: []event.GTIDRange{run(uuidA, n, n)}})
		}
		if got := age(1); got != 4*time.Hour {
			t.Errorf("age of what the first answer held: %s", got)
		}
		// What was committed half an hour ago is known to be many minutes old, what was a minute ago nearly so.
		if got := age((4*3600 - 1800) * 10); got < 10*time.Minute || got > 30*time.Minute {
			t.Errorf("age after half an hour: %s", got)
		}
		if got := age((4*3600 - 20) * 10); got < 18*time.Second || got > 20*time.Second {
			t.Errorf("age after 20 s: %s", got)
		}
		if got := age(4 * 3600 * 10); got != 100*time.Millisecond {
			t.Errorf("age of the newest: %s", got)
		}
	})
}

func TestAServerThatHasLostWhatItSaidIsNotBelievedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		mustTake(t, v, byGTIDs(run(uuidA, 1, 10)))
		pass(t, time.Minute)
		mustTake(t, v, byGTIDs(run(uuidA, 1, 5)))
		got := v.handover(requirement{last: version(1), gtids: []event.GTIDRange{run(uuidA, 9, 9)}})
		if got != event.Unknown {
			t.Errorf("age %s of a transaction that is gone", got)
		}
	})
}

func TestTheLoopCatchesUpWithAnAnswerLater(t *testing.T) {
	v := begun()
	v.handed(at(100), 1, nil)
	if out := mustTake(t, v, byPlace(200)); out.read {
		t.Error("read, though the source holds more")
	}
	drainSignal(v.wake)
	v.handed(at(150), 1, nil)
	if _, ok := v.again(); ok || drainSignal(v.wake) {
		t.Error("half of it was taken for all")
	}
	v.handed(at(200), 1, nil)
	if !drainSignal(v.wake) {
		t.Error("the heartbeat was not woken")
	}
	if out, ok := v.again(); !ok || !out.read {
		t.Error("not read, though all was handed over")
	}
	if _, ok := v.again(); ok {
		t.Error("said twice")
	}
	// By GTID.
	v = begun()
	v.handed(at(100), 1, []event.GTIDRange{run(uuidA, 1, 4)})
	if out := mustTake(t, v, byGTIDs(run(uuidA, 1, 5))); out.read {
		t.Error("read without transaction 5")
	}
	v.handed(at(100), 1, []event.GTIDRange{run(uuidA, 5, 6)})
	if out, ok := v.again(); !ok || !out.read {
		t.Error("not read with transactions 5 and 6")
	}
}

func drainSignal(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSettledWaitsForTheLastClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		v.handover(requirement{last: version(1), need: at(5)})
		v.handover(requirement{last: version(2), need: at(9)})
		done := make(chan error, 1)
		go func() { done <- v.settled(t.Context()) }()
		synctest.Wait()
		mustTake(t, v, byPlace(6))
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned %v while a requirement waits", err)
		default:
		}
		mustTake(t, v, byPlace(9))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		v.handover(requirement{last: version(3), need: at(20)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := v.settled(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want the context's error", err)
		}
	})
}

func TestACatchUpsLastQuestionDoesNotWaitForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := begun()
		v.handover(requirement{last: version(1), need: at(5)})
		drainSignal(v.wake)
		h := &heart{o: &Options{Heartbeat: time.Second}, vis: v}
		begin := time.Now()
		go func() { _ = v.settled(t.Context()) }()
		if err := h.wait(t.Context(), h.soon()); err != nil || time.Since(begin) != 0 {
			t.Fatalf("asked after %s, %v", time.Since(begin), err)
		}
		// Once: while a commit is held up, the source is asked as often as ever.
		if err := h.wait(t.Context(), h.soon()); err != nil || time.Since(begin) != h.soon() {
			t.Fatalf("asked again after %s, %v", time.Since(begin), err)
		}
		mustTake(t, v, byPlace(9))
		synctest.Wait()
	})
}

// MySQL without GTIDs says what everybody sees by where its binlog ended a heartbeat ago. Timers fire a little late,
// each time by a different while. The next answer must not come sooner than that: all would wait for one more then.
func TestWhatMustBeAHeartbeatOldIsWaitedForThatLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, byGTID := range []bool{false, true} {
			h := &heart{o: &Options{Heartbeat: time.Second}, flavor: event.MySQL, byGTID: byGTID}
			for _, late := range []time.Duration{300, 50, 200, 10, 700} {
				time.Sleep(retry.ToBeat(time.Second) + late*time.Microsecond)
				asked := time.Now()
				time.Sleep(time.Millisecond) // for the answer
				time.Sleep(h.next(asked, h.o.Heartbeat))
				switch since := time.Since(asked); {
				case !byGTID && since < h.o.Heartbeat:
					t.Errorf("asked again %s after a question that has to be %s old", since, h.o.Heartbeat)
				case byGTID && since != h.o.Heartbeat-late*time.Microsecond:
					t.Errorf("asked again %s after a question at %s after a beat", since, late*time.Microsecond)
				}
			}
		}
	})
}

// TestNoMarkIsEverAheadOfWhatIsVisible plays a source whose transactions become visible in any order, a reader that is
// ahead of it or late, hands over parts of transactions, and loses connections and transactions.
func TestNoMarkIsEverAheadOfWhatIsVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type tx struct {
			g       event.GTID
			begin   uint64
			visible bool
		}
		positions := rapid.Bool().Draw(t, "positions") // visible in order, answered by position
		v := begun()
		var txs []*tx
		versions := map[event.Version]int{} // transactions that the version covers
		read, pos := 0, uint64(4)
		numbers := map[[16]byte]uint64{}
		steps := rapid.SliceOfN(rapid.IntRange(0, 4), 60, 150).Draw(t, "steps")
		for i, step := range steps {
			switch step {
			case 0: // a commit, in the binlog and not yet visible
				u := rapid.SampledFrom([][16]byte{uuidA, uuidB}).Draw(t, "uuid")
				numbers[u]++
				txs = append(txs, &tx{g: gtid(u, numbers[u]), begin: pos})
				pos += 100
			case 1: // one becomes visible
				for _, x := range txs {
					if !x.visible && (positions || rapid.Bool().Draw(t, "this one")) {
						x.visible = true
						break
					}
				}
			case 2, 3: // the reader reads some and hands them over
				n := rapid.IntRange(0, len(txs)-read).Draw(t, "read")
				if n == 0 {
					continue
				}
				var runs event.End
				for _, x := range txs[read : read+n] {
					runs.AddTx("", 0, x.g, time.Time{})
				}
				read += n
				last := txs[read-1]
				ver := version(last.begin + uint64(step))
				c := requirement{last: ver, need: at(last.begin + 1), gtids: runs.GTIDs}
				if step == 3 { // only a part of the last one
					c.open = last.g
					read--
				}
				versions[ver] = read
				if step == 3 {
					versions[ver]++
				}
				v.handover(c)
			case 4:
				a := byGTIDs()
				end := uint64(4)
				for _, x := range txs {
					if x.visible {
						a.gtids.Add(x.g)
						end = x.begin + 100
					} else if positions {
						break
					}
				}
				if positions {
					a = byPlace(end)
				}
				out, ok := v.take(a)
				if !ok {
					t.Fatal("not taken")
				}
				for _, x := range txs[:versions[out.version]] {
					if !x.visible {
						t.Fatalf("step %d: mark %s, but %s is not visible", i, out.version, x.g)
					}
				}
			}
		}
		// Nothing waits forever.
		for _, x := range txs {
			x.visible = true
		}
		a := byGTIDs()
		for _, x := range txs {
			a.gtids.Add(x.g)
		}
		if positions {
			a = byPlace(pos)
		}
		if v.take(a); v.unconfirmed() != 0 {
			t.Fatalf("%d wait though all is visible: %s", v.unconfirmed(), fmt.Sprint(v.queue))
		}
	})
}

// pass lets the bubble's time pass.
func pass(t *testing.T, d time.Duration) {
	if err := retry.Sleep(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// What another server has said does not name the present one: only its own answers do.
func TestAConclusionNamesTheServerThatAnswered(t *testing.T) {
	v := begun()
	v.handover(requirement{last: version(5), need: at(5)})
	if out := mustTake(t, v, byPlace(5)); out.server != "s" || out.version != version(5) {
		t.Errorf("%+v", out)
	}
	v.begin("other", 2)
	if out, ok := v.again(); ok {
		t.Errorf("the present server has said nothing yet: %+v", out)
	}
	if out, ok := v.take(byPlace(9)); ok {
		t.Errorf("the former server answers: %+v", out)
	}
	a := byPlace(1)
	a.server, a.epoch = "other", 2
	if out := mustTake(t, v, a); out.server != "other" {
		t.Errorf("%+v", out)
	}
}
