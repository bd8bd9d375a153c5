package invalidator

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// metrics are the engine's. They are fed for each job or batch, never for each key.
type metrics struct {
	sent, acked [kinds]prometheus.Counter
	ackedKeys   atomic.Uint64 // the sum of acked

	found, duplicates, repeated, refused      prometheus.Counter
	parked, settled, buried, retries, outages prometheus.Counter

	coalesced, joined, forgone prometheus.Counter
	// by outcome; the last is a failure
	actions  [event.ActionIncr + 1][write.Absent + 2]prometheus.Counter
	rebuilds [3]prometheus.Counter // by result

	strayed prometheus.Counter
	trip    prometheus.Histogram

	all []prometheus.Collector
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{all: []prometheus.Collector{partitionLag{e}}}
	sent := m.counterVec("deletes_sent_total",
		"Keys sent to Redis to be deleted, or for another action, by which time it is.", "delete")
	acked := m.counterVec("deletes_acknowledged_total",
		"Keys whose delete, or other action, Redis acknowledged, by which time it is.", "delete")
	for k := range kinds {
		m.sent[k] = sent.WithLabelValues(k.String())
		m.acked[k] = acked.WithLabelValues(k.String())
	}
	m.found = m.counter("keys_found_total", "Deleted keys that existed in Redis.")
	m.duplicates = m.counter("duplicates_total", "Keys left out because their batch held them already.")
	m.repeated = m.counter("deletes_repeated_total",
		"Keys whose final delete is repeated because Redis was silent around it.")
	m.refused = m.counter("commands_refused_total", "Commands that Redis refused for a key's sake.")
	m.parked = m.counter("keys_parked_total", "Keys in trouble put into the store.")
	m.settled = m.counter("keys_settled_total", "Parked keys that were deleted after all.")
	m.buried = m.counter("dead_letters_total", "Keys given up after their last attempt.")
	m.retries = m.counter("redis_retries_total", "Round trips that failed because Redis was away, and were tried again.")
	m.outages = m.counter("redis_outages_total", "How often Redis went away.")
	m.coalesced = m.counter("coalesced_total",
		"Keys that waited for their mapping's rate limit and were served by a later change's action.")
	m.joined = m.counter("rebuilds_joined_total", "Keys that shared the query of another change of the same key.")
	m.forgone = m.counter("rebuilds_forgone_total",
		"Keys that were deleted instead of rebuilt by query, since they would have had to wait for too long.")
	m.actionCounters()
	m.strayed = m.counter("keys_strayed_total",
		"Keys that a node of a cluster did not serve, since their slots were moved: they are sent again.")
	m.trip = m.histogram("round_trip_seconds", "One round trip to Redis.", prometheus.ExponentialBuckets(0.0001, 4, 8))
	m.states(e)
	return m
}

// failedOutcome is the outcome of an action that brought its key into trouble.
const failedOutcome = write.Absent + 1

// The results of a query that rebuilds a key.
const (
	resultRows = iota
	resultMissing
	resultFailed
)

// actionCounters are those of what is not a plain delete.
func (m *metrics) actionCounters() {
	actions := m.counterVec("actions_total", "Actions on keys other than plain deletes, by what they did.", "action",
		"outcome")
	for a := event.ActionDelete; a <= event.ActionIncr; a++ {
		for o := write.Written; o <= write.Absent; o++ {
			m.actions[a][o] = actions.WithLabelValues(a.String(), o.String())
		}
		m.actions[a][failedOutcome] = actions.WithLabelValues(a.String(), "failed")
	}
	rebuilds := m.counterVec("rebuild_queries_total", "Queries run to rebuild keys, by result.", "result")
	for i, result := range [...]string{resultRows: "rows", resultMissing: "missing", resultFailed: "failed"} {
		m.rebuilds[i] = rebuilds.WithLabelValues(result)
	}
}

// did counts what actions did.
func (m *metrics) did(actions []action) {
	var n [len(m.actions)][len(m.actions[0])]int
	for i := range actions {
		switch a := &actions[i]; {
		case a.err != nil:
			n[a.item.Action][failedOutcome]++
		case a.outcome != 0:
			n[a.item.Action][a.outcome]++
		}
	}
	for a := range n {
		for o := range n[a] {
			if n[a][o] > 0 {
				m.actions[a][o].Add(float64(n[a][o]))
			}
		}
	}
}

// ran counts a query.
func (m *metrics) ran(err error, missing bool) {
	switch {
	case err != nil:
		m.rebuilds[resultFailed].Inc()
	case missing:
		m.rebuilds[resultMissing].Inc()
	default:
		m.rebuilds[resultRows].Inc()
	}
}

// acknowledged counts keys whose delete Redis has acknowledged.
func (m *metrics) acknowledged(k kind, keys int) {
	m.acked[k].Add(float64(keys))
	m.ackedKeys.Add(uint64(keys))
}

// states are the gauges that are read off the engine.
func (m *metrics) states(e *Engine) {
	m.gaugeFunc("redis_up", "1 while Redis answers and takes deletes: with a cluster, all of its nodes.", func() float64 {
		if e.isUp() {
			return 1
		}
		return 0
	})
	m.nodeGauges(e)
	m.gaugeFunc("in_flight_keys", "Keys fetched and not yet deleted once.",
		func() float64 { return float64(e.room.inFlight.Load()) })
	m.gaugeFunc("pending_keys", "Keys deleted once and not finished.",
		func() float64 { return float64(e.room.pending.Load()) })
	m.gaugeFunc("memory_bytes", "About what all unfinished work holds.",
		func() float64 { return float64(e.room.bytes.Load()) })
	m.gaugeFunc("unmarked_keys", "Keys that wait to be known as visible.", func() float64 { return float64(e.unmarked()) })
	m.gaugeFunc("keys_in_trouble", "Keys that Redis refuses, tried again in place or waiting to be parked.",
		func() float64 {
			return float64(e.sum(func(s *partitionLoop) int64 { return s.troubled.Load() }))
		})
	m.gaugeFunc("rate_limited_keys", "Keys that wait for their mapping's rate limit.", func() float64 {
		return float64(e.sum(func(s *partitionLoop) int64 { return s.limited.Load() }))
	})
	m.gaugeFunc("rebuild_queue_keys", "Keys that wait for a query to begin.",
		func() float64 { return float64(e.queries.waiting.Load()) })
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

func (m *metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
	}, labels)
	m.all = append(m.all, c)
	return c
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
