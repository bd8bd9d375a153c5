package rebuild

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Runner's. Their labels come from the configuration only: mapping is the mapping's place in it, from
// 1, and table its pattern.
type metrics struct {
	duration    *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	elsewhere   *prometheus.CounterVec
	connections *prometheus.GaugeVec
	inUse, idle prometheus.Gauge
}

// counters are those of one query.
type counters struct {
	duration                         prometheus.Observer
	failed, failedForGood, elsewhere prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freshet_rebuild_query_duration_seconds",
			Help: "How long a query took, including its connection if one had to be made; failed queries as well; of several " +
				"keys that are asked for together, each its share.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"mapping", "table"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_rebuild_query_errors_total",
			Help: "Queries that failed, by whether running them again may help.",
		}, []string{"mapping", "table", "class"}),
		elsewhere: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_rebuild_queries_on_source_total",
			Help: "Queries that ran on the source, since the replica that they name lagged, was away or refused them; each key counts.",
		}, []string{"mapping", "table"}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshet_rebuild_connections",
			Help: "Connections of the pool that are in use, and connections that are kept for the next query.",
		}, []string{"state"}),
	}
	m.inUse, m.idle = m.connections.WithLabelValues("in_use"), m.connections.WithLabelValues("idle")
	return m
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	return errors.Join(reg.Register(m.duration), reg.Register(m.errors), reg.Register(m.elsewhere),
		reg.Register(m.connections))
}

func (m *metrics) counters(q *Query) counters {
	mapping := strconv.Itoa(q.Mapping + 1)
	return counters{
		elsewhere:     m.elsewhere.WithLabelValues(mapping, q.Table),
		duration:      m.duration.WithLabelValues(mapping, q.Table),
		failed:        m.errors.WithLabelValues(mapping, q.Table, "transient"),
		failedForGood: m.errors.WithLabelValues(mapping, q.Table, "permanent"),
	}
}

// observe counts a run.
func (p *prepared) observe(took time.Duration, err error) {
	p.duration.Observe(took.Seconds())
	if err == nil || isContext(err) || errors.Is(err, errClosed) {
		return
	}
	var e *Error
	if errors.As(p.explain(err), &e) && e.permanent {
		p.failedForGood.Inc()
	} else {
		p.failed.Inc()
	}
}
