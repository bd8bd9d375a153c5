package hot

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

const perBatch = 2000

// benchBatches makes batches as the reader does: skewed keys, each row's two keys one after the other.
func benchBatches() []*event.Batch {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 10, 10_000_000)
	all := make([]*event.Batch, 64)
	for i := range all {
		var b event.Batch
		b.Reset()
		for b.Len() < perBatch {
			if b.Len()%200 == 0 {
				b.AddOrigin(event.Origin{Table: fmt.Sprintf("shop.product_%02d", b.Len()/200)})
			}
			b.Add(fmt.Appendf(b.Text(), "product:%d", zipf.Uint64()), 1, event.ActionDelete)
			b.Add(fmt.Appendf(b.Text(), "category:%d:products", zipf.Uint64()%1000), 1, event.ActionDelete)
		}
		all[i] = b.Clone()
	}
	return all
}

var sink int

// BenchmarkCount is what counting costs, at a rate that the clock pretends, compared with only walking over the keys.
// An operation is a batch of 2000 keys.
func BenchmarkCount(b *testing.B) {
	batches := benchBatches()
	run := func(name string, count func(*event.Batch)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				count(batches[i%len(batches)])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perBatch, "ns/key")
		})
	}
	run("nothing", func(b *event.Batch) { sink += b.Len() })
	run("walk", func(b *event.Batch) {
		for i := range b.Len() {
			sink += len(b.Key(i))
		}
	})
	for _, rate := range []int{100_000, 300_000, 1_000_000, 3_000_000} {
		s := small(b, Options{})
		clock := s.start
		s.now = func() time.Time { return clock }
		run(fmt.Sprintf("%dk_keys_a_second", rate/1000), func(b *event.Batch) {
			clock = clock.Add(time.Duration(perBatch) * time.Second / time.Duration(rate))
			s.Count(b)
		})
	}
}

// BenchmarkLook is one sample: a key and its table. Cold keys displace each other at every one.
func BenchmarkLook(b *testing.B) {
	batches := benchBatches()
	s := small(b, Options{Samples: 1 << 40})
	clock := s.start
	s.now = func() time.Time { return clock }
	for i := 0; b.Loop(); i++ {
		s.Count(batches[i%len(batches)])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perBatch, "ns/key")
}
