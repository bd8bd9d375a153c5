package producer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsTellWhatIsProduced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		f := newFake(1)
		release := make(chan struct{})
		f.fate = func(_ string, _, attempt int) fate {
			if attempt == 1 {
				return fate{until: release, err: errLost}
			}
			return fate{applied: true}
		}
		r := run(t, f, Options{Registerer: reg})
		r.append(batch(1, "a", "b"))
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if got := testutil.ToFloat64(r.metrics.inFlight); got != 1 {
			t.Errorf("%v in flight", got)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		if got := gathered(t, reg, "freshet_kafka_producer_oldest_seconds"); got != 3 {
			t.Errorf("the oldest batch has waited for %v s", got)
		}
		if got := gathered(t, reg, "freshet_kafka_producer_buffered_bytes"); got < 100 {
			t.Errorf("%v bytes are buffered", got)
		}
		close(release)
		r.flush()
		m := r.metrics
		if records, keys, failed := testutil.ToFloat64(m.records), testutil.ToFloat64(m.invalidations),
			testutil.ToFloat64(m.retries.WithLabelValues("transient")); records != 1 || keys != 2 || failed != 1 {
			t.Errorf("%v records, %v invalidations, %v failures", records, keys, failed)
		}
		if got := gathered(t, reg, "freshet_kafka_producer_buffered_bytes"); got != 0 {
			t.Errorf("%v bytes are buffered in the end", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		// The next term's producer registers its own.
		next := run(t, f, Options{Registerer: reg})
		next.flush()
		if err := next.stop(); err != nil {
			t.Error(err)
		}
	})
}

// gathered returns the value of a gauge.
func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
