package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
)

func TestRecordsAreHandedOutInOrderAndGoOnFromTheCommit(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 3)
	a := r.work(false)
	first := a.take(3)
	expect(t, first, "s:1:1", "s:1:2", "s:1:3")
	first[1].commit()
	must(t, a.stop())
	b := r.work(true)
	expect(t, b.take(1), "s:1:3")
	r.series(0, 4, 4)
	expect(t, b.take(1), "s:1:4")
	must(t, b.stop())
}

// What an old leader left behind its successor's work must not be written any more, and who reads it need not have seen
// that work itself: another member may have finished it.
func TestWhatAnOldLeaderLeftIsALeftover(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, document("s", 1, 1, 0, 10), document("s", 2, 1, 10, 20), document("t", 1, 1, 0, 10),
		document("s", 1, 2, 10, 30))
	want := func(batches []got, leftovers ...bool) {
		t.Helper()
		for i, g := range batches {
			if g.leftover != leftovers[i] {
				t.Errorf("%s is a leftover: %v", g.key, g.leftover)
			}
			g.commit()
		}
	}
	a := r.work(false)
	want(a.take(4), false, false, false, true)
	must(t, a.stop())
	r.produce(0, document("s", 1, 3, 30, 40), document("s", 2, 1, 10, 20), document("s", 3, 1, 20, 50),
		document("s", 2, 2, 20, 50))
	want(r.work(false).take(4), true, false, false, true) // the second one is a repeat
}

func TestWhatIsFinishedWhileThePartitionIsRevokedIsCommitted(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 3)
	var batches []got
	a := r.workWith(false, func(err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("fetch ended with %v", err)
		}
		batches[1].commit()
	})
	batches = a.take(3)
	must(t, a.stop())
	batches[2].commit() // too late
	expect(t, r.work(true).take(1), "s:1:3")
}

func TestTwoMembersShareAndWhatWasNotFinishedIsDoneAgain(t *testing.T) {
	r := newRig(t, 2)
	for p := range 2 {
		r.series(p, 1, 4)
	}
	a := r.work(false)
	before := a.take(8)
	for _, g := range before {
		if slices.Contains([]string{"s:1:1", "s:1:2"}, g.key) {
			g.commit()
		}
	}
	b := r.work(true)
	for range 2 { // a's partitions end and one comes back to it
		if err := a.end(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	again, others := a.take(2), b.take(2)
	expect(t, again, "s:1:3", "s:1:4")
	expect(t, others, "s:1:3", "s:1:4")
	if again[0].partition == others[0].partition {
		t.Fatalf("both work on %d", again[0].partition)
	}
	// A token of the generation before moves nothing, and who holds it notices nothing.
	for _, g := range before {
		g.commit()
	}
	must(t, b.stop())
	must(t, a.stop())
	c := r.work(true)
	expect(t, c.take(2), "s:1:3", "s:1:4") // a did not finish, b did
}

func TestARecordThatIsNoneIsBuriedAndPassedOver(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 1)
	bad := []byte(`{"format":1,"source":"s","term":1,"seq":2,`)
	r.produce(0, bad)
	r.series(0, 3, 3) // which follows what could not be read
	r.produce(0, nil)
	a := r.work(true)
	expect(t, a.take(2), "s:1:1", "s:1:3")
	for i, want := range [][]byte{bad, nil} {
		if b := <-a.buried; !bytes.Equal(b.Value, want) || b.Offset != int64(1+2*i) || string(b.Key) != "s" {
			t.Fatalf("buried %q %q at %d", b.Key, b.Value, b.Offset)
		}
	}
	must(t, a.stop())
	b := r.work(true)
	r.series(0, 4, 4)
	expect(t, b.take(1), "s:1:4")
	if len(b.buried) > 0 {
		t.Error("it was buried again, though everything before it was finished")
	}
}

func TestARecordOfSomebodyElseExcusesNoLoss(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 1)
	r.produce(0, []byte("theirs"))
	r.series(0, 3, 3)
	a := r.work(true)
	expect(t, a.take(1), "s:1:1")
	<-a.buried
	if lost := a.lost(Broken); lost.Break.Seq != 3 {
		t.Errorf("lost before %+v", lost.Break)
	}
}

func TestRecordsOfSomebodyElseBecomeDeadLettersUpToABound(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 1)
	r.produce(0, []byte("theirs"))
	ours := []byte(`{"format":1,"source":"s","term":1,"seq":2,`)
	r.produce(0, ours)
	r.series(0, 3, 3)
	a := r.work(true, func(o *Options) { o.Letters = func() int { return maxForeign } })
	expect(t, a.take(2), "s:1:1", "s:1:3")
	if b := <-a.buried; !bytes.Equal(b.Value, ours) || len(a.buried) > 0 {
		t.Errorf("buried %q, and %d more", b.Value, len(a.buried))
	}
}

func TestARecordThatCannotBeBuriedIsNotPassedOver(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, []byte("x"))
	r.series(0, 1, 1)
	refused := 0
	repaired := make(chan struct{})
	a := r.work(true, func(o *Options) {
		o.Bury = func(context.Context, string, int, broker.Record, error) error {
			if refused++; refused < 4 {
				return errors.New("no room")
			}
			close(repaired)
			return nil
		}
	})
	expect(t, a.take(1), "s:1:1")
	select {
	case <-repaired:
	default:
		t.Fatal("the record behind it was handed out first")
	}
}

func TestARecordOfANewerFormatHoldsUpItsPartitionAlone(t *testing.T) {
	r := newRig(t, 2)
	r.produce(0, document("s", 1, 1, 0, 10), fmt.Appendf(nil, `{"format":%d,"source":"s"}`, record.Format+1),
		document("s", 1, 3, 20, 30))
	r.series(1, 1, 3)
	board, err := alarm.New(quietLog(), nil)
	must(t, err)
	a := r.work(true, func(o *Options) { o.Alarms = board })
	seen := map[int]int{}
	for _, g := range a.take(4) {
		seen[g.partition]++
	}
	if seen[0] != 1 || seen[1] != 3 {
		t.Fatalf("handed out, by partition: %v", seen)
	}
	r.series(1, 4, 4)
	if g := a.take(1)[0]; g.partition != 1 {
		t.Fatalf("%s of partition %d", g.key, g.partition)
	}
	eventually(t, "an alarm", func() bool { return len(board.Records()) == 1 })
	if m := board.Records()[0]; m.Kind != alarm.RecordUnreadable ||
		!bytes.Contains([]byte(m.Message), []byte("upgrade the invalidators first")) {
		t.Fatalf("%+v", m)
	}
	must(t, a.stop()) // the wait ends with its context
	b := r.work(true)
	r.series(1, 5, 5)
	if g := b.take(1)[0]; g.partition != 1 {
		t.Fatalf("%s was passed over to", g.key)
	}
}

func TestAPartitionThatNobodyTakesFromHoldsUpNoOther(t *testing.T) {
	r := newRig(t, 2)
	r.big(0, 1, 20)
	r.series(1, 1, 50)
	release := make(chan struct{})
	a := r.work(true, func(o *Options) {
		o.Latency = nil
		bury := o.Bury
		o.Bury = func(ctx context.Context, topic string, p int, b broker.Record, cause error) error {
			<-release
			return bury(ctx, topic, p, b, cause)
		}
	})
	for _, g := range a.take(50) {
		if g.partition != 1 {
			t.Fatalf("%s of partition %d", g.key, g.partition)
		}
	}
	close(release)
	for range 20 {
		<-a.buried
	}
}

// big produces records that are none, of 400 KB each.
func (r *rig) big(partition, from, to int) {
	for i := from; i <= to; i++ {
		r.produce(partition, bytes.Repeat([]byte{byte(i)}, 400_000))
	}
}

func TestEachPartitionEndsWhereItIsToldTo(t *testing.T) {
	r := newRig(t, 3)
	r.series(0, 1, 5)
	r.series(1, 1, 2)
	r.series(2, 1, 2)
	a := r.work(true)
	a.take(9)
	// All three wait for more now, or soon will.
	a.consumer.StopAt(map[int]int64{0: 7, 1: 2})
	for range 2 {
		if err := a.end(); err != io.EOF {
			t.Fatal(err)
		}
	}
	r.series(0, 6, 9)
	expect(t, a.take(2), "s:1:6", "s:1:7")
	if err := a.end(); err != io.EOF {
		t.Fatal(err)
	}
	must(t, a.stop())
	// Also when it is told so before anything was assigned.
	b := r.work(true, func(o *Options) { o.Registerer = nil })
	b.consumer.StopAt(map[int]int64{0: 8})
	if g := <-b.batches; g.key != "s:1:8" { // the others are at their end, in any order
		t.Fatal(g.key)
	}
}

// mark produces a mark of a source.
func (r *rig) mark(source string, term uint64, pos int, asOf time.Time, ends ...int64) {
	r.t.Helper()
	m := record.Mark{Mark: event.Mark{Source: source, Term: term, Version: at(pos)}, AsOf: asOf, Ends: ends}
	_, err := r.client.Produce(r.t.Context(), r.names.Marks(), 0, broker.Record{Key: []byte(source), Value: m.Append(nil)})
	must(r.t, err)
}

func TestMarksComeBesideTheRecordsAndSayAsOfWhenAllIsFresh(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 3)
	second := func(n int64) time.Time { return time.Unix(1_700_000_000+n, 0).UTC() }
	r.mark("s", 1, 10, second(1), 1)
	r.mark("s", 1, 20, second(2), 2)
	r.mark("t", 4, 7, second(9), -1)
	_, err := r.client.Produce(t.Context(), r.names.Marks(), 0, broker.Record{Key: []byte("x"), Value: []byte("no mark")})
	must(t, err)
	a := r.work(false)
	newest := map[string]event.Version{}
	await := func(source string, pos int) {
		t.Helper()
		for timeout := time.After(patience); newest[source] != at(pos); {
			select {
			case m := <-a.consumer.Marks():
				newest[m.Source] = m.Version
			case <-timeout:
				t.Fatalf("the newest marks are %v", newest)
			}
		}
	}
	await("s", 20)
	await("t", 7)
	batches := a.take(3)
	if at := a.consumer.FreshAsOf(); !at.IsZero() {
		t.Fatalf("fresh as of %v before anything is finished", at)
	}
	for i, want := range []int64{1, 2, 2} {
		batches[i].commit()
		if at := a.consumer.FreshAsOf(); !at.Equal(second(want)) {
			t.Fatalf("after %d: fresh as of %v, want %v", i+1, at, second(want))
		}
	}
	r.mark("s", 2, 30, second(5), 3)
	await("s", 30)
	if at := a.consumer.FreshAsOf(); !at.Equal(second(5)) {
		t.Fatalf("fresh as of %v", at)
	}
	must(t, a.stop())
	if at := a.consumer.FreshAsOf(); !at.IsZero() {
		t.Fatalf("fresh as of %v, with no partition", at)
	}
}

func TestLagIsShownWhileAPartitionIsOwned(t *testing.T) {
	r := newRig(t, 2)
	r.series(0, 1, 5)
	a := r.work(false)
	batches := a.take(5)
	batches[1].commit()
	want := Lag{Partition: 0, Records: 3, Finished: 2, End: 5}
	eventually(t, "both partitions", func() bool { return len(a.consumer.Lags()) == 2 })
	l := a.consumer.Lags()[0]
	if l.Partition != 0 || l.Records != 3 || l.Finished != 2 || l.End != 5 || l.Oldest.IsZero() ||
		time.Since(l.Oldest) > time.Minute {
		t.Fatalf("%+v, want %+v", l, want)
	}
	if problems, err := testutil.GatherAndLint(a.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, m := range []struct {
		name string
		n    int
	}{
		{"freshet_kafka_lag_records", 2},
		{"freshet_kafka_end_offset", 2},
		{"freshet_kafka_finished_offset", 2},
		{"freshet_kafka_losses_total", 4},
	} {
		if n, err := testutil.GatherAndCount(a.registry, m.name); err != nil || n != m.n {
			t.Errorf("%s: %d series, %v", m.name, n, err)
		}
	}
	// The end moves though nobody takes what is fetched.
	r.big(0, 1, 12)
	eventually(t, "the end", func() bool { return a.consumer.Lags()[0].End == 17 })
	must(t, a.stop())
	if n, err := testutil.GatherAndCount(a.registry, "freshet_kafka_lag_records"); err != nil || n != 0 {
		t.Errorf("%d series of a partition that is not owned, %v", n, err)
	}
}

func TestAnAlarmComesBeforeRetentionBites(t *testing.T) {
	r := newRig(t, 1, "retention.ms=3600000")
	_, err := r.client.Produce(t.Context(), r.names.Topic, 0, broker.Record{
		Value: document("s", 1, 1, 0, 10), Time: time.Now().Add(-50 * time.Minute),
	})
	must(t, err)
	board, err := alarm.New(quietLog(), nil)
	must(t, err)
	a := r.work(false, func(o *Options) { o.Alarms = board })
	a.take(1)
	eventually(t, "an alarm", func() bool { return len(board.Records()) > 0 })
	if m := board.Records()[0]; m.Kind != alarm.RetentionNear {
		t.Fatalf("%+v", m)
	}
	if l := a.consumer.Lags()[0]; !l.Known || l.Headroom > 10*time.Minute || l.Headroom < 8*time.Minute {
		t.Fatalf("%+v", l)
	}
}

func TestReadingGoesOnWhenTheBrokerComesBack(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t)
	r := newRigOn(t, cluster, 1)
	r.series(0, 1, 3)
	a := r.work(true)
	expect(t, a.take(3), "s:1:1", "s:1:2", "s:1:3")
	must(t, cluster.Broker(1).Kill())
	must(t, cluster.Start(t.Context()))
	eventually(t, "the broker takes a record", func() bool {
		_, err := r.client.Produce(t.Context(), r.names.Topic, 0, broker.Record{Value: document("s", 1, 4, 30, 40)})
		return err == nil
	})
	for timeout := time.After(patience); ; {
		select {
		case g := <-a.batches:
			if g.key == "s:1:4" {
				return
			}
			t.Logf("again: %s", g.key)
		case err := <-a.ends: // the generation may end, too
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		case <-timeout:
			t.Fatal("what came after the restart is not read")
		}
	}
}

// Each broker is asked for the partitions that it leads, also after they have moved and one has died.
func TestPartitionsAreReadWhereverTheirLeadersGo(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3})
	r := newRigOn(t, cluster, 6)
	a := r.work(true)
	seq := 0
	goesOn := func() {
		t.Helper()
		seq++
		want, seen := fmt.Sprintf("s:1:%d", seq), map[int]bool{}
		for p := range 6 {
			r.series(p, seq, seq)
		}
		for timeout := time.After(patience); len(seen) < 6; {
			select {
			case g := <-a.batches:
				if g.key == want {
					seen[g.partition] = true
				}
			case err := <-a.ends: // the generation may end when a broker dies
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			case <-timeout:
				t.Fatalf("record %d was read in partitions %v only", seq, seen)
			}
		}
	}
	goesOn()
	for p := range 6 {
		cluster.MoveLeader(t, r.names.Topic, p, cluster.Leader(t, r.names.Topic, p)%3+1)
		goesOn()
	}
	dead := cluster.Leader(t, r.names.Topic, 0)
	must(t, cluster.Broker(dead).Kill())
	for p := range 6 {
		cluster.AwaitLeader(t, r.names.Topic, p, dead)
	}
	goesOn()
}

func TestWhatIsWrongWithTheOptionsIsSaid(t *testing.T) {
	c := newRig(t, 1).client
	for _, o := range []Options{
		{},
		{Group: "g", Bury: func(context.Context, string, int, broker.Record, error) error { return nil }},
		{Group: "g", Names: broker.Names{Topic: "t"}},
	} {
		if _, err := New(c, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if s := fmt.Sprint(losses()); s != "[expired uncommitted truncated broken]" {
		t.Error(s)
	}
}
