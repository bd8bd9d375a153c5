package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/logtest"
)

func newLog(t testing.TB, o LogOptions) *Log {
	t.Helper()
	l, err := NewLog(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheLogConforms(t *testing.T) {
	logtest.Run(t, func(*testing.T) logtest.Harness {
		return logtest.Harness{
			Open: func(t *testing.T) logtest.Opened {
				l := newLog(t, LogOptions{})
				return logtest.Opened{Log: l, Close: l.Close}
			},
			DurableFollowsCommit: true,
		}
	})
}

// transaction is a batch that holds the transaction n and nothing else.
func transaction(n uint64) *event.Batch {
	b := &event.Batch{Age: event.Unknown}
	b.End.AddTx("binlog.000001", n, event.GTID{Server: 1, Number: n}, time.Unix(int64(n), 0))
	return b
}

// consumed returns the log's one partition, until stop is called.
func consumed(t *testing.T, l *Log) (_ eventlog.Partition, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	part, done := make(chan eventlog.Partition), make(chan error, 1)
	go func() {
		done <- l.Consume(ctx, func(ctx context.Context, p eventlog.Partition) error {
			part <- p
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("consume: %v", err)
		}
	}
	t.Cleanup(stop)
	return <-part, stop
}

func fetch(t *testing.T, p eventlog.Partition) eventlog.Token {
	t.Helper()
	_, token, err := p.Fetch(t.Context())
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return token
}

func appendTo(t *testing.T, l *Log, b *event.Batch) {
	t.Helper()
	if err := l.Append(t.Context(), b); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func TestEndsAreAddedUpWhileNobodyLooks(t *testing.T) {
	l := newLog(t, LogOptions{})
	p, _ := consumed(t, l)
	for n := range uint64(5) {
		appendTo(t, l, transaction(n+1))
		p.Commit(fetch(t, p))
	}
	select {
	case e := <-l.Durable():
		want := event.GTIDRange{First: event.GTID{Server: 1, Number: 1}, Last: 5}
		if e.Pos != 5 || len(e.GTIDs) != 1 || e.GTIDs[0] != want || !e.Committed.Equal(time.Unix(5, 0)) {
			t.Errorf("the end is %+v, want all five transactions", e)
		}
	default:
		t.Fatal("nothing is durable")
	}
	select {
	case e := <-l.Durable():
		t.Errorf("a second end came: %+v", e)
	default:
	}
}

func TestAnEndThatNobodyTakesStaysSmall(t *testing.T) {
	l := newLog(t, LogOptions{})
	p, _ := consumed(t, l)
	for n := range uint64(3 * mostRanges) {
		b := &event.Batch{}
		// Two sources that take turns: their runs do not join by themselves.
		g := event.GTID{UUID: [16]byte{byte(n%2) + 1}, Number: n/2 + 1}
		b.End.AddTx("binlog.000001", n+1, g, time.Time{})
		appendTo(t, l, b)
		p.Commit(fetch(t, p))
	}
	e := <-l.Durable()
	if len(e.GTIDs) > mostRanges+1 {
		t.Errorf("the end has %d runs of GTIDs", len(e.GTIDs))
	}
	var got event.GTIDSet
	for _, r := range e.GTIDs {
		got.AddRange(r)
	}
	want := "01000000-0000-0000-0000-000000000000:1-1536,02000000-0000-0000-0000-000000000000:1-1536"
	if got.String() != want || e.Pos != 3*mostRanges {
		t.Errorf("the end holds %s at %d, want %s", got.String(), e.Pos, want)
	}
}

func TestACommitDoesNotChangeWhatTheConsumerHolds(t *testing.T) {
	l := newLog(t, LogOptions{})
	p, _ := consumed(t, l)
	var held []*event.Batch
	var token eventlog.Token
	for n := range uint64(3) {
		appendTo(t, l, transaction(n+1))
		b, tok, err := p.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held, token = append(held, b), tok
	}
	p.Commit(token)
	for i, b := range held {
		if n := uint64(i + 1); b.End.GTIDs[0].First.Number != n || b.End.GTIDs[0].Last != n {
			t.Errorf("batch %d says %v now", n, b.End.GTIDs)
		}
	}
}

func TestASecondConsumerIsRefused(t *testing.T) {
	l := newLog(t, LogOptions{})
	appendTo(t, l, transaction(1))
	failed := errors.New("poison")
	err := l.Consume(t.Context(), func(ctx context.Context, p eventlog.Partition) error {
		fetch(t, p)
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("consume: %v", err)
	}
	err = l.Consume(t.Context(), func(context.Context, eventlog.Partition) error { return nil })
	if !errors.Is(err, ErrConsumed) {
		t.Errorf("a second consumer, which would pass over what the first one left: %v, want %v", err, ErrConsumed)
	}
	l.Close()
	if _, open := <-l.Durable(); open {
		t.Error("what was not committed is durable")
	}
}

func TestATokenOfAnotherLogPanics(t *testing.T) {
	l, other := newLog(t, LogOptions{}), newLog(t, LogOptions{})
	p, _ := consumed(t, l)
	po, _ := consumed(t, other)
	appendTo(t, l, transaction(1))
	defer func() {
		if recover() == nil {
			t.Error("a token of another log is taken")
		}
	}()
	po.Commit(fetch(t, p))
}

func TestTheChannelOfEndsIsClosedWhenNoMoreCanCome(t *testing.T) {
	open := func(l *Log) bool {
		select {
		case _, open := <-l.Durable():
			return open
		default:
			return true
		}
	}
	t.Run("nothing was ever appended", func(t *testing.T) {
		l := newLog(t, LogOptions{})
		l.Close()
		if open(l) {
			t.Error("it is open")
		}
	})
	t.Run("the consumer leaves work behind", func(t *testing.T) {
		l := newLog(t, LogOptions{})
		appendTo(t, l, transaction(1))
		p, stop := consumed(t, l)
		token := fetch(t, p)
		l.Close()
		if !open(l) {
			t.Error("it is closed while the consumer runs")
		}
		stop()
		if open(l) {
			t.Error("it is open behind the consumer's end")
		}
		p.Commit(token) // too late, and harmless
	})
	t.Run("the last batch is committed", func(t *testing.T) {
		l := newLog(t, LogOptions{})
		appendTo(t, l, transaction(1))
		p, _ := consumed(t, l)
		token := fetch(t, p)
		l.Close()
		p.Commit(token)
		if e, ok := <-l.Durable(); !ok || e.Pos != 1 {
			t.Errorf("end %+v, open %v", e, ok)
		}
		if open(l) {
			t.Error("it is open")
		}
	})
}

func TestAnOlderTokenAfterANewerOneChangesNothing(t *testing.T) {
	l := newLog(t, LogOptions{})
	appendTo(t, l, transaction(1))
	appendTo(t, l, transaction(2))
	p, _ := consumed(t, l)
	first, second := fetch(t, p), fetch(t, p)
	p.Commit(second)
	p.Commit(first)
	l.Close()
	if e := <-l.Durable(); e.Pos != 2 {
		t.Errorf("the end is %+v", e)
	}
	select {
	case _, open := <-l.Durable():
		if open {
			t.Error("another end came")
		}
	default:
		t.Error("all is committed, and the channel is open")
	}
}

func TestFullAppendsWakeUpForRoomAndForTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, LogOptions{Buffer: 2})
		done := make(chan error, 1)
		go func() {
			for n := uint64(1); ; n++ {
				if err := l.Append(t.Context(), transaction(n)); err != nil {
					done <- err
					return
				}
			}
		}()
		p, stop := consumed(t, l)
		for range 100 {
			synctest.Wait()
			if n := l.queue.len(); n != 2 {
				t.Fatalf("%d batches wait, want 2", n)
			}
			fetch(t, p)
		}
		synctest.Wait()
		l.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("append: %v, want %v", err, ErrClosed)
		}
		fetch(t, p)
		fetch(t, p)
		if _, _, err := p.Fetch(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("fetch: %v", err)
		}
		stop()
	})
}

func TestTheWaitsInTheLogAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stages := latency.New()
		l := newLog(t, LogOptions{Buffer: 1, Latency: stages})
		p, stop := consumed(t, l)
		appendTo(t, l, transaction(1))
		done := make(chan error, 1)
		go func() { done <- l.Append(t.Context(), transaction(2)) }()
		<-time.After(time.Second)
		fetch(t, p) // 1, after 1 s; 2, which waited as long, is taken
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		<-time.After(4 * time.Second)
		fetch(t, p) // 2, after 4 s
		for name, got := range map[string]latency.Percentiles{
			"append": stages.Append.LastMinute(time.Now()),
			"fetch":  stages.Fetch.LastMinute(time.Now()),
		} {
			if want := map[string]time.Duration{"append": time.Second, "fetch": 4 * time.Second}[name]; got.Count != 2 ||
				got.P99.Round(time.Second) != want {
				t.Errorf("%s: %+v, want %s", name, got, want)
			}
		}
		stop()
	})
}

func TestCommittingIsCheapHoweverMuchIsUncommitted(t *testing.T) {
	var p pending
	p.ends = make(chan event.End, 1)
	const many = 200_000
	end := transaction(1).End
	for n := range uint64(many) {
		p.add(n+1, end)
	}
	moved := 0
	for n := range uint64(many) {
		was := len(p.fetched)
		p.commit(n + 1)
		if len(p.fetched) < was {
			moved += len(p.fetched)
		}
	}
	if moved > 2*many || p.uncommitted() != 0 {
		t.Errorf("%d places were moved for %d commits, %d are left", moved, many, p.uncommitted())
	}
}

func TestLogMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	l := newLog(t, LogOptions{Registerer: reg})
	p, _ := consumed(t, l)
	appendTo(t, l, transaction(1))
	fetch(t, p)
	appendTo(t, l, transaction(2))
	for name, want := range map[string]int{
		"freshet_eventlog_batches_total": 2, "freshet_eventlog_queued_batches": 1, "freshet_eventlog_uncommitted_batches": 1,
	} {
		if err := hasValue(reg, name, float64(want)); err != nil {
			t.Error(err)
		}
	}
	lint(t, reg)
}

func lint(t *testing.T, reg prometheus.Gatherer) {
	t.Helper()
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// hasValue checks a metric that has no labels.
func hasValue(reg prometheus.Gatherer, name string, want float64) error {
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want {
				return fmt.Errorf("%s is %v, want %v", name, got, want)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no %s", name)
}

func BenchmarkHandOver(b *testing.B) {
	l := newLog(b, LogOptions{})
	batch := transaction(1)
	done := make(chan error, 1)
	go func() {
		done <- l.Consume(b.Context(), func(ctx context.Context, p eventlog.Partition) error {
			for {
				_, token, err := p.Fetch(ctx)
				if err != nil {
					return nil
				}
				p.Commit(token)
			}
		})
	}()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Append(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
	<-done
}
