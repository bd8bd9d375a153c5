package invalidator

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the engine's. They are fed for each job or batch, never for each key.
type metrics struct {
	sent, acked [kinds]prometheus.Counter
	ackedKeys   atomic.Uint64 // the sum of acked

	found, duplicates, repeated, refused      prometheus.Counter
	parked, settled, buried, retries, outages prometheus.Counter

	redisUp prometheus.Gauge
	trip    prometheus.Histogram

	all []prometheus.Collector
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{all: []prometheus.Collector{partitionLag{e}}}
	sent := m.counterVec("deletes_sent_total", "Keys sent to Redis to be deleted, by which delete it is.", "delete")
	acked := m.counterVec("deletes_acknowledged_total", "Keys whose delete Redis acknowledged, by which delete it is.", "delete")
	for k := range kinds {
		m.sent[k] = sent.WithLabelValues(k.String())
		m.acked[k] = acked.WithLabelValues(k.String())
	}
	m.found = m.counter("keys_found_total", "Deleted keys that existed in Redis.")
	m.duplicates = m.counter("duplicates_total", "Keys left out because their batch held them already.")
	m.repeated = m.counter("deletes_repeated_total", "Keys whose final delete is repeated because Redis was silent around it.")
	m.refused = m.counter("commands_refused_total", "Commands that Redis refused for a key's sake.")
	m.parked = m.counter("keys_parked_total", "Keys in trouble put into the store.")
	m.settled = m.counter("keys_settled_total", "Parked keys that were deleted after all.")
	m.buried = m.counter("dead_letters_total", "Keys given up after their last attempt.")
	m.retries = m.counter("redis_retries_total", "Round trips that failed because Redis was away, and were tried again.")
	m.outages = m.counter("redis_outages_total", "How often Redis went away.")
	m.redisUp = m.gauge("redis_up", "1 while Redis answers and takes deletes.")
	m.trip = m.histogram("round_trip_seconds", "One round trip to Redis.", prometheus.ExponentialBuckets(0.0001, 4, 8))
	m.states(e)
	return m
}

// acknowledged counts keys whose delete Redis has acknowledged.
func (m *metrics) acknowledged(k kind, keys int) {
	m.acked[k].Add(float64(keys))
	m.ackedKeys.Add(uint64(keys))
}

// states are the gauges that are read off the engine.
func (m *metrics) states(e *Engine) {
	m.gaugeFunc("in_flight_keys", "Keys fetched and not yet deleted once.", func() float64 { return float64(e.room.inFlight.Load()) })
	m.gaugeFunc("pending_keys", "Keys deleted once and not finished.", func() float64 { return float64(e.room.pending.Load()) })
	m.gaugeFunc("memory_bytes", "About what all unfinished work holds.", func() float64 { return float64(e.room.bytes.Load()) })
	m.gaugeFunc("unmarked_keys", "Keys that wait to be known as visible.", func() float64 {
		return float64(e.sum(func(s *partition) int64 { return s.unmarked.Load() }))
	})
	m.gaugeFunc("keys_in_trouble", "Keys that Redis refuses, tried again in place or waiting to be parked.", func() float64 {
		return float64(e.sum(func(s *partition) int64 { return s.troubled.Load() }))
	})
	m.gaugeFunc("oldest_unfinished_seconds", "How long ago the oldest unfinished batch was fetched.", func() float64 {
		return e.oldest().Seconds()
	})
}

const namespace, subsystem = "freshet", "invalidator"

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	m.all = append(m.all, c)
	return c
}

func (m *metrics) counterVec(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
	}, []string{label})
	m.all = append(m.all, c)
	return c
}

func (m *metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	m.all = append(m.all, g)
	return g
}

func (m *metrics) gaugeFunc(name, help string, f func() float64) {
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
	}, f))
}

func (m *metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
	})
	m.all = append(m.all, h)
	return h
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range m.all {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}
