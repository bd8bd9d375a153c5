package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/retry"
)

// truncated is a doubt about a table of a source.
func truncated(table string, last time.Time) doubt.Doubt {
	return doubt.Doubt{Cause: alarm.TruncatedTable, Source: "shop", Tables: []string{table}, Last: last}.Named()
}

func TestWhatWasAnsweredSinceIsKnown(t *testing.T) {
	trail := &trail{facts: &doubttest.Memory{}, group: "g"}
	start := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	add := func(d doubt.Doubt) { must(t, trail.add(t.Context(), &d)) }
	is := func(what string, got []doubt.Doubt, err error, want ...string) {
		t.Helper()
		must(t, err)
		var tables []string
		for _, d := range got {
			tables = append(tables, d.Tables...)
		}
		if fmt.Sprint(tables) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, tables, want)
		}
	}
	all, err := trail.after(t.Context(), 0)
	is("nothing", all, err)
	add(truncated("a", start))
	add(truncated("b", start.Add(time.Minute)))
	add(truncated("a", start.Add(2*time.Minute))) // again
	add(doubt.Doubt{Cause: alarm.RedisChanged, Group: "g"})
	again := truncated("a", start)
	again.Group = "g"
	add(again)
	for number, want := range map[uint64][]string{0: {"b", "a"}, 1: {"b", "a"}, 2: {"a"}, 3: nil} {
		all, err = trail.after(t.Context(), number)
		is(fmt.Sprint("after ", number), all, err, want...)
	}
	all, err = trail.since(t.Context(), start.Add(2*time.Minute))
	is("since", all, err, "a")
	if _, err = trail.after(t.Context(), 4); !errors.Is(err, errNotInLog) {
		t.Errorf("of a trail that was lost: %v", err)
	}
	for i := range maxGiven {
		add(truncated(fmt.Sprint("t", i), start.Add(time.Hour)))
	}
	for _, number := range []uint64{1, 2} {
		if _, err = trail.after(t.Context(), number); !errors.Is(err, errNotInLog) {
			t.Errorf("after %d, which is left out: %v", number, err)
		}
	}
	if all, err = trail.after(t.Context(), 3); err != nil || len(all) != maxGiven {
		t.Errorf("%d, %v", len(all), err)
	}
	if _, err = trail.since(t.Context(), start.Add(2*time.Minute)); !errors.Is(err, errNotInLog) {
		t.Errorf("since a time of what is left out: %v", err)
	}
	wide := truncated("wide", start.Add(time.Hour))
	wide.Message = strings.Repeat("x", maxTrail)
	add(wide) // nothing can be kept of it, and that is known
	if _, err = trail.after(t.Context(), 3+maxGiven); !errors.Is(err, errNotInLog) {
		t.Error(err)
	}
}

// A crash between the two leads to one answer more, never to one less.
func TestAnAnswerIsKeptBeforeItsDoubtEnds(t *testing.T) {
	facts := &doubttest.Memory{}
	book, err := doubt.New(facts, nil, nil)
	must(t, err)
	must(t, book.Load(t.Context()))
	must(t, book.Record(t.Context(), truncated("a", time.Time{})))
	a := &answering{doubts: book, given: &trail{facts: facts, group: "g"}, log: slog.New(slog.DiscardHandler)}
	var order []string
	facts.After = func(_ context.Context, op, _ string) error {
		order = append(order, op)
		return nil
	}
	d := book.List()[0]
	must(t, a.dismiss(t.Context(), &d, "done"))
	if want := "[list fact set fact drop]"; fmt.Sprint(order) != want {
		t.Errorf("%v, want %s", order, want)
	}
}

// stopped is a keeper that has not read yet what others have written.
type stopped struct {
	*doubttest.Memory
	unread func()
}

// Follow implements doubt.Follower.
func (*stopped) Follow(context.Context, func()) {}

// CatchUp implements doubt.Follower.
func (s *stopped) CatchUp(context.Context) error {
	s.unread()
	return nil
}

// A member that is stopped while it answers goes on where the next one has answered others meanwhile. What that has
// taken note of stays: a Redis that comes back with older data has it answered again.
func TestAMemberThatWasStoppedTakesNoAnswersOfTheNextOneAway(t *testing.T) {
	k := &stopped{Memory: &doubttest.Memory{}, unread: func() {}}
	book, err := doubt.New(k, nil, nil)
	must(t, err)
	must(t, book.Load(t.Context()))
	must(t, book.Record(t.Context(), truncated("a", time.Time{})))
	trail := &trail{facts: k, group: "g"}
	a := &answering{doubts: book, given: trail, log: slog.New(slog.DiscardHandler)}
	k.unread = func() {
		k.unread = func() {}
		others := truncated("b", time.Now())
		must(t, trail.add(t.Context(), &others))
	}
	d := book.List()[0]
	must(t, a.dismiss(t.Context(), &d, "done"))
	all, err := trail.after(t.Context(), 0)
	if err != nil || len(all) != 2 {
		t.Errorf("the answers are %+v, %v", all, err)
	}
}

// askedGroup is what the brokers say of a group.
type askedGroup struct {
	groupLog
	offset int64
	parked bool
	// on says on which Redis partitions were worked on last.
	mu sync.Mutex
	on map[string]string
	// asked is what was asked for, in its order.
	asked []string
}

// Reached implements groupLog.
func (g *askedGroup) Reached(context.Context) (kafka.Place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, "reached")
	return kafka.Place{Partitions: map[int]consumer.Reached{0: {Offset: g.offset}}, On: maps.Clone(g.on)}, nil
}

// workOn says on which Redis a partition was worked on last.
func (g *askedGroup) workOn(partition, redis string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on[partition] = redis
}

// Parked implements groupLog.
func (g *askedGroup) Parked(context.Context) (bool, error) {
	g.asked = append(g.asked, "parked")
	return g.parked, nil
}

func TestTheGroupsPlaceIsKnownOnceNothingBeforeItIsLeft(t *testing.T) {
	facts := &doubttest.Memory{}
	book, err := doubt.New(facts, nil, nil)
	must(t, err)
	must(t, book.Load(t.Context()))
	log, held := &askedGroup{}, retry.Held{Counted: true}
	g := &groupAnswers{
		log: log, group: "g", on: func() string { return "here" },
		answering: &answering{
			doubts: book, given: &trail{facts: facts, group: "g"}, log: slog.New(slog.DiscardHandler),
			held: func() (retry.Held, error) { return held, nil },
		},
	}
	g.leads.Store(true)
	ask := func(asked string) (is string) {
		t.Helper()
		log.asked = nil
		s, err := g.askSettled(t.Context(), g.settled.Load())
		must(t, err)
		g.settled.Store(s)
		if strings.Join(log.asked, " ") != asked {
			t.Errorf("asked for %v, want %s", log.asked, asked)
		}
		text, ok := g.place()
		if ok != (s != nil) {
			t.Errorf("%q, %v", text, ok)
		}
		return text
	}
	log.parked = true
	if is := ask("reached parked"); is != "" {
		t.Error("a key is parked: ", is)
	}
	log.parked = false
	for _, held = range []retry.Held{{}, {Counted: true, Parked: 1}, {Counted: true, DeadLetters: 1}} {
		if is := ask("reached parked"); is != "" {
			t.Errorf("%+v: %s", held, is)
		}
	}
	held = retry.Held{Counted: true}
	d := truncated("a", time.Time{})
	must(t, book.Record(t.Context(), d))
	if is := ask("reached parked"); is != "" {
		t.Error("a doubt is open: ", is)
	}
	d = book.List()[0]
	book.Stuck(d, "for an operator")
	if is := ask("reached parked"); is != `{"partitions":{"0":{"offset":0}}}` {
		t.Error("a doubt is stuck: ", is)
	}
	if is := ask("reached"); is != `{"partitions":{"0":{"offset":0}}}` {
		t.Error("nothing has happened: ", is)
	}
	must(t, g.dismiss(t.Context(), &d, "done"))
	log.offset = 5
	if is := ask("reached parked"); is != `{"partitions":{"0":{"offset":5}},"answered":1}` {
		t.Error("it was answered: ", is)
	}
	must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.RedisChanged, Group: "g", From: "x"}))
	if text, ok := g.place(); ok {
		t.Error("redis has just come back with older data: ", text)
	}
	must(t, book.Dismiss(t.Context(), book.List()[0].ID, time.Time{}))
	if _, ok := g.place(); !ok {
		t.Error("no place")
	}
	// Another member is still on the former Redis: what it has finished, this one lacks.
	log.offset, log.on = 6, map[string]string{"t/0": "here", "t/1": "there"}
	if is := ask("reached"); is != "" || g.late() != "t/1" {
		t.Errorf("a stamp says %q, late is %q", is, g.late())
	}
	log.workOn("t/1", "here")
	if is := ask("reached parked"); is != `{"partitions":{"0":{"offset":6}},"answered":1}` || g.late() != "" {
		t.Errorf("a stamp says %q, late is %q", is, g.late())
	}
	g.leads.Store(false)
	if text, ok := g.place(); ok {
		t.Error("another one leads: ", text)
	}
}
