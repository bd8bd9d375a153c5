package app

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// member returns what one member of a group knows of warm-ups.
func member(facts *doubttest.Memory, group string) *warming {
	book, _ := doubt.New(nil, nil, nil) // fails only where there is a registry
	return &warming{walking: &walking{
		shared: &shared{facts: facts, doubts: book, options: Options{Log: slog.New(slog.DiscardHandler)}},
		whose:  group, group: group,
	}}
}

// ask has a warm-up asked for at a member, once its table was found good.
func (w *warming) ask(t *testing.T, id string, at int) warmUp {
	t.Helper()
	task := warmUp{ID: id, Table: "shop." + id, Asked: time.Date(2026, 1, 31, 8, 0, at, 0, time.UTC)}
	must(t, w.keep(t.Context(), w.fact()+id, task))
	must(t, w.load(t.Context()))
	return task
}

// sees returns what a member shows.
func (w *warming) sees(t *testing.T) (s Status) {
	t.Helper()
	must(t, w.load(t.Context()))
	w.status(&s)
	return s
}

func TestAWarmUpGoesOnInAnotherMember(t *testing.T) {
	facts := &doubttest.Memory{}
	leader, other, heir := member(facts, "g"), member(facts, "g"), member(facts, "g")
	member(facts, "g/1").ask(t, "foreign", 0)
	other.ask(t, "b", 2)
	task := other.ask(t, "a", 1)
	must(t, leader.endCancelled(t.Context()))
	of, k := leader.first()
	if of != task || len(k.from.After) > 0 {
		t.Fatalf("the first one is %+v from %+v", of, k.from)
	}
	k.rows.Store(70)
	k.keys.Store(140)
	k.passed.Store(900)
	k.done = walk.Place{Key: []string{"id"}, After: []string{"50"}}
	why := "it is away"
	k.trouble.Store(&why)
	if !leader.reached(t.Context(), &of, k) {
		t.Error("it was cancelled")
	}
	for _, m := range []*warming{leader, other} {
		all := m.sees(t).WarmUps
		if len(all) != 2 || all[0].ID != "a" || all[0].Rows != 70 || all[0].Keys != 140 ||
			!strings.Contains(all[0].Answer, "it is away") || all[1].Answer != "waiting for the one before it" {
			t.Errorf("%+v", all)
		}
	}
	must(t, heir.endCancelled(t.Context()))
	of, resumed := heir.first()
	if of != task || resumed.from.After[0] != "50" || resumed.rows.Load() != 70 || resumed.passed.Load() != 900 ||
		resumed.reached().After[0] != "50" {
		t.Errorf("the next member begins %+v at %+v", of, resumed.from)
	}
	// The same that is asked for again is another one, from the beginning.
	again := other.ask(t, "a", 0)
	must(t, heir.endCancelled(t.Context()))
	if of, k := heir.first(); of != again || len(k.from.After) > 0 || k.rows.Load() > 0 {
		t.Errorf("another warm-up begins as %+v from %+v", of, k.from)
	}
	if leader.reached(t.Context(), &of, k) {
		t.Error("who carried out the former one goes on")
	}
}

func TestAWarmUpIsCancelledAtAnyMember(t *testing.T) {
	facts := &doubttest.Memory{}
	leader, other := member(facts, "g"), member(facts, "g")
	if err := other.CancelWarmUp(t.Context(), "a"); !errors.Is(err, admin.ErrNoWarmUp) {
		t.Error(err)
	}
	other.ask(t, "a", 1)
	must(t, leader.endCancelled(t.Context()))
	of, k := leader.first()
	k.rows.Store(7)
	leader.reached(t.Context(), &of, k)
	must(t, other.CancelWarmUp(t.Context(), "a"))
	if all := other.sees(t).WarmUps; len(all) != 1 || !strings.Contains(all[0].Answer, "cancelled") {
		t.Errorf("%+v", all)
	}
	if leader.reached(t.Context(), &of, k) {
		t.Error("it goes on")
	}
	must(t, leader.endCancelled(t.Context()))
	s := other.sees(t)
	if len(s.WarmUps) > 0 || len(s.EndedWarmUps) != 1 || s.EndedWarmUps[0].Done || s.EndedWarmUps[0].Rows != 7 {
		t.Errorf("%+v", s)
	}
	if err := other.CancelWarmUp(t.Context(), "a"); !errors.Is(err, admin.ErrNoWarmUp) {
		t.Error(err)
	}
}

// Its end is kept, and then it is dropped: in between, who carried it out is killed.
func TestAWarmUpThatHasEndedIsNotBegunAgain(t *testing.T) {
	facts := &doubttest.Memory{}
	leader, heir := member(facts, "g"), member(facts, "g")
	leader.ask(t, "a", 1)
	of, k := leader.first()
	k.rows.Store(7)
	killed := errors.New("killed")
	facts.Fail = func(_ context.Context, op, _ string) error {
		if op == "drop fact" {
			return killed
		}
		return nil
	}
	if err := leader.end(t.Context(), &of, k, true, "7 rows read"); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	facts.Fail = nil
	must(t, heir.endCancelled(t.Context()))
	if _, k := heir.first(); k != nil {
		t.Error("it begins again")
	}
	left, err := facts.FactsUnder(t.Context(), heir.fact())
	must(t, err)
	if e := heir.sees(t).EndedWarmUps; len(left) > 0 || len(e) != 1 || !e[0].Done || e[0].Rows != 7 {
		t.Errorf("%v is left, and it ended as %+v", left, e)
	}
	// So it may be asked for once more.
	heir.ask(t, "a", 2)
	if _, k := heir.first(); k == nil {
		t.Error("it does not begin")
	}
}

// What was begun is kept before it is begun, and a member that cannot keep it, or hears that nobody wants it any more,
// begins nothing.
func TestAWarmUpKeepsWhatItBeginsBeforeItDoes(t *testing.T) {
	facts := &doubttest.Memory{}
	leader, heir := member(facts, "g"), member(facts, "g")
	leader.ask(t, "a", 1)
	of, k := leader.first()
	to, v := walk.Place{Key: []string{"id"}, After: []string{"70"}}, event.Version{Epoch: 1, File: 2, Pos: 30}
	p := &walkRun{walking: leader.walking, walked: k}
	p.done, p.issued = 0, 1
	must(t, p.mayHand(t.Context(), 1, to, v))
	must(t, heir.load(t.Context()))
	_, again := heir.first()
	if !reflect.DeepEqual(again.handed, to) || again.version != v || again.least != v || len(again.from.Key) > 0 {
		t.Errorf("the next member knows of %+v at %s, and waits for %s", again.handed, again.version, again.least)
	}
	failed := errors.New("no disk")
	facts.Fail = func(_ context.Context, op, _ string) error {
		if op == "set fact" {
			return failed
		}
		return nil
	}
	k.hands(walk.Place{Key: []string{"id"}, After: []string{"80"}}, v)
	if err := k.handing(t.Context()); !errors.Is(err, failed) {
		t.Errorf("it cannot be kept: %v", err)
	}
	facts.Fail = nil
	must(t, heir.CancelWarmUp(t.Context(), of.ID))
	if err := k.handing(t.Context()); !errors.Is(err, errDismissed) {
		t.Errorf("it was cancelled: %v", err)
	}
}

// A member that was stopped, and has not heard that the next one has taken over, begins nothing more: its marks may be
// newer than those with which the next one finishes the same keys.
func TestAWarmUpIsBegunByTheMemberAloneThatHasTakenItLast(t *testing.T) {
	facts := &doubttest.Memory{}
	former, heir := member(facts, "g"), member(facts, "g")
	former.life, heir.life = "former", "heir"
	former.ask(t, "a", 1)
	takes := func(w *warming) *walked {
		of, k := w.first()
		must(t, w.take(t.Context(), &of, k))
		return k
	}
	place := func(n string) walk.Place { return walk.Place{Key: []string{"id"}, After: []string{n}} }
	begun := takes(former)
	begun.hands(place("10"), event.Version{Epoch: 1, File: 1, Pos: 9})
	must(t, begun.handing(t.Context()))
	must(t, heir.load(t.Context()))
	next := takes(heir)
	if next.least.Pos != 9 {
		t.Errorf("the next one waits for %s", next.least)
	}
	begun.hands(place("20"), event.Version{Epoch: 1, File: 1, Pos: 50})
	if err := begun.handing(t.Context()); !errors.Is(err, errDismissed) {
		t.Errorf("the former one goes on: %v", err)
	}
	next.hands(place("15"), event.Version{Epoch: 1, File: 1, Pos: 30})
	if err := next.handing(t.Context()); err != nil {
		t.Errorf("the next one does not go on: %v", err)
	}
	must(t, former.load(t.Context()))
	if !reflect.DeepEqual(former.state.Handed, place("15")) {
		t.Errorf("it is kept that %+v may have been begun", former.state.Handed)
	}
}

// Another member may have finished what this one has not heard of yet. Under an older version nothing would be done.
func TestAWalkWaitsForTheMarksThatOthersMayHaveHeard(t *testing.T) {
	heard, version := errors.New("it walks"), event.Version{Epoch: 1, File: 3, Pos: 7}
	for said, want := range map[error]event.Version{nil: version, errors.New("no leader"): {}} {
		var least event.Version
		w := walker(t, func(_ context.Context, p eventlog.Partition) error {
			least = p.(*walkRun).least
			return heard
		})
		w.marked = func(context.Context, string) (event.Version, error) { return version, said }
		k := &walked{Walk: operate.Walk{Schema: "shop", Name: "product", Forget: true}}
		err := w.runWhile(t.Context(), k, func(context.Context) bool { return true })
		var later notYet
		if said == nil && !errors.Is(err, heard) || said != nil && !errors.As(err, &later) || least != want {
			t.Errorf("the brokers say %v: %v, once %s is visible", said, err, least)
		}
	}
}

// A process is killed between the first and the final action of keys, and nobody wants the warm-up any more: older
// changes of these keys rely on that final action. So what was begun is forgotten before the warm-up is over, at a
// version that is no older.
func TestWhatAWarmUpThatIsCancelledHasBegunIsForgotten(t *testing.T) {
	from := walk.Place{Key: []string{"id"}, After: []string{"50"}}
	to, v := walk.Place{Key: []string{"id"}, After: []string{"70"}}, event.Version{Epoch: 1, File: 2, Pos: 30}
	for name, x := range map[string]struct {
		settled bool
		want    int
	}{
		"it was killed":                   {false, 1},
		"all that was begun was finished": {true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			facts, served := &doubttest.Memory{}, 0
			engine := errors.New("the engine is stopped")
			serve := func(_ context.Context, p eventlog.Partition) error {
				served++
				k := p.(*walkRun).walked
				if !k.Forget || !reflect.DeepEqual(k.from, from) || !reflect.DeepEqual(k.until, to) || k.least != v {
					t.Errorf("it forgets: %v, from %+v until %+v at %s", k.Forget, k.from, k.until, k.least)
				}
				if served == 1 {
					return engine
				}
				p.(*walkRun).ended = true
				return nil
			}
			w := &warming{walking: walker(t, serve)}
			w.facts, w.options.Log, w.whose = facts, slog.New(slog.DiscardHandler), "shop"
			w.ask(t, "product", 1)
			of, k := w.first()
			k.done = from
			k.hands(to, v)
			if x.settled {
				k.settle()
			}
			_, err := w.save(t.Context(), &of, k)
			must(t, err)
			must(t, w.CancelWarmUp(t.Context(), of.ID))
			for range x.want {
				must(t, w.endCancelled(t.Context()))
				if all := w.sees(t).WarmUps; len(all) != 1 {
					t.Error("it is over, and what it has begun is not forgotten")
				}
			}
			must(t, w.endCancelled(t.Context()))
			if s := w.sees(t); len(s.WarmUps) > 0 || len(s.EndedWarmUps) != 1 || served != 2*x.want {
				t.Errorf("%d warm-ups are left, %d have ended, %d times keys were forgotten", len(s.WarmUps), len(s.EndedWarmUps),
					served)
			}
		})
	}
}

// The marks of a reader that was started again begin earlier than what was read before it was stopped.
func TestAWalkDoesNotGoBack(t *testing.T) {
	w := walker(t, nil)
	w.newest = func(string) (event.Mark, bool) {
		return event.Mark{Server: "a", Version: event.Version{Epoch: 1, File: 1, Pos: 9}}, true
	}
	p := &walkRun{walking: w, walked: &walked{least: event.Version{Epoch: 1, File: 2}}}
	p.walk = walk.New(walk.Options{Connect: func(context.Context) (walk.Conn, func(), error) {
		return nil, nil, errors.New("it connects")
	}}, walk.Place{})
	if err := p.read(t.Context()); err == nil || !strings.Contains(err.Error(), "has not come as far again") {
		t.Errorf("it reads on: %v", err)
	}
}
