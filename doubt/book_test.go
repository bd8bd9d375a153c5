package doubt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a book over k, and its alarms. It runs until the test ends.
func open(t *testing.T, k doubt.Keeper) (*doubt.Book, *alarm.Board) {
	t.Helper()
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	b, err := doubt.New(k, alarms, nil)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	must(t, b.Load(t.Context()))
	return b, alarms
}

func truncated(table string) doubt.Doubt {
	return doubt.Doubt{
		Cause: alarm.TruncatedTable, Source: "shop", Tables: []string{table}, Message: "TRUNCATE of " + table +
			": clear its keys",
	}
}

func TestTheMemoryKeeperIsAKeeper(t *testing.T) {
	doubttest.Run(t, func(*testing.T) doubttest.Rig {
		m := &doubttest.Memory{}
		return doubttest.Rig{
			Open:  func(*testing.T) doubttest.Keeper { return m },
			Crash: func(*testing.T, doubttest.Keeper) {},
		}
	})
}

func TestADoubtOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, alarms := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.product")))
		was := b.List()
		if len(was) != 1 || was[0].Count != 1 || was[0].ID == "" || len(alarms.Records()) != 1 {
			t.Fatalf("%+v, alarms %+v", was, alarms.Records())
		}
		again, _ := open(t, m)
		if is := again.List(); len(is) != 1 || is[0].ID != was[0].ID || !is[0].Since.Equal(was[0].Since) {
			t.Fatalf("after a restart: %+v", is)
		}
	})
}

// How far changes were done again is kept for the Last that there was: it must not outlive a kill.
func TestADoubtThatSaysFromWhereIsDurableEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		d := doubt.Doubt{Cause: alarm.RedisChanged, Source: "shop", From: "a"}
		for range 2 {
			must(t, b.Record(t.Context(), d))
		}
		was := b.List()[0]
		b, _ = open(t, m) // killed
		if is := b.List(); len(is) != 1 || !is[0].Last.Equal(was.Last) {
			t.Fatalf("%+v, want %+v", is, was)
		}
	})
}

func TestTheSameTroubleAfterAReplayIsTheSameDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		d := truncated("shop.a")
		d.Tables = []string{"shop.b", "shop.a", "shop.b"}
		must(t, b.Record(t.Context(), d))
		first := b.List()[0]
		b, _ = open(t, m) // killed before the position was saved
		time.Sleep(time.Hour)
		d.Tables, d.Message = []string{"shop.a", "shop.b"}, "in other words"
		must(t, b.Record(t.Context(), d))
		is := b.List()
		if len(is) != 1 || is[0].ID != first.ID || is[0].Count != 2 || !is[0].Since.Equal(first.Since) ||
			is[0].Last.Sub(first.Last) != time.Hour {
			t.Fatalf("%+v", is)
		}
		for _, other := range []func(*doubt.Doubt){
			func(d *doubt.Doubt) { d.Tables = []string{"shop.a"} },
			func(d *doubt.Doubt) { d.Cause = alarm.StatementLogged },
			func(d *doubt.Doubt) { d.Source = "crm" },
			func(d *doubt.Doubt) { d.Source, d.Group = "", "shop" },
			func(d *doubt.Doubt) { d.Subject = "10.0.0.3" },
			func(d *doubt.Doubt) { d.Schemas = []string{"shop"} },
			func(d *doubt.Doubt) { d.Tables, d.Schemas = nil, []string{"shop.a", "shop.b"} },
		} {
			o := d
			other(&o)
			must(t, b.Record(t.Context(), o))
		}
		if n := len(b.List()); n != 8 || len(m.IDs()) != 8 {
			t.Fatalf("%d doubts, %d kept", n, len(m.IDs()))
		}
	})
}

func TestRecordReturnsWhenTheDoubtIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ok atomic.Bool
		lost := true
		m := &doubttest.Memory{
			Fail: func(_ context.Context, op, _ string) error {
				if op == "put" && !ok.Load() {
					return errors.New("the disk is full")
				}
				return nil
			},
			After: func(_ context.Context, op, _ string) error {
				if op == "put" && lost {
					lost = false
					return errors.New("the reply was lost")
				}
				return nil
			},
		}
		b, alarms := open(t, m)
		done := make(chan error, 1)
		go func() { done <- b.Record(context.Background(), truncated("shop.a")) }()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatal("it returned before", err)
		default:
		}
		if l := b.List(); len(l) != 1 {
			t.Fatalf("the status says so at once: %+v", l)
		}
		if r := alarms.Records(); len(r) != 2 || r[1].Kind != alarm.StoreFailed ||
			!strings.Contains(r[1].Message, "the disk is full") {
			t.Fatalf("alarms %+v", r)
		}
		ok.Store(true)
		must(t, <-done)
		if len(m.IDs()) != 1 || lost {
			t.Fatal("it is not kept")
		}
	})
}

func TestRecordGivesUpOnlyWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
			if op == "put" {
				return errors.New("no")
			}
			return nil
		}}
		b, _ := open(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := b.Record(ctx, truncated("shop.a")); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != time.Hour {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

func TestWhoInsistsOnAnAnswerAsksUntilThatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		m.Fail = func(_ context.Context, op, _ string) error {
			if op == "put" && refused < 3 {
				refused++
				return errors.New("not the leader for the partition")
			}
			return nil
		}
		id := b.List()[0].ID
		must(t, b.Insist(t.Context(), id))
		kept, err := m.Doubts(t.Context())
		must(t, err)
		if refused != 3 || len(kept) != 1 || !kept[0].Asked {
			t.Errorf("refused %d times, kept %+v", refused, kept)
		}
		must(t, b.Dismiss(t.Context(), id, time.Time{}))
		must(t, b.Insist(t.Context(), id))
	})
}

func TestADoubtThatIsRecordedBeforeTheBookIsLoadedJoinsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		must(t, b.Record(t.Context(), truncated("shop.b")))
		since := b.List()[0].Since
		time.Sleep(time.Hour)
		b, err := doubt.New(m, nil, nil)
		must(t, err)
		if b.Loaded() {
			t.Fatal("it does not know what is kept")
		}
		must(t, b.Record(t.Context(), truncated("shop.a")))
		l := b.List()
		if !b.Loaded() || len(l) != 2 || !l[0].Since.Equal(since) || !l[1].Since.Equal(since) || l[0].Count+l[1].Count != 3 {
			t.Fatalf("%+v", l)
		}
	})
}

func TestManyDoubtsOfACauseAreToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		for i := range 1000 {
			must(t, b.Record(t.Context(), truncated(fmt.Sprintf("shop.t%04d", i))))
		}
		must(t, b.Record(t.Context(), doubt.Doubt{Cause: alarm.StatementLogged, Source: "shop", Message: "another cause"}))
		l := b.List()
		if len(l) != 202 || len(m.IDs()) != 202 {
			t.Fatalf("%d doubts, %d kept", len(l), len(m.IDs()))
		}
		all := 0
		for _, d := range l {
			if d.Cause == alarm.TruncatedTable && len(d.Tables) == 0 && d.Count == 800 {
				all++
			}
		}
		if all != 1 {
			t.Fatalf("%d of them are about every table", all)
		}
		must(t, b.Record(t.Context(), truncated("shop.t0000"))) // one that is known is still itself
		if n := len(b.List()); n != 202 {
			t.Fatal(n)
		}
		b, _ = open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.t9999")))
		if n := len(b.List()); n != 202 {
			t.Fatalf("%d after a restart", n)
		}
	})
}

// A DROP DATABASE was recorded as if the schema were a table.
func TestASchemaThatAnEarlierVersionKeptAmongTheTablesIsOne(t *testing.T) {
	m := &doubttest.Memory{}
	for i, d := range []doubt.Doubt{
		{Tables: []string{"shop"}, Message: "drop schema of table shop: its rows went without row events"},
		{Tables: []string{"my.shop"}, Message: "drop schema of table my.shop: its rows went without row events"},
		{Tables: []string{"my.shop", "my.store"}, Message: "rename of table my.shop to my.store: its rows went"},
		{Schemas: []string{"my.shop"}, Message: "drop of schema my.shop: its rows went without row events"},
	} {
		d.ID, d.Cause, d.Count, d.Since = fmt.Sprint(i), alarm.TruncatedTable, 1, time.Unix(int64(i), 0)
		must(t, m.PutDoubt(t.Context(), d))
	}
	b, _ := open(t, m)
	var got []string
	for _, d := range b.List() {
		got = append(got, fmt.Sprint(d.ID, d.Tables, d.Schemas))
	}
	if want := "0[] [shop] 1[] [my.shop] 2[my.shop my.store] [] 3[] [my.shop]"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	must(t, b.Dismiss(t.Context(), "0", time.Time{}))
	if kept, err := m.Doubts(t.Context()); err != nil || len(kept) != 3 {
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestOneDoubtIsBounded(t *testing.T) {
	b, _ := open(t, nil)
	d := truncated("shop.a")
	d.Message = strings.Repeat("ü", 1<<20)
	d.Tables = nil
	for i := range 100_000 {
		d.Tables, d.Schemas = append(d.Tables, fmt.Sprint("shop.t", i)), append(d.Schemas, fmt.Sprint("shop", i))
	}
	must(t, b.Record(t.Context(), d))
	if l := b.List()[0]; len(l.Message) > 5000 || !l.EveryTable() || !strings.HasSuffix(l.Message, "ü…") {
		t.Fatalf("%d bytes, %d tables", len(l.Message), len(l.Tables)+len(l.Schemas))
	}
}

func TestARepeatIsCountedAndKeptALittleLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var puts atomic.Int64
		m := &doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
			if op == "put" {
				puts.Add(1)
			}
			return nil
		}}
		b, _ := open(t, m)
		for range 1000 {
			must(t, b.Record(t.Context(), truncated("shop.a")))
		}
		if puts.Load() != 1 {
			t.Fatalf("%d puts", puts.Load())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		kept, err := m.Doubts(t.Context())
		must(t, err)
		if puts.Load() != 2 || len(kept) != 1 || kept[0].Count != 1000 {
			t.Fatalf("%d puts, kept %+v", puts.Load(), kept)
		}
	})
}

func TestADismissedDoubtIsGoneForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		for range 3 {
			must(t, b.Record(t.Context(), truncated("shop.a")))
		}
		id := b.List()[0].ID
		must(t, b.Dismiss(t.Context(), id, b.List()[0].Last))
		time.Sleep(time.Minute) // the repeats that were to be put are not
		synctest.Wait()
		if len(b.List()) > 0 || len(m.IDs()) > 0 {
			t.Fatalf("%+v, kept %v", b.List(), m.IDs())
		}
		if err := b.Dismiss(t.Context(), id, time.Time{}); !errors.Is(err, doubt.ErrUnknown) {
			t.Fatal(err)
		}
		must(t, b.Record(t.Context(), truncated("shop.a")))
		if l := b.List(); len(l) != 1 || l[0].Count != 1 || len(m.IDs()) != 1 {
			t.Fatalf("when it comes again it is a new one: %+v", l)
		}
	})
}

func TestADoubtThatCannotBeDroppedStays(t *testing.T) {
	m := &doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
		if op == "drop" {
			return errors.New("the disk is gone")
		}
		return nil
	}}
	b, _ := open(t, m)
	must(t, b.Record(t.Context(), truncated("shop.a")))
	err := b.Dismiss(t.Context(), b.List()[0].ID, time.Time{})
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") || len(b.List()) != 1 {
		t.Fatalf("%v, %+v", err, b.List())
	}
}

func TestADismissalDoesNotTakeWhatCameAfterItWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := open(t, &doubttest.Memory{})
		must(t, b.Record(t.Context(), truncated("shop.a")))
		seen := b.List()[0]
		time.Sleep(time.Millisecond)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		if err := b.Dismiss(t.Context(), seen.ID, seen.Last); !errors.Is(err, doubt.ErrCameAgain) || len(b.List()) != 1 {
			t.Fatalf("%v, %+v", err, b.List())
		}
		must(t, b.Dismiss(t.Context(), seen.ID, b.List()[0].Last))
	})
}

// It comes again between the keeper's dropping it and its reply.
func TestADoubtThatComesAgainWhileItIsDismissedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropping, drop := make(chan struct{}), make(chan struct{})
		m := &doubttest.Memory{After: func(_ context.Context, op, _ string) error {
			if op == "drop" {
				close(dropping)
				<-drop
			}
			return nil
		}}
		b, _ := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		done := make(chan error, 1)
		go func() { done <- b.Dismiss(context.Background(), b.List()[0].ID, time.Time{}) }()
		<-dropping
		recorded := make(chan error, 1)
		go func() { recorded <- b.Record(context.Background(), truncated("shop.a")) }()
		synctest.Wait()
		if len(recorded) > 0 {
			t.Error("it counts as kept within a second of the last time, but that is being dropped")
		}
		close(drop)
		must(t, <-recorded)
		must(t, <-done)
		if l := b.List(); len(l) != 1 || l[0].Count != 1 || len(m.IDs()) != 1 {
			t.Fatalf("%+v, kept %v", l, m.IDs())
		}
	})
}

// It is put, by a recorder that waits for it, while it is being dismissed.
func TestADoubtThatIsBeingPutWhenItIsDismissedIsEitherKeptOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		putting, put := make(chan struct{}), make(chan struct{})
		hold := false
		m := &doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
			if op == "put" && hold {
				hold = false
				close(putting)
				<-put
			}
			return nil
		}}
		b, _ := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		seen := b.List()[0]
		time.Sleep(time.Minute)
		hold = true
		recorded, dismissed := make(chan error, 1), make(chan error, 1)
		go func() { recorded <- b.Record(context.Background(), truncated("shop.a")) }()
		<-putting
		go func() { dismissed <- b.Dismiss(context.Background(), seen.ID, time.Time{}) }()
		synctest.Wait()
		close(put)
		must(t, <-recorded)
		must(t, <-dismissed)
		if len(b.List()) != len(m.IDs()) {
			t.Fatalf("%+v, kept %v", b.List(), m.IDs())
		}
	})
}

func TestEachProcessSeesWhatOthersRecordAndDismiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		here := doubttest.Shared{Memory: m, Changes: make(chan struct{}, 10)}
		there := doubttest.Shared{Memory: m, Changes: make(chan struct{}, 10)}
		a, _ := open(t, here)
		b, _ := open(t, there)
		tell := func() {
			here.Changes <- struct{}{}
			there.Changes <- struct{}{}
			synctest.Wait()
		}
		must(t, a.Record(t.Context(), truncated("shop.a")))
		tell()
		if l := b.List(); len(l) != 1 {
			t.Fatalf("%+v", l)
		}
		time.Sleep(time.Hour)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		tell()
		if x, y := a.List(), b.List(); x[0].Count != 2 || y[0].Count != 2 || !x[0].Since.Equal(y[0].Since) {
			t.Fatalf("%+v\n%+v", x, y)
		}
		must(t, b.Dismiss(t.Context(), b.List()[0].ID, time.Time{}))
		tell()
		if l := a.List(); len(l) > 0 || len(m.IDs()) > 0 {
			t.Fatalf("%+v", l)
		}
	})
}

func TestADismissalByAnotherProcessDoesNotTakeARepeatThatItDidNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		here := doubttest.Shared{Memory: m, Changes: make(chan struct{}, 10)}
		a, _ := open(t, here)
		b, _ := open(t, doubttest.Shared{Memory: m})
		must(t, a.Record(t.Context(), truncated("shop.a")))
		must(t, b.Load(t.Context()))
		time.Sleep(time.Millisecond)
		must(t, a.Record(t.Context(), truncated("shop.a"))) // in memory only, so far
		must(t, b.Dismiss(t.Context(), b.List()[0].ID, b.List()[0].Last))
		here.Changes <- struct{}{}
		synctest.Wait()
		if l := a.List(); len(l) != 1 || l[0].Count != 1 {
			t.Fatalf("%+v", l)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(m.IDs()) != 1 {
			t.Fatal("it is not kept")
		}
	})
}

func TestTheMetricCountsDoubtsByCause(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := &doubttest.Memory{}
	must(t, m.PutDoubt(t.Context(), doubt.Doubt{ID: "1", Cause: "of_a_newer_version"}))
	b, err := doubt.New(m, nil, reg)
	must(t, err)
	must(t, b.Load(t.Context()))
	must(t, b.Record(t.Context(), truncated("shop.a")))
	must(t, b.Record(t.Context(), truncated("shop.b")))
	for cause, want := range map[string]string{"table_truncated": "2", "statement_logged": "0", "other": "1"} {
		if text := gather(t, reg); !strings.Contains(text, fmt.Sprintf("%s=%s\n", cause, want)) {
			t.Errorf("want %s=%s in\n%s", cause, want, text)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
}

func gather(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			fmt.Fprintf(&out, "%s=%v\n", m.Label[0].GetValue(), m.Gauge.GetValue())
		}
	}
	return out.String()
}

func TestEveryCauseIsAKindOfAlarm(t *testing.T) {
	kinds := map[alarm.Kind]bool{}
	for _, k := range alarm.Kinds() {
		kinds[k] = true
	}
	for _, c := range doubt.Causes() {
		if !kinds[c] {
			t.Errorf("%s is none", c)
		}
	}
}

// What operators are told of a cause: the page, and an alert that is raised once.
func TestEveryCauseIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../docs/doubts.md")
	must(t, err)
	rules, err := os.ReadFile("../deploy/prometheus/freshet.rules.yaml")
	must(t, err)
	_, other, _ := strings.Cut(string(rules), "alert: FreshetAlarm\n")
	other, _, _ = strings.Cut(other, "\n        for:")
	_, causes, _ := strings.Cut(string(page), "\n## Causes\n")
	causes, todo, _ := strings.Cut(causes, "\n### What to do\n")
	todo, _, _ = strings.Cut(todo, "\n### ")
	for _, c := range doubt.Causes() {
		row := "\n| `" + string(c) + "` | "
		if !strings.Contains(causes, row) {
			t.Errorf("docs/doubts.md does not say what %s is", c)
		}
		if strings.Count(todo, row) != 1 {
			t.Errorf("docs/doubts.md does not say what to do about %s", c)
		}
		if c != alarm.RecordUnreadable && !strings.Contains(other, string(c)+"|") {
			t.Errorf("FreshetAlarm is raised for %s too, besides FreshetDoubt", c)
		}
	}
}

func TestANilBookLogsAndKeepsNothing(t *testing.T) {
	var b *doubt.Book
	must(t, b.Record(t.Context(), truncated("shop.a")))
	must(t, b.Load(t.Context()))
	if b.List() != nil || !b.Loaded() || !errors.Is(b.Dismiss(t.Context(), "x", time.Time{}), doubt.ErrUnknown) {
		t.Fatal("a nil book")
	}
}

func TestADoubtThatIsStuckBeginsAgainWhenItComesAgainOrIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		b, _ := open(t, m)
		must(t, b.Record(t.Context(), truncated("shop.a")))
		id := b.List()[0].ID
		says := func(answer string, stuck bool) {
			t.Helper()
			if d := b.List()[0]; d.Answer != answer || d.Stuck != stuck {
				t.Fatalf("%q, stuck %v, want %q, %v", d.Answer, d.Stuck, answer, stuck)
			}
		}
		b.Say(id, "first of two passes")
		says("first of two passes", false)
		must(t, b.Record(t.Context(), truncated("shop.a"))) // what is under way goes on
		says("first of two passes", false)
		b.Stuck(doubt.Doubt{ID: id}, "the column holds free text")
		says("the column holds free text", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if kept, err := m.Doubts(t.Context()); err != nil || kept[0].Answer != "" || kept[0].Stuck {
			t.Fatalf("kept: %+v, %v", kept, err)
		}
		must(t, b.Record(t.Context(), truncated("shop.a")))
		says("", false)
		for range 2 {
			b.Stuck(doubt.Doubt{ID: id}, "the column holds free text")
			must(t, b.Ask(t.Context(), id))
			says("", false)
		}
		b.Stuck(doubt.Doubt{ID: "nothing"}, "there is no such doubt")
		says("", false)
	})
}

func TestAnotherProcessThatAsksForADoubtMakesItBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &doubttest.Memory{}
		here, _ := open(t, m)
		must(t, here.Record(t.Context(), truncated("shop.a")))
		id := here.List()[0].ID
		here.Stuck(doubt.Doubt{ID: id}, "the column holds free text")
		there, _ := open(t, m)
		must(t, there.Ask(t.Context(), id))
		must(t, here.Load(t.Context()))
		if d := here.List()[0]; !d.Asked || d.Stuck || d.Answer != "" {
			t.Fatalf("%+v", d)
		}
	})
}

// The answer to a doubt is for all definitions that the table has had since: keys of each may still be cached.
func TestADoubtKeepsTheDefinitionsOfEachTimeThatItCame(t *testing.T) {
	m := &doubttest.Memory{}
	b, _ := open(t, m)
	d := truncated("shop.product")
	for _, columnType := range []string{"int(5) zerofill", "int", "int"} {
		d.Definitions = []*event.Table{{
			Schema: "shop", Name: "product", Columns: []event.Column{{Name: "id", Type: columnType}},
		}}
		must(t, b.Record(t.Context(), d))
	}
	if n := len(b.List()[0].Definitions); n != 2 {
		t.Errorf("%d definitions, want 2", n)
	}
}

// The clock of the machine was ahead, and is right now.
func TestADoubtThatComesAgainIsLaterThanBeforeWhateverTheClockSays(t *testing.T) {
	m := &doubttest.Memory{}
	d := truncated("shop.product").Named()
	d.Since, d.Last, d.Count = time.Now().UTC(), time.Now().UTC().Add(time.Hour), 1
	must(t, m.PutDoubt(t.Context(), d))
	b, _ := open(t, m)
	must(t, b.Record(t.Context(), truncated("shop.product")))
	if err := b.Dismiss(t.Context(), d.ID, d.Last); !errors.Is(err, doubt.ErrCameAgain) {
		t.Errorf("%v, want %v", err, doubt.ErrCameAgain)
	}
}

func TestTheNameOfADoubtIsKnownBeforeItIsRecorded(t *testing.T) {
	b, _ := open(t, nil)
	d := doubt.Doubt{
		Cause: alarm.ByHand, Source: "shop", Templates: []string{"user:{id}", "product:{id}", "user:{id}"},
		Pattern: "*:1?",
	}
	must(t, b.Record(t.Context(), d))
	if l := b.List(); len(l) != 1 || l[0].ID != d.Named().ID || len(l[0].Templates) != 2 {
		t.Fatalf("%+v, named %s", l, d.Named().ID)
	}
	d.Templates = []string{"product:{id}", "user:{id}"}
	if d.Named().ID != b.List()[0].ID {
		t.Error("another order is another doubt")
	}
}

// A record of the topic of doubts that is longer is nobody's, and the brokers refuse one of a megabyte.
func TestADoubtFitsIntoARecordWhateverItsTablesHave(t *testing.T) {
	b, _ := open(t, &doubttest.Memory{})
	var labels []string
	for n := range 2000 {
		labels = append(labels, fmt.Sprintf("'label number %d, \"<so>\"'", n))
	}
	column := event.Column{Name: "kind", Type: "enum(" + strings.Join(labels, ",") + ")", Class: event.ClassEnum}
	of := func(n int) *event.Table {
		return &event.Table{Schema: "shop", Name: fmt.Sprint("product", n), Columns: []event.Column{column}}
	}
	for n := 0; n < 40; n += 2 {
		d := truncated("shop.product")
		d.Definitions = []*event.Table{of(n), of(n + 1)}
		must(t, b.Record(t.Context(), d))
	}
	d := b.List()[0]
	text, err := json.Marshal(d)
	must(t, err)
	if all := d.Definitions; len(text) > 300<<10 || len(all) == 0 || all[len(all)-1].Name != "product39" {
		t.Errorf("it has %d bytes, and %d definitions", len(text), len(all))
	}
}

// What it was about when it came again has not been looked for at all.
func TestWhatComesAgainWhileItIsAnsweredIsNotStuck(t *testing.T) {
	m := &doubttest.Memory{}
	b, _ := open(t, m)
	must(t, b.Record(t.Context(), truncated("shop.a")))
	for what, again := range map[string]func() error{
		"it comes again":   func() error { return b.Record(t.Context(), truncated("shop.a")) },
		"somebody asks":    func() error { return b.Ask(t.Context(), b.List()[0].ID) },
		"nothing happened": func() error { return nil },
	} {
		answered := b.List()[0]
		must(t, again())
		b.Stuck(answered, "the column holds free text")
		if d := b.List()[0]; d.Stuck != (what == "nothing happened") {
			t.Errorf("%s: %+v", what, d)
		}
		b.Say(answered.ID, "")
	}
}

// Of what a partition has lost, the most is meant that anybody has known of, whichever process knew it.
func TestADoubtIsAboutAllThatAPartitionHasLost(t *testing.T) {
	lost := func(partition int, from int64) *doubt.Lost { return &doubt.Lost{Partition: partition, From: from} }
	of := func(l *doubt.Lost) doubt.Doubt {
		return doubt.Doubt{Cause: alarm.RecordsLost, Group: "g", Subject: "t/3", Message: "lost", Lost: l}
	}
	for name, c := range map[string]struct {
		came []*doubt.Lost
		want *doubt.Lost
	}{
		"once":            {[]*doubt.Lost{lost(3, 7)}, lost(3, 7)},
		"later ones too":  {[]*doubt.Lost{lost(3, 7), lost(3, 9)}, lost(3, 7)},
		"earlier ones":    {[]*doubt.Lost{lost(3, 7), lost(3, 5)}, lost(3, 5)},
		"of any":          {[]*doubt.Lost{lost(3, 7), nil}, nil},
		"of any, earlier": {[]*doubt.Lost{nil, lost(3, 7)}, nil},
		"of another":      {[]*doubt.Lost{lost(3, 7), lost(4, 7)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := &doubttest.Memory{}
			a, _ := open(t, k)
			for _, l := range c.came {
				must(t, a.Record(t.Context(), of(l)))
			}
			b, _ := open(t, k) // what is more than before is durable at once
			for book, who := range map[*doubt.Book]string{a: "who recorded it", b: "the next process"} {
				if got := book.List(); len(got) != 1 || !reflect.DeepEqual(got[0].Lost, c.want) {
					t.Errorf("%s: %+v", who, got)
				}
			}
			// Another process has recorded the last, without having heard of the first.
			other := &doubttest.Memory{}
			d, _ := open(t, other)
			must(t, d.Record(t.Context(), of(c.came[0])))
			kept, err := other.Doubts(t.Context())
			must(t, err)
			last := kept[0]
			last.Lost, last.Last, last.Count = c.came[len(c.came)-1], last.Last.Add(1), last.Count+1
			must(t, other.PutDoubt(t.Context(), last))
			must(t, d.Load(t.Context()))
			if got := d.List(); !reflect.DeepEqual(got[0].Lost, c.want) {
				t.Errorf("after another process: %+v", got)
			}
		})
	}
}

func TestTooManyDoubtsAboutPartitionsAreAboutAnyKey(t *testing.T) {
	b, _ := open(t, &doubttest.Memory{})
	for n := range 201 {
		must(t, b.Record(t.Context(), doubt.Doubt{
			Cause: alarm.RecordsLost, Group: "g", Subject: fmt.Sprintf("t/%d", n), Message: "lost",
			Lost: &doubt.Lost{Partition: n},
		}))
	}
	all := b.List()
	if last := all[len(all)-1]; len(all) != 201 || last.Lost != nil {
		t.Errorf("%d doubts, the last: %+v", len(all), last)
	}
}
