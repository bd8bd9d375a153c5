package invalidator

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/event"
)

// latency is the headline: how long after its commit, by the source's clock, a transaction's keys were deleted. It
// counts each transaction of a batch once. All methods may be called by any goroutine.
//
// It is a collector of its own, because it is fed for each transaction: it counts in plain numbers, under one lock
// for a whole batch.
type latency struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	counts [latencyBuckets + 1]uint64
	sum    float64
	slots  [windowSlots]windowSlot
}

const latencyBuckets = 18

// latencyBounds returns the upper bounds of the histogram's buckets, in seconds.
func latencyBounds() [latencyBuckets]float64 {
	return [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
}

// The window of the percentiles: the last minute, in steps of ten seconds.
const (
	windowSlots = 7
	windowStep  = 10 * time.Second
	// fineBuckets are of microseconds, eight for each doubling.
	fineBuckets = 8 * 48
)

type windowSlot struct {
	step   int64 // which ten seconds
	counts [fineBuckets]uint32
}

func newLatency() *latency {
	return &latency{desc: prometheus.NewDesc("freshet_invalidation_latency_seconds",
		"From a transaction's commit, by the source's clock, until Redis had acknowledged the first delete of its keys.",
		nil, nil)}
}

// observe counts the transactions of a batch whose keys have all been deleted by now.
func (l *latency) observe(b *event.Batch, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := l.slot(now)
	var last time.Time
	for i := range b.Origins {
		at := b.Origins[i].Tx.Committed
		if at.IsZero() || at.Equal(last) && i > 0 {
			continue
		}
		last = at
		d := max(now.Sub(at), 0)
		l.sum += d.Seconds()
		l.counts[bucket(d.Seconds())]++
		slot.counts[fineBucket(d)]++
	}
}

// slot returns the present slot of the window, emptied if it held an older step. The caller holds mu.
func (l *latency) slot(now time.Time) *windowSlot {
	step := now.UnixNano() / int64(windowStep)
	s := &l.slots[step%windowSlots]
	if s.step != step {
		*s = windowSlot{step: step}
	}
	return s
}

func bucket(seconds float64) int {
	for i, b := range latencyBounds() {
		if seconds <= b {
			return i
		}
	}
	return latencyBuckets
}

func fineBucket(d time.Duration) int {
	us := uint64(d.Microseconds())
	if us < 8 {
		return int(us)
	}
	n := bits.Len64(us) // at least 4
	return min((n-3)*8+int(us>>(n-4)&7), fineBuckets-1)
}

// fineBound returns the upper bound of a fine bucket.
func fineBound(i int) time.Duration {
	if i < 8 {
		return time.Duration(i+1) * time.Microsecond
	}
	n := i/8 + 3
	return time.Duration(uint64(8+i%8+1)<<(n-4)) * time.Microsecond
}

// Percentiles are of the last minute; zero when there was nothing.
type Percentiles struct {
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Count uint64        `json:"count"`
}

func (l *latency) lastMinute(now time.Time) Percentiles {
	var sum [fineBuckets]uint64
	var p Percentiles
	oldest := now.UnixNano()/int64(windowStep) - windowSlots + 1
	l.mu.Lock()
	for i := range l.slots {
		if l.slots[i].step < oldest {
			continue
		}
		for j, n := range l.slots[i].counts {
			sum[j] += uint64(n)
			p.Count += uint64(n)
		}
	}
	l.mu.Unlock()
	p.P50, p.P99 = quantile(&sum, p.Count, 0.5), quantile(&sum, p.Count, 0.99)
	return p
}

func quantile(counts *[fineBuckets]uint64, total uint64, q float64) time.Duration {
	if total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(total)))
	var seen uint64
	for i, n := range counts {
		if seen += n; seen >= rank {
			return fineBound(i)
		}
	}
	return fineBound(fineBuckets - 1)
}

// Describe implements [prometheus.Collector].
func (l *latency) Describe(c chan<- *prometheus.Desc) { c <- l.desc }

// Collect implements [prometheus.Collector].
func (l *latency) Collect(c chan<- prometheus.Metric) {
	buckets := make(map[float64]uint64, latencyBuckets)
	l.mu.Lock()
	var total uint64
	for i, b := range latencyBounds() {
		total += l.counts[i]
		buckets[b] = total
	}
	total += l.counts[latencyBuckets]
	sum := l.sum
	l.mu.Unlock()
	c <- prometheus.MustNewConstHistogram(l.desc, total, sum, buckets)
}
