package doubt_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
)

func TestHowDoubtsEndedIsRemembered(t *testing.T) {
	b, _ := open(t, &doubttest.Memory{})
	for i := range 12 {
		d := truncated(fmt.Sprintf("shop.t%d", i)).Named()
		must(t, b.Record(t.Context(), d))
		b.Say(d.ID, "first of two passes")
		if i == 11 {
			must(t, b.Dismiss(t.Context(), d.ID, time.Time{}))
		} else {
			must(t, b.Answered(t.Context(), d.ID, time.Time{}, "3 keys forgotten"))
		}
	}
	ended := b.Ended()
	if len(ended) != 10 || ended[0].Tables[0] != "shop.t11" || ended[9].Tables[0] != "shop.t2" {
		t.Fatalf("%d: %+v", len(ended), ended)
	}
	if e := ended[0]; e.How != doubt.HowDismissed || e.Answer != "first of two passes" || e.Ended.Before(e.Since) {
		t.Errorf("%+v", e)
	}
	if e := ended[1]; e.How != doubt.HowAnswered || e.Answer != "3 keys forgotten" {
		t.Errorf("%+v", e)
	}
	if err := b.Dismiss(t.Context(), ended[0].ID, time.Time{}); err == nil || len(b.Ended()) != 10 {
		t.Errorf("%v, %+v", err, b.Ended())
	}
}

func TestEachDoubtThatEndedWithManyOthersSaysHow(t *testing.T) {
	b, _ := open(t, &doubttest.Memory{})
	var ids []string
	for i := range 100 {
		d := truncated(fmt.Sprintf("shop.t%d", i)).Named()
		ids = append(ids, d.ID)
		must(t, b.Record(t.Context(), d))
		must(t, b.Answered(t.Context(), d.ID, time.Time{}, "3 keys forgotten"))
	}
	for _, id := range ids {
		if e, err := b.Ending(t.Context(), id); err != nil || e.How != doubt.HowAnswered {
			t.Fatalf("%s: %+v, %v", id, e, err)
		}
	}
	must(t, b.Record(t.Context(), truncated("shop.t0")))
	must(t, b.Dismiss(t.Context(), ids[0], time.Time{}))
	if e, err := b.Ending(t.Context(), ids[0]); err != nil || e.How != doubt.HowDismissed {
		t.Errorf("after it came again and was dismissed: %+v, %v", e, err)
	}
	if _, err := b.Ending(t.Context(), "x"); !errors.Is(err, doubt.ErrUnknown) {
		t.Error(err)
	}
}

// Any invalidator of a group may be asked, and any reader: also one that has not seen to the doubt, or was restarted.
func TestHowADoubtEndedIsKnownInOtherProcesses(t *testing.T) {
	g := newGroups(t)
	id := g.eu.List()[0].ID
	last := g.eu.List()[0].Last
	must(t, g.eu.Answered(t.Context(), id, last, "3 keys forgotten"))
	must(t, g.us.Dismiss(t.Context(), id, last))
	for group, want := range map[string]string{"eu": doubt.HowAnswered, "us": doubt.HowDismissed, "": doubt.HowDismissed} {
		if e, err := member(t, g.Memory, group).Ending(t.Context(), id); err != nil || e.How != want || !e.Last.Equal(last) {
			t.Errorf("group %q: %+v, %v; want %s", group, e, err, want)
		}
	}
	if e, err := member(t, g.Memory, "eu").Ending(t.Context(), id); err != nil || e.Answer != "3 keys forgotten" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := member(t, g.Memory, "ap").Ending(t.Context(), id); !errors.Is(err, doubt.ErrUnknown) {
		t.Errorf("a group that has not settled it: %v", err)
	}

	// A reader dismisses for all groups.
	must(t, g.reader.Record(t.Context(), placed("shop.other")))
	g.load(t)
	id = g.eu.List()[0].ID
	must(t, g.reader.Dismiss(t.Context(), id, time.Time{}))
	if e, err := g.eu.Ending(t.Context(), id); err != nil || e.How != doubt.HowDismissed {
		t.Errorf("%+v, %v", e, err)
	}
}

// The doubt has come again since, which the process that is asked has not heard of yet: it is not over.
func TestADoubtThatHasComeAgainInAnotherProcessHasNotEnded(t *testing.T) {
	g := newGroups(t)
	d := truncated("shop.by_hand")
	d.Source, d.Group = "", "eu"
	d = d.Named()
	must(t, g.eu.Record(t.Context(), d))
	must(t, g.eu.Answered(t.Context(), d.ID, time.Time{}, "3 keys forgotten"))
	other := member(t, g.Memory, "eu")
	must(t, g.eu.Record(t.Context(), d))
	if e, err := other.Ending(t.Context(), d.ID); err == nil || errors.Is(err, doubt.ErrUnknown) {
		t.Errorf("%+v, %v", e, err)
	}
	must(t, g.eu.Answered(t.Context(), d.ID, time.Time{}, "no keys forgotten"))
	if e, err := other.Ending(t.Context(), d.ID); err != nil || e.Answer != "no keys forgotten" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestOnlySoMuchIsKeptOfDoubtsThatEnded(t *testing.T) {
	m := &doubttest.Memory{}
	eu, us := member(t, m, "eu"), member(t, m, "us")
	for i := range 210 {
		for _, b := range []*doubt.Book{eu, us} {
			d := truncated(fmt.Sprintf("shop.t%d", i))
			d.Source, d.Group = "", "eu"
			if b == us {
				d.Group = "us"
			}
			d = d.Named()
			must(t, b.Record(t.Context(), d))
			must(t, b.Answered(t.Context(), d.ID, time.Time{}, "3 keys forgotten"))
		}
	}
	if all, err := m.FactsUnder(t.Context(), "ended/"); err != nil || len(all) != 400 {
		t.Errorf("%d, %v", len(all), err)
	}
}
