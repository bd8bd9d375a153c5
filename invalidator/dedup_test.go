package invalidator

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// batchWith makes a batch of key and D pairs.
func batchWith(pairs ...any) *event.Batch {
	var b event.Batch
	b.Reset()
	b.Source, b.Term = "s", 1
	for i := 0; i < len(pairs); i += 2 {
		v := event.Version{Epoch: 1, File: 1, Pos: uint64(4 + i)}
		b.AddOrigin(event.Origin{Table: "shop.product", Event: v, D: pairs[i+1].(time.Duration)})
		b.Add(append(b.Text(), pairs[i].(string)...), 1, event.ActionDelete)
	}
	return b.Clone()
}

func TestOfDuplicatesTheLargestDStays(t *testing.T) {
	const short, long = time.Second, 2 * time.Second
	for _, c := range []struct {
		name  string
		batch *event.Batch
		want  map[time.Duration][]uint32
	}{
		{"nothing", batchWith(), map[time.Duration][]uint32{}},
		{"none", batchWith("a", short, "b", short), map[time.Duration][]uint32{short: {0, 1}}},
		{"the same D", batchWith("a", short, "b", short, "a", short), map[time.Duration][]uint32{short: {0, 1}}},
		{"a larger D first", batchWith("a", long, "b", short, "a", short), map[time.Duration][]uint32{long: {0}, short: {1}}},
		{"a larger D later", batchWith("a", short, "b", short, "a", long), map[time.Duration][]uint32{short: {1}, long: {2}}},
		{"a larger D later, and nothing else", batchWith("a", short, "a", long), map[time.Duration][]uint32{long: {1}}},
		{
			"a D and none", batchWith("a", time.Duration(0), "a", short, "a", time.Duration(0)),
			map[time.Duration][]uint32{short: {1}},
		},
		{"the empty key", batchWith("", short, "", short), map[time.Duration][]uint32{short: {0}}},
	} {
		var s dedup
		groups, _ := s.split(c.batch)
		if diff := cmp.Diff(c.want, ordinals(groups)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func ordinals(groups []group) map[time.Duration][]uint32 {
	m := map[time.Duration][]uint32{}
	for _, g := range groups {
		if g.idx == nil {
			for i := range g.size {
				m[g.d] = append(m[g.d], uint32(i))
			}
		} else {
			m[g.d] = g.idx
		}
		if len(m[g.d]) != g.size {
			panic("a group of another size than it says")
		}
	}
	return m
}

func TestEveryKeyOfABatchStaysOnce(t *testing.T) {
	var s dedup
	rapid.Check(t, func(t *rapid.T) {
		var pairs []any
		n := rapid.SampledFrom([]int{0, 1, 5, 300, 3000}).Draw(t, "keys")
		distinct := rapid.IntRange(1, 2*n+1).Draw(t, "distinct")
		ds := rapid.IntRange(1, 3).Draw(t, "Ds")
		want := map[string]time.Duration{}
		r := rapid.Uint64().Draw(t, "seed")
		next := func(n int) int {
			r = r*6364136223846793005 + 1442695040888963407
			return int(r>>33) % n
		}
		for range n {
			key, d := fmt.Sprintf("key:%d", next(distinct)), time.Duration(next(ds))*time.Second
			pairs = append(pairs, key, d)
			want[key] = max(want[key], d)
		}
		b := batchWith(pairs...)
		groups, duplicates := s.split(b)
		got := map[string]time.Duration{}
		size := 0
		for d, idx := range ordinals(groups) {
			for _, i := range idx {
				got[b.Key(int(i))] = d
				size++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if size != len(want) || duplicates != n-size {
			t.Fatalf("%d keys and %d duplicates of %d", size, duplicates, n)
		}
	})
}

func TestAQueueIsFirstInFirstOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q fifo[int]
		var model []int
		for i := range rapid.IntRange(0, 60).Draw(t, "rounds") {
			for j := range rapid.IntRange(0, 400).Draw(t, "pushes") {
				q.push(i*1000 + j)
				model = append(model, i*1000+j)
			}
			for range rapid.IntRange(0, 400).Draw(t, "pops") {
				if len(model) == 0 {
					break
				}
				if q.head() != model[0] || q.pop() != model[0] {
					t.Fatal("out of order")
				}
				model = model[1:]
			}
			if q.len() != len(model) || len(q.ring) > 1024 && len(q.ring) > 16*(len(model)+400) {
				t.Fatalf("%d elements, want %d, in a ring of %d", q.len(), len(model), len(q.ring))
			}
		}
	})
}
