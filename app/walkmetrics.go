package app

import (
	"github.com/prometheus/client_golang/prometheus"
)

// walkMetrics count what walks do in this process, by what they are for.
type walkMetrics struct {
	rows, keys *prometheus.CounterVec
	running    *prometheus.GaugeVec
}

// What walks are for, as a label.
const (
	forWarmUp = "warm_up"
	forDoubt  = "doubt"
)

func newWalkMetrics(r prometheus.Registerer) (*walkMetrics, error) {
	m := &walkMetrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_walk_rows_total", Help: "Rows that were read from their tables.",
		}, []string{"for"}),
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_walk_keys_total", Help: "Keys of these rows that were handed on to be written or forgotten.",
		}, []string{"for"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshet_walks_running", Help: "Tables that this process is reading row by row.",
		}, []string{"for"}),
	}
	for _, what := range []string{forWarmUp, forDoubt} {
		m.rows.WithLabelValues(what)
		m.keys.WithLabelValues(what)
		m.running.WithLabelValues(what)
	}
	for _, c := range []prometheus.Collector{m.rows, m.keys, m.running} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
