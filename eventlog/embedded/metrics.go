package embedded

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/retry"
)

// metrics are the store's.
type metrics struct {
	parked, dead, bytes, stashed prometheus.Gauge
	seconds                      *prometheus.HistogramVec
	failures                     *prometheus.CounterVec
}

// The writes that save what belongs to the work.
const (
	opPutDoubt  = "put doubt"
	opDropDoubt = "drop doubt"
	opSetFact   = "set fact"
	opDropFact  = "drop fact"
)

// operations returns the names of the store's writes.
func operations() []string {
	return []string{
		"save the position", "take a term", "save the mappings' hash", "park", "settle", "replay", "purge", "stash",
		opPutDoubt, opDropDoubt, opSetFact, opDropFact,
	}
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		parked:  gauge("freshet_store_parked_keys", "Keys in trouble that wait for their next attempt."),
		dead:    gauge("freshet_store_dead_letters", "Keys that were given up after their last attempt."),
		bytes:   gauge("freshet_store_bytes", "Size of parked keys and dead letters."),
		stashed: gauge("freshet_store_stashed_keys", "Keys of XA transactions that are prepared and not yet committed."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freshet_store_write_seconds", Help: "How long a durable write to the store took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"operation"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_store_write_failures_total", Help: "Writes to the store that failed; each is tried again.",
		}, []string{"operation"}),
	}
	for _, op := range operations() {
		m.seconds.WithLabelValues(op)
		m.failures.WithLabelValues(op)
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.parked, m.dead, m.bytes, m.stashed, m.seconds, m.failures}
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range m.collectors() {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}

func (m *metrics) wrote(op string, took time.Duration, err error) {
	m.seconds.WithLabelValues(op).Observe(took.Seconds())
	if err != nil && !errors.Is(err, retry.ErrFull) {
		m.failures.WithLabelValues(op).Inc()
	}
}

func (m *metrics) note(u usage) {
	m.parked.Set(float64(u.Parked))
	m.dead.Set(float64(u.Dead))
	m.bytes.Set(float64(u.Bytes))
}

// Usage is how much the store holds.
type Usage struct {
	// Parked and DeadLetters count entries; Bytes is the size of both.
	Parked, DeadLetters int
	Bytes               int64
}

// Usage returns how much the store holds.
func (s *Store) Usage() (Usage, error) {
	var u usage
	err := s.view("read the usage", func(tx *bolt.Tx) error { return readUsage(tx, &u) })
	return Usage{u.Parked, u.Dead, u.Bytes}, err
}

// Held returns how many keys in trouble the store holds.
func (s *Store) Held() (retry.Held, error) {
	u, err := s.Usage()
	return retry.Held{Parked: u.Parked, DeadLetters: u.DeadLetters, Counted: true}, err
}

// noteUsage sets the metrics to what the file holds.
func (s *Store) noteUsage() error {
	var u usage
	err := s.view("read the usage", func(tx *bolt.Tx) error { return readUsage(tx, &u) })
	if err == nil {
		s.metrics.note(u)
	}
	return err
}

// logMetrics are the log's.
type logMetrics struct{ batches prometheus.Counter }

func newLogMetrics() *logMetrics {
	return &logMetrics{batches: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freshet_eventlog_batches_total", Help: "Batches handed from the reader to the event log.",
	})}
}

func (m *logMetrics) register(reg prometheus.Registerer, l *Log) error {
	if reg == nil {
		return nil
	}
	return errors.Join(
		reg.Register(m.batches),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freshet_eventlog_queued_batches", Help: "Batches that wait to be fetched by the invalidator.",
		}, func() float64 { return float64(l.queue.len()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freshet_eventlog_uncommitted_batches", Help: "Batches with progress that were fetched and are not finished.",
		}, func() float64 { return float64(l.pending.uncommitted()) })),
	)
}
