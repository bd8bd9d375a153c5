package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// finished has a member finish the first n records of partition 0.
func (r *rig) finish(n int) {
	r.t.Helper()
	w := r.work(false)
	for _, g := range w.take(n) {
		g.commit()
	}
	must(r.t, w.stop())
}

// skip starts a member that passes over what is lost.
func (r *rig) skip() (*worker, *alarm.Board) {
	board, err := alarm.New(quietLog(), nil)
	must(r.t, err)
	return r.work(true, func(o *Options) { o.SkipLost, o.Alarms, o.Doubts = true, board, book(r.t, board) }), board
}

// book keeps doubts for one test.
func book(t *testing.T, board *alarm.Board) *doubt.Book {
	b, err := doubt.New(nil, board, nil)
	must(t, err)
	return b
}

func skipped(t *testing.T, w *worker, board *alarm.Board, loss Loss) {
	t.Helper()
	if n := testutil.ToFloat64(w.consumer.metrics.losses.WithLabelValues(string(loss))); n != 1 {
		t.Errorf("%v losses of kind %s are counted", n, loss)
	}
	if l := w.consumer.o.Doubts.List(); len(l) != 1 || l[0].Group != w.consumer.o.Group ||
		l[0].Cause != alarm.RecordsLost {
		t.Errorf("in doubt: %+v", l)
	}
	if records := board.Records(); len(records) != 1 || records[0].Kind != alarm.RecordsLost {
		t.Errorf("alarms: %+v", records)
	}
}

func TestRecordsThatRetentionDeletedFirstAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.series(0, 1, 2)
	r.finish(2)
	r.series(0, 3, 6)
	r.cluster.DeleteRecords(t, r.names.Topic, 0, 4)
	e := r.work(true).lost(Expired)
	if e.Topic != r.names.Topic || e.Partition != 0 || e.Group != r.group || e.Offset != 2 || e.Start != 4 || e.End != 6 ||
		time.Since(e.Until) > time.Minute {
		t.Fatalf("%+v", e)
	}
	for _, want := range []string{
		r.names.Topic + "/0", r.group, "offset 2", "begins at 4", "clear the cache",
		"freshet invalidator --skip-lost",
	} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	r.work(true).lost(Expired) // it does not repair itself
	w, board := r.skip()
	expect(t, w.take(2), "s:1:5", "s:1:6")
	skipped(t, w, board, Expired)
	must(t, w.stop())
	w = r.work(true) // and that is that
	r.series(0, 7, 7)
	expect(t, w.take(1), "s:1:7")
}

func TestAGroupWithoutOffsetsOnAnOldTopicHasLostRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.series(0, 1, 3)
	r.cluster.DeleteRecords(t, r.names.Topic, 0, 3) // nothing is left
	if e := r.work(true).lost(Uncommitted); e.Offset != -1 || e.Start != 3 || !e.Until.IsZero() {
		t.Fatalf("%+v", e)
	}
	w, board := r.skip()
	eventually(t, "the partition", func() bool { return len(w.consumer.Lags()) == 1 })
	skipped(t, w, board, Uncommitted)
	must(t, w.stop())
	// Where it began was committed, though there was nothing to finish.
	r.series(0, 4, 4)
	expect(t, r.work(true).take(1), "s:1:4")
}

func TestANewGroupOnATopicThatIsWholeIsNoLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	w := r.work(true)
	eventually(t, "the partition", func() bool { return len(w.consumer.Lags()) == 1 })
	must(t, w.stop())
	// It has begun: what is deleted from now on before it is finished is lost to it as to any other.
	r.series(0, 1, 2)
	r.cluster.DeleteRecords(t, r.names.Topic, 0, 1)
	if e := r.work(true).lost(Expired); e.Offset != 0 {
		t.Fatalf("%+v", e)
	}
}

func TestATopicThatWasMadeAnewHasLostRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.series(0, 1, 5)
	r.finish(5)
	r.cluster.DeleteTopic(t, r.names.Topic)
	r.cluster.Topic(t, r.names.Topic, 1)
	// Kafka deletes a group's offsets with the topic, unless the group has members then.
	r.recommit(5)
	if e := r.work(true).lost(Truncated); e.Offset != 5 || e.End != 0 {
		t.Fatalf("%+v", e)
	}
	w, board := r.skip()
	r.produce(0, document("s", 2, 1, 50, 60))
	expect(t, w.take(1), "s:2:1")
	skipped(t, w, board, Truncated)
	must(t, w.stop())
	// The commit was wound back.
	r.produce(0, document("s", 2, 2, 60, 70))
	expect(t, r.work(true).take(1), "s:2:2")
}

func TestATopicThatWasMadeAnewAndHasGrownHasLostRecords(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 3)
	r.finish(3)
	metadata := r.committed()
	r.cluster.DeleteTopic(t, r.names.Topic)
	r.cluster.Topic(t, r.names.Topic, 1)
	r.recommit(3, metadata)
	// The reader has not noticed either, and goes on counting.
	r.series(0, 4, 8)
	e := r.work(true).lost(Broken)
	if b := e.Break; b == nil || e.Offset != 3 || b.SeenSeq != 3 || b.Seq != 7 || b.Source != "s" {
		t.Fatalf("%+v", e)
	}
}

func TestATopicThatWasMadeAnewIsNotTakenForANewOne(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 5)
	r.finish(3)
	r.cluster.DeleteTopic(t, r.names.Topic)
	r.cluster.Topic(t, r.names.Topic, 1)
	// The commits went with it. The reader's next leader knows what was there before.
	r.produce(0, document("s", 2, 1, 50, 60), document("s", 2, 2, 60, 70))
	e := r.work(true).lost(Broken)
	if b := e.Break; e.Offset != 0 || b == nil || b.SeenSeq != 0 || b.Seq != 1 {
		t.Fatalf("%+v", e)
	}
	w, board := r.skip()
	expect(t, w.take(2), "s:2:1", "s:2:2")
	skipped(t, w, board, Broken)
}

func TestATopicThatIsMadeAnewWhileItIsReadHasLostRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.series(0, 1, 5)
	w := r.work(true)
	w.take(5)
	r.cluster.DeleteTopic(t, r.names.Topic)
	r.cluster.Topic(t, r.names.Topic, 1)
	r.produce(0, document("s", 2, 1, 50, 60))
	for {
		err := w.end()
		var lost *LostError
		if errors.As(err, &lost) {
			t.Log(lost)
			return
		}
		if !errors.Is(err, context.Canceled) { // generations end while the topic is missing
			t.Fatal(err)
		}
	}
}

func TestAHoleInTheChainIsALoss(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 2)
	r.finish(2)
	r.series(0, 4, 5)
	if e := r.work(true).lost(Broken); e.Offset != 2 || e.Break.Seq != 4 || e.Break.SeenSeq != 2 {
		t.Fatalf("%+v", e)
	}
	w, board := r.skip()
	expect(t, w.take(2), "s:1:4", "s:1:5")
	skipped(t, w, board, Broken)
}

func TestANewLeaderThatKnowsOfMoreIsALoss(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 2)
	r.produce(0, document("s", 2, 1, 90, 100))
	e := r.work(true).lost(Broken)
	again := r.work(true).lost(Broken) // the process that has it next
	if again.Error() != e.Error() {
		t.Errorf("%q, and then %q", e, again)
	}
	for _, want := range []string{"source s begins term 2", "version 1/1/90/1", "record 2 of term 1"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
}

func TestRecordsThatAreDeletedWhileTheyWaitAreLost(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Properties: []string{"log.retention.check.interval.ms=100"}})
	// A segment for each record or two, so that retention by size has something to delete.
	r := newRigOn(t, cluster, 1, "segment.bytes=1048576", "retention.bytes=2000000", "file.delete.delay.ms=100")
	release := make(chan struct{})
	w := r.work(true)
	r.series(0, 1, 1)
	expect(t, w.take(1), "s:1:1")
	must(t, w.stop())
	r.big(0, 1, 3)
	w = r.work(true, func(o *Options) {
		o.Bury = func(ctx context.Context, _ string, _ int, _ broker.Record, _ error) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	})
	eventually(t, "it waits at the first of them", func() bool {
		l := w.consumer.Lags()
		return len(l) == 1 && l[0].End == 4
	})
	// Retention runs on; what was fetched ahead is still worked on.
	r.big(0, 1, 30)
	eventually(t, "retention", func() bool {
		start, _, err := r.client.Range(t.Context(), r.names.Topic, 0)
		return err == nil && start > 20
	})
	close(release)
	if e := w.lost(Expired); e.Offset < 1 || e.Offset >= e.Start {
		t.Fatalf("%+v", e)
	}
}

// What is passed over while it is read is passed over once, and reading goes on where the log begins then.
func TestWhatIsLostWhileItIsReadIsPassedOverOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.big(0, 1, 12)
	release := make(chan struct{})
	board, err := alarm.New(quietLog(), nil)
	must(t, err)
	w := r.work(true, func(o *Options) {
		o.SkipLost, o.Alarms, o.Doubts = true, board, book(t, board)
		bury := o.Bury
		o.Bury = func(ctx context.Context, topic string, p int, b broker.Record, cause error) error {
			<-release
			return bury(ctx, topic, p, b, cause)
		}
	})
	eventually(t, "it waits at the first of them", func() bool {
		l := w.consumer.Lags()
		return len(l) == 1 && l[0].End == 12
	})
	r.series(0, 1, 3)
	r.cluster.DeleteRecords(t, r.names.Topic, 0, 13)
	close(release)
	expect(t, w.take(2), "s:1:2", "s:1:3")
	r.series(0, 4, 4)
	expect(t, w.take(1), "s:1:4")
	if n := testutil.ToFloat64(w.consumer.metrics.losses.WithLabelValues(string(Expired))); n != 1 {
		t.Errorf("%v losses are counted", n)
	}
	must(t, w.stop())
	r.series(0, 5, 5)
	expect(t, r.work(true).take(1), "s:1:5")
}

// What the group sees after the loss need not show it any more: here the records that did come from two sources, of
// which the later one is new to a process that goes on from the earlier one's commit. It is remembered all the same.
func TestAPartitionThatWasStoppedStaysStoppedForWhoeverHasItNext(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, document("a", 1, 1, 0, 10), document("b", 2, 1, 50, 60))
	w := r.work(true)
	expect(t, w.take(1), "a:1:1")
	e := w.lost(Broken)
	if e.Offset != 1 || e.Break == nil || e.Break.Source != "b" {
		t.Fatalf("%+v", e)
	}
	if n := testutil.ToFloat64(w.consumer.metrics.losses.WithLabelValues(string(Broken))); n != 1 {
		t.Errorf("%v losses are counted", n)
	}
	for range 2 {
		w := r.work(true)
		if again := w.lost(Broken); again.Error() != e.Error() {
			t.Errorf("%q, and then %q", e, again)
		}
	}
	w, board := r.skip()
	expect(t, w.take(1), "b:2:1")
	skipped(t, w, board, Broken)
	must(t, w.stop())
	r.produce(0, document("b", 2, 2, 60, 70))
	expect(t, r.work(true).take(1), "b:2:2")
}

// What is finished late is committed, and only then that the partition is stopped: what was not finished is done again.
func TestWhatLiesBeforeALossIsDoneByWhoeverHasItNext(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 2)
	r.series(0, 4, 4)
	committed := make(chan struct{})
	commit := sync.OnceFunc(func() { close(committed) })
	defer commit()
	w := r.workWith(false, func(error) { <-committed }) // before the handle returns, after which nothing can be committed
	w.take(1)[0].commit()
	commit()
	w.take(1)
	w.lost(Broken)
	w = r.work(true)
	expect(t, w.take(1), "s:1:2")
	w.lost(Broken)
	if _, what, stopped := StoppedBy(r.committed()); !stopped ||
		!strings.Contains(what, "record 4 of term 1 after record 2") {
		t.Errorf("committed with %q", r.committed())
	}
}

func TestALossIsKeptWithTheCommitHoweverManySourcesThereAre(t *testing.T) {
	var c chain
	for i := range 200 {
		c.move(fmt.Sprintf("source-%d", i), link{term: 1, seq: uint64(i), version: at(i + 1)})
	}
	e := &LostError{Loss: Expired, Offset: 3, Start: 9, said: "50 % of it; gone, " + strings.Repeat("ä", maxWhat)}
	got := withLoss(c.encode(), e)
	if len(got) > maxMetadata {
		t.Errorf("%d bytes", len(got))
	}
	loss, what, stopped := StoppedBy(got)
	if !stopped || loss != Expired || !strings.HasPrefix(what, "50 % of it; gone, ää") {
		t.Errorf("%v %s %q", stopped, loss, what)
	}
	parsed := parseChain(got)
	if l, known := parsed.links["source-199"]; !known || l.seq != 199 {
		t.Errorf("the most recent source is %+v", l)
	}
	if again := withLoss(got, &LostError{Loss: Broken, said: "other"}); again != got {
		t.Error("the first reason is not kept")
	}
	for _, none := range []string{"", "freshet1", "freshet1;s,1,2,1/1/1/1", "somebody;lost,expired,x", "freshet1;lost"} {
		if _, _, stopped := StoppedBy(none); stopped {
			t.Errorf("%q says that it is stopped", none)
		}
	}
}

// kafka-consumer-groups --reset-offsets, for one. Nothing in the log shows what lies between.
func TestAnOffsetThatAnotherProgramHasSetIsADoubt(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 5)
	r.finish(2)
	r.recommit(4)
	board, err := alarm.New(quietLog(), nil)
	must(t, err)
	doubts := book(t, board)
	with := func(o *Options) { o.Alarms, o.Doubts = board, doubts }
	w := r.work(true, with)
	expect(t, w.take(1), "s:1:5")
	d := doubts.List()
	if len(d) != 1 || d[0].Cause != alarm.PositionSkipped || d[0].Group != r.group || d[0].Subject != r.names.Topic+"/0" ||
		!strings.Contains(d[0].Message, "was set to 4 by another program") {
		t.Fatalf("doubts: %+v", d)
	}
	must(t, w.stop())
	must(t, r.work(true, with).stop()) // what is freshet's own is none
	w = r.work(true, with)
	eventually(t, "the partition", func() bool { return len(w.consumer.Lags()) == 1 })
	if d := doubts.List(); len(d) != 1 || d[0].Count != 1 {
		t.Fatalf("doubts: %+v", d)
	}
}

// Only what retention deletes is lost to one partition alone. A topic that was made again has lost all that was in it,
// and may have fewer partitions by now, so that nothing shows what others held.
func TestWhatIsLostIsKnownOfWhatRetentionDeletes(t *testing.T) {
	for _, loss := range losses() {
		e := &LostError{Loss: loss, Topic: "t", Partition: 3, Offset: 7, Break: &Break{}}
		got := e.Records()
		if want := loss == Expired; want != (got != nil) || want && *got != (doubt.Lost{Partition: 3, From: 7}) {
			t.Errorf("%s: %+v", loss, got)
		}
	}
	if got := (&LostError{Loss: Expired, Partition: 3, Offset: -1}).Records(); got != nil {
		t.Errorf("without an offset: %+v", got)
	}
}
