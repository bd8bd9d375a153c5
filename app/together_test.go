package app

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/eventlog/kafka"
)

// newTogether is a group of which this process leads, on the Redis that is called here.
func newTogether(t *testing.T) (g *groupAnswers, log *askedGroup) {
	t.Helper()
	book, err := doubt.New(&doubttest.Memory{}, nil, nil)
	must(t, err)
	must(t, book.Load(t.Context()))
	log = &askedGroup{on: map[string]string{"t/0": "here", "t/1": "there"}}
	g = &groupAnswers{log: log, group: "g", redis: "redis:6379", on: func() string { return "here" }}
	g.answering = &answering{doubts: book, together: g.together, log: slog.New(slog.DiscardHandler)}
	return g, log
}

func TestADoubtAboutRedisEndsOnceAllInvalidatorsWorkOnTheSame(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, g *groupAnswers, log *askedGroup, d doubt.Doubt){
		"they do": func(_ *testing.T, _ *groupAnswers, log *askedGroup, _ doubt.Doubt) { log.workOn("t/1", "here") },
		"it comes again": func(t *testing.T, g *groupAnswers, _ *askedGroup, d doubt.Doubt) {
			must(t, g.doubts.Record(t.Context(), d))
		},
		"it is dismissed": func(t *testing.T, g *groupAnswers, _ *askedGroup, d doubt.Doubt) {
			must(t, g.doubts.Dismiss(t.Context(), d.ID, time.Time{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, log := newTogether(t)
				must(t, g.doubts.Record(t.Context(), doubt.Doubt{Cause: alarm.RedisChanged, Group: "g", From: "x"}))
				d := g.doubts.List()[0]
				done := make(chan error, 1)
				go func() { done <- g.dismiss(t.Context(), &d, "done") }()
				time.Sleep(time.Hour)
				synctest.Wait()
				const waits = "the invalidator that has partition t/1"
				if is := g.doubts.List(); len(is) != 1 || !strings.Contains(is[0].Answer, waits) {
					t.Fatalf("%+v", is)
				}
				end(t, g, log, d)
				must(t, <-done)
				if n := len(g.doubts.List()); n != 0 && name != "it comes again" {
					t.Errorf("%d doubts are left", n)
				}
			})
		})
	}
}

// Each Redis gets a part of the deletes then.
func TestTwoInvalidatorsOfAGroupOnTwoRedisAreADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newTogether(t)
		look := func(after time.Duration, doubts, times int) {
			t.Helper()
			time.Sleep(after)
			at, _ := log.Reached(t.Context())
			g.elsewhere(&at)
			must(t, g.recordSplit(t.Context()))
			list := g.doubts.List()
			if len(list) != doubts {
				t.Fatalf("%+v", list)
			}
			if doubts > 0 && (list[0].Cause != alarm.RedisSplit || list[0].Group != "g" || int(list[0].Count) != times) {
				t.Fatalf("%+v", list[0])
			}
		}
		look(0, 0, 0)
		look(splitAfter-time.Second, 0, 0)
		log.workOn("t/1", "here") // it has come to ours, as at a failover
		look(time.Second, 0, 0)
		log.workOn("t/1", "there")
		look(time.Second, 0, 0)
		log.workOn("t/1", "here.there") // a node was added to a cluster
		look(splitAfter, 0, 0)
		log.workOn("t/1", "there")
		look(0, 0, 0)
		look(splitAfter, 1, 1)
		look(splitAgain-time.Second, 1, 1)
		look(time.Second, 1, 2)
	})
}

func TestAPlaceSaysWhoIsElsewhere(t *testing.T) {
	p := kafka.Place{On: map[string]string{"t/0": "a", "t/1": "b"}}
	for on, want := range map[string]string{"": "", "a": "t/1", "b": "t/0", "c": "t/0"} {
		if got, _ := p.Elsewhere(on); got != want {
			t.Errorf("on %q: %q, want %q", on, got, want)
		}
	}
}
