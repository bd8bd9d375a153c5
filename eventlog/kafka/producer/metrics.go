package producer

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// metrics are one producer's. They begin again with each term.
type metrics struct {
	records, bytes, invalidations, forgotten prometheus.Counter

	seconds  prometheus.Histogram
	retries  *prometheus.CounterVec
	inFlight prometheus.Gauge
	marks    markMetrics
	ofLedger []prometheus.Collector
}

type markMetrics struct {
	produced prometheus.Counter
	retries  *prometheus.CounterVec
}

func newMetrics(l *ledger) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	byClass := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"class"})
		for _, c := range broker.Classes() {
			v.WithLabelValues(c.String())
		}
		return v
	}
	return &metrics{
		records: counter("freshet_kafka_produced_records_total",
			"Records of invalidations that the brokers have acknowledged."),
		bytes: counter("freshet_kafka_produced_bytes_total",
			"Size of the acknowledged records of invalidations, before compression."),
		invalidations: counter("freshet_kafka_produced_invalidations_total", "Invalidations in the acknowledged records."),
		forgotten: counter("freshet_kafka_produced_forgotten_total",
			"Invalidations in the acknowledged records whose payload was left out, since it was too large or did not fit its action."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freshet_kafka_produce_seconds", Help: "How long the brokers took to acknowledge a record of invalidations.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		retries: byClass("freshet_kafka_produce_failures_total",
			"Attempts to produce invalidations, or to learn about their topic, that failed and were repeated, by class of error."),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshet_kafka_produce_in_flight",
			Help: "Partitions with a record of invalidations on its way to the brokers.",
		}),
		marks: markMetrics{
			produced: counter("freshet_kafka_produced_marks_total", "Visibility marks that the brokers have acknowledged."),
			retries: byClass("freshet_kafka_mark_failures_total",
				"Attempts to produce a visibility mark that failed, by class of error."),
		},
		ofLedger: ledgerMetrics(l),
	}
}

func ledgerMetrics(l *ledger) []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	return []prometheus.Collector{
		gauge("freshet_kafka_producer_buffered_bytes", "Memory of the batches that the brokers have not acknowledged.",
			func() float64 {
				bytes, _ := l.usage()
				return float64(bytes)
			}),
		gauge("freshet_kafka_producer_oldest_seconds",
			"For how long the oldest batch has been waiting to be acknowledged; 0 when none is.", func() float64 {
				_, oldest := l.usage()
				return oldest.Seconds()
			}),
		gauge("freshet_kafka_producer_fresh_timestamp_seconds",
			"As of when everything that the source held is acknowledged by the brokers; 0 while that is not known.",
			func() float64 {
				asOf := l.asOf()
				if asOf.IsZero() {
					return 0
				}
				return float64(asOf.UnixMilli()) / 1000
			}),
	}
}

// produced counts an acknowledged record.
func (m *metrics) produced(r *sealed) {
	m.records.Inc()
	m.bytes.Add(float64(len(r.value)))
	m.invalidations.Add(float64(r.rows))
	m.forgotten.Add(float64(r.forgotten))
}

// register registers the metrics. A process that leads again does so with a new producer, so they are taken back.
func (m *metrics) register(reg prometheus.Registerer) (unregister func(), err error) {
	if reg == nil {
		return func() {}, nil
	}
	all := append([]prometheus.Collector{
		m.records, m.bytes, m.invalidations, m.forgotten, m.seconds, m.retries, m.inFlight, m.marks.produced, m.marks.retries,
	}, m.ofLedger...)
	var registered []prometheus.Collector
	var errs []error
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			errs = append(errs, err)
			continue
		}
		registered = append(registered, c)
	}
	return func() {
		for _, c := range registered {
			reg.Unregister(c)
		}
	}, errors.Join(errs...)
}
