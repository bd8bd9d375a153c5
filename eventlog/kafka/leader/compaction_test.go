package leader

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// compacted waits until the brokers have removed everything that later records have replaced below an offset. The
// open segment is never compacted, so it keeps writing: which closes it, once it is old enough.
func (r *rig) compacted(below int64) {
	r.t.Helper()
	for n := 0; ; n++ {
		seen := map[string]int{}
		_, err := r.client.ReadAll(r.t.Context(), r.name(), 0, func(rec broker.Record) error {
			if rec.Offset < below {
				seen[string(rec.Key)]++
			}
			return nil
		})
		must(r.t, err)
		if len(seen) > 0 && slices.Max(slices.Collect(maps.Values(seen))) == 1 {
			return
		}
		r.produce("filler/"+fmt.Sprint(n%2), []byte("x"))
	}
}

// history lets four leaders work: each stashes, saves many times, and all but the last replace their State. It returns
// the last, the transactions that stay prepared, and the position.
func (r *rig) history() (last *Checkpoint, prepared []string, pos uint64) {
	r.t.Helper()
	pos = 4
	for life := range 4 {
		last = r.open()
		if life == 0 {
			must(r.t, last.Begin(place(pos)))
		}
		xid := fmt.Sprint("xid ", life)
		must(r.t, last.Stash().Begin(xid, at(pos)).Append(stashed(xid+" a")))
		must(r.t, last.Stash().Begin("gone", at(pos)).Append(stashed("gone")))
		last.Stash().Resolve("gone", at(pos+1), to(pos+2))
		prepared = append(prepared, xid)
		for n := range 60 {
			pos += 3
			e := to(pos)
			if n%20 == 7 && life != 3 {
				e.State = fmt.Appendf(nil, "state %d %d", life, n)
			}
			last.Advance(e)
			must(r.t, last.Save())
		}
	}
	return last, prepared, pos
}

func TestCompactionKeepsWhatMatters(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Properties: []string{
		"log.cleaner.backoff.ms=50", "log.cleaner.min.cleanable.ratio=0.01", "log.initial.task.delay.ms=0",
	}})
	r := newRigOn(t, cluster, "segment.ms=100", "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=0",
		"max.compaction.lag.ms=200")
	last, prepared, pos := r.history()
	stale := r.open() // takes a term and saves nothing
	r.compacted(stale.reign.next)

	s := r.snapshot()
	if len(s.live) > 15 {
		t.Errorf("the topic still holds %d keys: %q", len(s.live), r.keys())
	}
	// A chunk whose request arrives a second time: what the index knows as its place is compacted away.
	again := chunkKey(stale.Stash().List()[0].Name, 1)
	value, err := r.fetch(t.Context(), again, s.live[again].offset)
	must(t, err)
	r.compacted(r.produce(again, value) + 1)
	if got := r.recalled(stale, prepared[0]); len(got) != 1 || got[0] != prepared[0]+" a" {
		t.Errorf("from its second place %s is %q", again, got)
	}

	last.Advance(to(pos + 1000))
	if err := last.Save(); err == nil {
		t.Error("the leader before saves")
	}
	r.compacted(r.snapshot().next)
	cp := r.open()
	p := cp.Position()
	if p.Pos != pos || string(p.State) != "state 2 47" || cp.Term() <= stale.Term() {
		t.Errorf("the position is %s with state %q in term %d; want %d, in a term above %d", p.String(), p.State, cp.Term(),
			pos, stale.Term()+1)
	}
	for _, xid := range prepared {
		if got := r.recalled(cp, xid); len(got) != 1 || got[0] != xid+" a" {
			t.Errorf("%s holds %q", xid, got)
		}
	}
	if got := r.recalled(cp, "gone"); len(got) != 0 {
		t.Errorf("what was resolved is back: %q", got)
	}
	cp.Advance(event.End{File: "binlog.000001", Pos: pos + 1})
	must(t, cp.Save())
}
