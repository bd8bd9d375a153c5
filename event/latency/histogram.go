package latency

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/event"
)

// Histogram counts durations, for Prometheus since the start and as percentiles of the last minute. It is fed for
// whole batches: it counts in plain numbers, under one lock for all that is known at once.
type Histogram struct {
	desc   *prometheus.Desc
	bounds [buckets]time.Duration // upper bounds of the Prometheus buckets

	mu     sync.Mutex
	counts [buckets + 1]uint64
	sum    float64 // in nanoseconds
	slots  [windowSlots]windowSlot
}

const buckets = 21

func newHistogram(d *prometheus.Desc) *Histogram {
	const us, ms, s = time.Microsecond, time.Millisecond, time.Second
	return &Histogram{desc: d, bounds: [...]time.Duration{
		100 * us, 250 * us, 500 * us, ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		s, 2500 * ms, 5 * s, 10 * s, 30 * s, 60 * s, 300 * s, 1800 * s, 7200 * s,
	}}
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

// Observe counts one duration that ended now.
func (h *Histogram) Observe(d time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(d, h.slot(now))
}

// Commits counts each transaction of a batch once: from its commit, by the source's clock, until now. Transactions
// without a commit time are left out.
func (h *Histogram) Commits(b *event.Batch, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slot := h.slot(now)
	for i := range b.Origins {
		o := &b.Origins[i]
		if i > 0 && o.Committed == b.Origins[i-1].Committed {
			continue
		}
		if at := o.Time(); !at.IsZero() {
			h.add(now.Sub(at), slot)
		}
	}
}

// add counts one duration. The caller holds mu.
func (h *Histogram) add(d time.Duration, slot *windowSlot) {
	d = max(d, 0)
	h.sum += float64(d)
	h.counts[h.bucket(d)]++
	slot.counts[fineBucket(d)]++
}

// bucket returns the first whose bound is not below d.
func (h *Histogram) bucket(d time.Duration) int {
	low, high := 0, buckets
	for low < high {
		if middle := (low + high) / 2; h.bounds[middle] < d {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// slot returns the present slot of the window, emptied if it held an older step. The caller holds mu.
func (h *Histogram) slot(now time.Time) *windowSlot {
	step := now.UnixNano() / int64(windowStep)
	s := &h.slots[step%windowSlots]
	if s.step != step {
		*s = windowSlot{step: step}
	}
	return s
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
	P50, P99 time.Duration
	// Count is how many durations ended in it.
	Count uint64
}

// LastMinute returns the percentiles of the minute before now, to within an eighth.
func (h *Histogram) LastMinute(now time.Time) Percentiles {
	var sum [fineBuckets]uint64
	var p Percentiles
	oldest := now.UnixNano()/int64(windowStep) - windowSlots + 1
	h.mu.Lock()
	for i := range h.slots {
		if h.slots[i].step < oldest {
			continue
		}
		for j, n := range h.slots[i].counts {
			sum[j] += uint64(n)
			p.Count += uint64(n)
		}
	}
	h.mu.Unlock()
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
func (h *Histogram) Describe(c chan<- *prometheus.Desc) { c <- h.desc }

// Collect implements [prometheus.Collector].
func (h *Histogram) Collect(c chan<- prometheus.Metric) {
	upTo := make(map[float64]uint64, buckets)
	h.mu.Lock()
	var total uint64
	for i, b := range h.bounds {
		total += h.counts[i]
		upTo[b.Seconds()] = total
	}
	total += h.counts[buckets]
	sum := h.sum / float64(time.Second)
	h.mu.Unlock()
	c <- prometheus.MustNewConstHistogram(h.desc, total, sum, upTo)
}
