package invalidator

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

// benchPartition is a partition whose loop does not run: what belongs to the loop is the benchmark's.
func benchPartition(b *testing.B) (*partitionLoop, *fakeLog) {
	e := start(b, Deps{Redis: noRedis{}, Rebuilder: benchRebuilder{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Options{})
	caughtUp(e)
	log := newFakeLog()
	s := newPartition(b.Context(), e, log, false)
	b.Cleanup(func() {
		s.giveUp()
		s.timer.Stop()
	})
	return s, log
}

// BenchmarkTracker is the tracker of finished work: an operation is an entry that is made, finished after and before
// others, and committed once it stands below the low watermark. "in order" is how most work ends.
func BenchmarkTracker(b *testing.B) {
	const window = 256
	for name, order := range map[string][]int{
		"in order": inOrder(window), "out of order": rand.New(rand.NewPCG(1, 2)).Perm(window),
	} {
		b.Run(name, func(b *testing.B) {
			s, log := benchPartition(b)
			groups := []group{{d: time.Second, class: deletes, size: 1, node: s.topo.nodes[0]}}
			var entries [window]*entry
			b.ReportAllocs()
			for n := 0; n < b.N; n += window {
				for i := range entries {
					entries[i] = newEntry(&event.Batch{Source: "s"}, token{n: n + i + 1}, groups, always, s.now)
					s.take(entries[i].load())
					s.entries.push(entries[i])
				}
				for _, i := range order {
					s.finish(&entries[i].units[0])
					s.commit()
				}
			}
			if want := (b.N + window - 1) / window * window; log.watermark() != want {
				b.Fatalf("committed up to %d of %d", log.watermark(), want)
			}
		})
	}
}

func inOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// BenchmarkDue is the queues of final actions: an operation is a unit that begins to wait, with one of three D, while a
// hundred thousand wait, and falls due when it is the oldest of its D.
func BenchmarkDue(b *testing.B) {
	const waiting = 100_000
	s, _ := benchPartition(b)
	ds := []time.Duration{200 * time.Millisecond, 2 * time.Second, 10 * time.Second}
	units := make([]*unit, waiting)
	for i := range units {
		g := group{d: ds[i%len(ds)], class: deletes, size: 1, node: s.topo.nodes[0]}
		e := newEntry(&event.Batch{Source: "s"}, token{n: i + 1}, []group{g}, always, s.now)
		e.aged = s.now
		units[i] = &e.units[0]
		units[i].known = s.now
		s.enqueueDue(units[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q := s.outboxes[0].due[i%len(ds)]
		u := q.units.head()
		if s.dueAt(u) == never {
			b.Fatal("it never falls due")
		}
		s.enqueueDue(q.units.pop())
	}
	n := 0
	for _, q := range s.outboxes[0].due {
		n += q.units.len()
	}
	if n != waiting {
		b.Fatalf("%d wait, want %d", n, waiting)
	}
}
