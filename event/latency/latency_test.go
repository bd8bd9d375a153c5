package latency

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func near(got, want time.Duration) bool { return got >= want && got <= want+want/4+time.Microsecond }

func TestPercentilesAreOfTheLastMinute(t *testing.T) {
	h := New().Delete
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for range 98 {
		h.Observe(10*time.Millisecond, now)
	}
	h.Observe(2*time.Second, now)
	h.Observe(2*time.Second, now)
	p := h.LastMinute(now.Add(59 * time.Second))
	if p.Count != 100 || !near(p.P50, 10*time.Millisecond) || !near(p.P99, 2*time.Second) {
		t.Errorf("p50 %s, p99 %s of %d", p.P50, p.P99, p.Count)
	}
	if p := h.LastMinute(now.Add(80 * time.Second)); p != (Percentiles{}) {
		t.Errorf("80 s later: %+v", p)
	}
	// The slot of that time is used again, and what was in it is gone.
	later := now.Add(windowSlots * windowStep)
	h.Observe(time.Microsecond, later)
	if p := h.LastMinute(later); p.Count != 1 || p.P99 > 2*time.Microsecond {
		t.Errorf("a window later: %+v", p)
	}
}

func TestEveryDurationFallsIntoABucketThatHoldsIt(t *testing.T) {
	for d := time.Duration(0); d < 1000*time.Hour; d += d/16 + time.Microsecond {
		i := fineBucket(d)
		if d >= fineBound(i) || i > 0 && d < fineBound(i-1) {
			t.Fatalf("%s in bucket %d: up to %s", d, i, fineBound(i))
		}
	}
	if i := fineBucket(1 << 62); i >= fineBuckets {
		t.Errorf("the longest is in bucket %d", i)
	}
}

func TestEachTransactionOfABatchCountsOnce(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	var b event.Batch
	for _, ago := range []time.Duration{3 * time.Second, 3 * time.Second, time.Second, -time.Second} {
		b.AddOrigin(event.Origin{Tx: event.Tx{Committed: now.Add(-ago)}})
	}
	b.AddOrigin(event.Origin{}) // its commit time is not known
	h := New().Read
	h.Commits(&b, now)
	if p := h.LastMinute(now); p.Count != 3 || !near(p.P50, time.Second) || !near(p.P99, 3*time.Second) {
		t.Errorf("%+v", p)
	}
	if h.sum != 4e9 {
		t.Errorf("the sum is %v ns: a commit in the future counts as 0", h.sum)
	}
}

func TestABoundBelongsToItsBucket(t *testing.T) {
	h := New().Fetch
	now := time.Now()
	for _, ms := range []int{1, 2, 7_200_000, 7_200_001} {
		h.Observe(time.Duration(ms)*time.Millisecond, now)
	}
	for i, want := range map[int]uint64{3: 1, 4: 1, buckets - 1: 1, buckets: 1} {
		if h.counts[i] != want {
			t.Errorf("%d in bucket %d, want %d: %v", h.counts[i], i, want, h.counts)
		}
	}
}

func BenchmarkCommits(b *testing.B) {
	var batch event.Batch
	now := time.Now()
	for i := range 1000 {
		batch.AddOrigin(event.Origin{Tx: event.Tx{Committed: now.Add(-time.Duration(i) * 37 * time.Microsecond)}})
	}
	h := New().Read
	for b.Loop() {
		h.Commits(&batch, now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/transaction")
}

func TestMetricsAreWellFormed(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New()
	if err := s.Register(reg); err != nil {
		t.Fatal(err)
	}
	s.Finish.Observe(100*time.Hour, time.Now()) // beyond the last bucket
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			names[name] = true
			if name == "freshet_stage_seconds finish" && m.Histogram.GetSampleCount() != 1 {
				t.Errorf("%d finished", m.Histogram.GetSampleCount())
			}
		}
	}
	for _, stage := range s.LastMinute(time.Now()) {
		if !names["freshet_stage_seconds "+stage.Name] {
			t.Errorf("no metric for the stage %s", stage.Name)
		}
	}
	if len(names) != 6 {
		t.Errorf("metrics: %v", names)
	}
	if New().Register(nil) != nil || s.Register(reg) == nil {
		t.Error("registered nowhere must do, twice must not")
	}
}
