package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/doubt/doubttest"
)

// member returns what one member of a group knows of warm-ups.
func member(facts *doubttest.Memory, group string) *warming {
	return &warming{walking: &walking{
		shared: &shared{facts: facts, options: Options{Log: slog.New(slog.DiscardHandler)}}, whose: group, group: group,
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
	if of != task || resumed.from.After[0] != "50" || resumed.rows.Load() != 70 || resumed.reached().After[0] != "50" {
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
