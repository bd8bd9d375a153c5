package app

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
)

// fakeGroup is what a group has committed in one partition, and the end of that.
type fakeGroup struct {
	committed, end int64
	stopped        []error
	err            error
}

// Unfinished implements groupLog.
func (w *waiting) Unfinished(_ context.Context, ends map[int]int64) (left []int, stopped []error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := &w.log
	if g.committed < ends[0] || len(g.stopped) > 0 {
		left = []int{0}
	}
	return left, g.stopped, g.err
}

// waiting is a group that waits for what doubts are about to be finished.
type waiting struct {
	groupLog
	t    *testing.T
	done chan error

	mu   sync.Mutex
	log  fakeGroup
	says string
}

// set changes what the group has.
func (w *waiting) set(f func(*fakeGroup)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.log)
}

// at is a place in the binlog.
func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos} }

// begin begins to wait.
func begin(t *testing.T, log fakeGroup) *waiting {
	w := &waiting{t: t, log: log, done: make(chan error, 1)}
	g := &groupAnswers{
		log: w, group: "g",
		ends: func(context.Context) (map[int]int64, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return map[int]int64{0: w.log.end}, nil
		},
	}
	say := func(until string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.says = until
	}
	go func() { w.done <- g.await(t.Context(), nil, say) }()
	return w
}

// is fails the test unless it waits, and says so in these words; "": it waits no more.
func (w *waiting) is(words string) {
	w.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case err := <-w.done:
		if words != "" || err != nil {
			w.t.Fatalf("it waits no more: %v", err)
		}
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if words == "" || !strings.Contains(w.says, words) {
			w.t.Fatalf("it waits until %q", w.says)
		}
	}
}

func TestAGroupWaitsForWhatTheTopicHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, fakeGroup{committed: 5, end: 7})
		w.is("finished partitions 0")
		w.set(func(g *fakeGroup) { g.end, g.committed = 1000, 6 }) // what comes after need not be waited for
		w.is("finished partitions 0")
		w.set(func(g *fakeGroup) { g.err = errors.New("away") })
		w.is("away")
		w.set(func(g *fakeGroup) { g.err, g.stopped = nil, []error{errors.New("records are lost")} })
		w.is("one is stopped: records are lost")
		w.set(func(g *fakeGroup) { g.stopped, g.committed = nil, 7 })
		w.is("")
	})
}

// The ends of the partitions count only once all before the place is in the topic: what comes between is before it.
func TestAGroupBeginsOnceTheTopicHasAllUpToThePlace(t *testing.T) {
	facts := &doubttest.Memory{}
	g := &groupAnswers{facts: facts}
	due := []doubt.Doubt{{Source: "shop", At: at(90)}, {Source: "shop", At: at(100)}}
	waits := func(want bool) {
		t.Helper()
		if until := g.ready(t.Context(), due); (until != "") != want {
			t.Fatalf("it waits until %q", until)
		}
	}
	logged := func(v event.Version) {
		text, err := json.Marshal(v)
		must(t, err)
		must(t, facts.SetFact(t.Context(), "logged/shop", text))
	}
	waits(true)
	logged(at(99))
	waits(true)
	logged(at(100))
	waits(false)
	due[0].At.Epoch++ // of another server
	waits(true)
	due = []doubt.Doubt{{Source: "shop"}}
	waits(false)
}

func TestAGroupThatIsStoppedWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &waiting{log: fakeGroup{}}
		g := &groupAnswers{log: w, ends: func(context.Context) (map[int]int64, error) { return map[int]int64{0: 1}, nil }}
		done := make(chan error, 1)
		go func() { done <- g.await(ctx, nil, func(string) {}) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// savedAt is a checkpoint that is durable up to a place.
type savedAt struct {
	saved
	pos    uint64
	inHand bool
}

func (s *savedAt) Durable() event.Position {
	return event.Position{Epoch: 1, File: "binlog.000001", Pos: s.pos}
}

func (s *savedAt) Finished() event.Version {
	if s.inHand {
		return event.Version{}
	}
	return at(s.pos)
}

func TestTheReaderSaysHowFarTheTopicIsAsLongAsADoubtWaitsForIt(t *testing.T) {
	p := quiet(t)
	facts, saved := &doubttest.Memory{}, &savedAt{pos: 50}
	book, err := doubt.New(facts, p.alarms, nil)
	must(t, err)
	book.Share(facts, "")
	must(t, book.Load(t.Context()))
	p.doubts, p.facts, p.sharedFacts, p.config.Source.Name = book, facts, facts, "shop"
	away, looked := error(nil), 0
	r := &reading{shared: p.shared, saved: saved, definitions: newDefinitions(facts, "shop", p.options.Log, nil)}
	r.definitions.ask = func(context.Context) ([]*event.Table, error) {
		looked++
		return nil, away
	}
	want := func(words string) {
		t.Helper()
		must(t, r.keepLogged(t.Context()))
		text, err := facts.Fact(t.Context(), "logged/shop")
		must(t, err)
		var v event.Version
		if text != nil {
			must(t, json.Unmarshal(text, &v))
		}
		if v.String() != words {
			t.Fatalf("it says %s, want %s", v, words)
		}
	}
	want("0/0/0/0")
	must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.TruncatedTable, Source: "shop", At: at(100)}))
	want("1/1/50/0")
	saved.pos = 120
	away = errors.New("the source is away")
	if err := r.keepLogged(t.Context()); !errors.Is(err, away) {
		t.Fatal(err)
	}
	away, looked = nil, 0
	want("1/1/120/0")
	if looked != 1 {
		t.Fatal("it has not looked at the tables")
	}
	saved.pos = 140 // nobody waits for it
	want("1/1/120/0")
	saved.inHand = true // of before a gap
	must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.BinlogGap, Source: "shop", At: at(130)}))
	want("1/1/120/0")
	saved.inHand = false
	want("1/1/140/0")
}

func TestEachSourcesDoubtsAreAnsweredOnTheirOwn(t *testing.T) {
	book, err := doubt.New(nil, nil, nil)
	must(t, err)
	for _, source := range []string{"shop", "blog", ""} {
		must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.ByHand, Source: source}))
		must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.MappingsChanged, Source: source})) // if it is asked
	}
	g := &groupAnswers{answering: &answering{doubts: book}}
	for _, source := range []string{"shop", "blog", ""} {
		due := g.of(source).due()
		if len(due) != 1 || due[0].Source != source || due[0].Cause != alarm.ByHand {
			t.Errorf("of %q are due: %+v", source, due)
		}
	}
}

func TestPartitionsAreListedShortly(t *testing.T) {
	if is := numbers([]int{1, 2}); is != "1, 2" {
		t.Error(is)
	}
	if is := numbers(slices.Repeat([]int{7}, 11)); is != strings.Repeat("7, ", 10)+"…" {
		t.Error(is)
	}
}
