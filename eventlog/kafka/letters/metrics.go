package letters

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/retry"
)

// The store's operations, as its metrics name them.
const (
	opPark   = "park"
	opSettle = "settle"
	opReplay = "replay"
	opPurge  = "purge"
	opBury   = "bury"
)

func operations() []string { return []string{opPark, opSettle, opReplay, opPurge, opBury} }

// metrics are the store's. Those that the embedded store has as well have its names: dashboards serve both.
type metrics struct {
	unreadable prometheus.Counter
	seconds    *prometheus.HistogramVec
	failures   *prometheus.CounterVec
	gauges     []prometheus.Collector
}

func newMetrics(s *Store) *metrics {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	usage := func() retry.Held {
		u, _ := s.Held() // the last that was known, where there is an error
		return u
	}
	m := &metrics{
		unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshet_store_unreadable_records_total",
			Help: "Parked keys that could not be read and were kept whole as dead letters.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freshet_store_write_seconds", Help: "How long a durable write to the store took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"operation"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_store_write_failures_total", Help: "Writes to the store that failed; each is tried again.",
		}, []string{"operation"}),
		gauges: []prometheus.Collector{
			gauge("freshet_store_parked_keys", "Keys in trouble that wait for their next attempt.",
				func() float64 { return float64(usage().Parked) }),
			gauge("freshet_store_dead_letters", "Keys that were given up after their last attempt.",
				func() float64 { return float64(usage().DeadLetters) }),
			gauge("freshet_store_window_keys", "Parked keys that are in memory, as the next to be tried.",
				func() float64 { return float64(s.inWindows()) }),
		},
	}
	for _, op := range operations() {
		m.seconds.WithLabelValues(op)
		m.failures.WithLabelValues(op)
	}
	return m
}

// inWindows returns how many entries are in memory.
func (s *Store) inWindows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.windows {
		n += len(w.items)
	}
	return n
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	errs := []error{reg.Register(m.unreadable), reg.Register(m.seconds), reg.Register(m.failures)}
	for _, g := range m.gauges {
		errs = append(errs, reg.Register(g))
	}
	return errors.Join(errs...)
}

// time begins an operation; what it returns is called when it has ended with *err.
func (m *metrics) time(op string, err *error) func() {
	start := time.Now()
	return func() {
		m.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
		var still *StillUnreadable
		if *err != nil && !errors.As(*err, &still) {
			m.failures.WithLabelValues(op).Inc()
		}
	}
}
