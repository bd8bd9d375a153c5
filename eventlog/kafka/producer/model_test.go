package producer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// plan is what happens to a producer, drawn before it does.
type plan struct {
	partitions, grown int // grown by so many in the middle
	maxRecord, room   int
	largest           int
	steps             []step
	fates             map[int][]outcome // of each partition's attempts; after them all succeed
}

// step appends a batch or makes a mark.
type step struct {
	keys  []int
	end   bool
	mark  bool
	pause time.Duration // before it
	back  bool          // the source is read again: the versions go back
}

// outcome is one attempt's.
type outcome struct {
	kind  string
	after time.Duration
}

func drawPlan(t *rapid.T) plan {
	p := plan{
		partitions: rapid.IntRange(1, 4).Draw(t, "partitions"),
		grown:      rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "grown"),
		maxRecord:  rapid.SampledFrom([]int{1, 700, 1500, 1 << 20}).Draw(t, "max record"),
		room:       rapid.SampledFrom([]int{1, 3000, 1 << 20}).Draw(t, "room"),
		largest:    rapid.SampledFrom([]int{0, 0, 900}).Draw(t, "largest"),
		fates:      map[int][]outcome{},
	}
	p.steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			keys:  rapid.SliceOfN(rapid.IntRange(0, 9), 0, 8).Draw(t, "keys"),
			end:   rapid.Bool().Draw(t, "end"),
			mark:  rapid.IntRange(0, 3).Draw(t, "mark") == 0,
			pause: rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second}).Draw(t, "pause"),
			back:  rapid.IntRange(0, 9).Draw(t, "back") == 0,
		}
	}), 1, 30).Draw(t, "steps")
	for id := range p.partitions + p.grown {
		p.fates[id] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) outcome {
			return outcome{
				kind: rapid.SampledFrom([]string{"taken", "taken", "refused", "answer lost", "late"}).Draw(t, "kind"),
				after: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 200 * time.Millisecond, 3 * time.Second}).Draw(t,
					"after"),
			}
		}), 0, 15).Draw(t, "fates")
	}
	return p
}

// fate returns what becomes of an attempt. Its channels are those of the bubble that it is called in.
func (p plan) fate(topic string, partition, attempt int) fate {
	if topic != names.Topic || attempt > len(p.fates[partition]) {
		return fate{applied: true}
	}
	o := p.fates[partition][attempt-1]
	after := make(chan struct{})
	time.AfterFunc(o.after, func() { close(after) })
	switch o.kind {
	case "refused":
		return fate{until: after, err: errLost}
	case "answer lost":
		return fate{until: after, applied: true, err: errLost}
	case "late":
		return fate{late: after, err: context.DeadlineExceeded}
	}
	return fate{until: after, applied: true}
}

// play carries the plan out and returns what went wrong.
func (p plan) play(t *testing.T) error {
	f := newFake(p.partitions)
	f.fate, f.largest = p.fate, p.largest
	r := run(t, f, Options{MaxRecord: p.maxRecord, MaxBuffered: p.room, Refresh: 50 * time.Millisecond})
	m := &model{f: f, r: r, before: p.partitions, after: p.partitions + p.grown, done: make(chan struct{})}
	go m.watch()
	for i, s := range p.steps {
		time.Sleep(s.pause)
		if i == len(p.steps)/2 {
			f.resize(p.partitions + p.grown)
		}
		if s.mark {
			r.Mark(markAt(time.Now(), uint64(i+1), true))
			continue
		}
		if err := m.append(s, i); err != nil {
			return fmt.Errorf("append %d: %w", i, err)
		}
	}
	r.Close()
	<-m.done
	if err := r.stop(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	time.Sleep(10 * time.Second) // what is late has come
	if m.err != nil {
		return m.err
	}
	return m.checkAll()
}

// model is what must become of what was appended.
type model struct {
	f *fakeKafka
	r *running

	before, after int // partitions

	batches []*event.Batch
	pos     uint64
	done    chan struct{}
	ends    event.End
	err     error
}

func (m *model) append(s step, i int) error {
	if m.pos += 10; s.back {
		m.pos -= min(m.pos-1, 35)
	}
	keys := make([]string, len(s.keys))
	for j, k := range s.keys {
		keys[j] = fmt.Sprintf("key:%d", k)
	}
	b := part(int(m.pos), keys...)
	if s.end {
		b.End.AddTx("binlog.000001", uint64(i+1), event.GTID{Server: 1, Number: uint64(i + 1)}, time.Time{})
	}
	m.f.set(func() { m.batches = append(m.batches, b) })
	return m.r.Append(context.Background(), b)
}

// watch judges each end at the moment at which it is durable.
func (m *model) watch() {
	defer close(m.done)
	for e := range m.r.Durable() {
		m.ends.Add(e)
		if err := m.checkDurable(e.Pos); err != nil && m.err == nil {
			m.err = err
		}
	}
}

// checkDurable: everything up to the batch that ends at pos is in the log.
func (m *model) checkDurable(pos uint64) error {
	got, err := m.f.contents(nil)
	if err != nil {
		return err
	}
	var batches []*event.Batch
	m.f.set(func() { batches = slices.Clone(m.batches) })
	have := map[item]int{}
	for _, of := range got {
		for _, it := range of {
			have[it]++
		}
	}
	for _, b := range batches {
		for _, it := range items(b) {
			if have[it]--; have[it] < 0 {
				return fmt.Errorf("durable up to %d, but %v is not in the log", pos, it)
			}
		}
		if b.End.Pos == pos {
			return nil
		}
	}
	return fmt.Errorf("durable is %d, which no batch ends at", pos)
}

// checkAll: each key's invalidations are in the log once, in order; all ends came, and the marks tell where it all is.
func (m *model) checkAll() error {
	got, err := m.f.contents(nil)
	if err != nil {
		return err
	}
	inLog := 0
	var ends event.End
	want := map[string][]item{}
	for _, b := range m.batches {
		ends.Add(b.End)
		for _, it := range items(b) {
			want[it.key] = append(want[it.key], it)
		}
	}
	for k := range want {
		// When partitions are added a key may move. All of it in its old one is older than all of it in its new one.
		var have []item
		before, after := Partition(k, m.before), Partition(k, m.after)
		for id, of := range got {
			if id == before || id == after {
				have = append(have, of...)
			}
		}
		if before > after {
			have = append(slices.Clone(got[before]), got[after]...)
		}
		have = slices.DeleteFunc(have, func(it item) bool { return it.key != k })
		if !slices.Equal(have, want[k]) {
			return fmt.Errorf("key %s: the log has %v, want %v", k, have, want[k])
		}
		inLog += len(have)
	}
	for _, of := range got {
		inLog -= len(of)
	}
	if inLog != 0 {
		return fmt.Errorf("the log has %d invalidations more than were appended, or in the wrong partition", -inLog)
	}
	if m.ends.Pos != ends.Pos || !slices.Equal(m.ends.GTIDs, ends.GTIDs) {
		return fmt.Errorf("durable is %+v, want %+v", m.ends, ends)
	}
	return m.checkMark()
}

// checkMark: at the end the last mark says that all up to the newest moment is acknowledged, and where it lies.
func (m *model) checkMark() error {
	last := m.r.ledger.marks
	if !last.given {
		return nil
	}
	if last.moments.Waits() || last.moments.At() != last.newest.Made || !last.told() {
		return fmt.Errorf("when all is acknowledged, the marks say %+v", last)
	}
	return nil
}

func TestWhateverKafkaDoesNothingIsLostOrOutOfOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.play(t) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}
