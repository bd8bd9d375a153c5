package app

import (
	"errors"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// registerMetrics registers what is true of the process as a whole.
func (p *process) registerMetrics() error {
	return errors.Join(p.latency.Register(p.registry), p.registry.Register(buildInfo(p.options.Version)),
		p.registry.Register(newStateMetrics(p.status)))
}

// buildInfo is 1, and says by its labels what was built from what.
func buildInfo(version string) prometheus.Collector {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "freshet_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "go_version": runtime.Version()},
	})
	g.Set(1)
	return g
}

// stateMetrics shows the word of the status, and as of when the cache is fresh: what GET /status says at the moment of
// the scrape.
type stateMetrics struct {
	status      func() Status
	state, asOf *prometheus.Desc
}

func newStateMetrics(status func() Status) stateMetrics {
	return stateMetrics{
		status: status,
		state: prometheus.NewDesc("freshet_state",
			"1 for the state that freshet is in, 0 for the others: starting, fresh, standby, behind, doubtful.",
			[]string{"state"}, nil),
		asOf: prometheus.NewDesc("freshet_fresh_as_of_timestamp_seconds",
			"Everything that was committed before this moment is finished, by this machine's clock; 0 until it is known.", nil,
			nil),
	}
}

// Describe implements [prometheus.Collector].
func (m stateMetrics) Describe(c chan<- *prometheus.Desc) { c <- m.state; c <- m.asOf }

// Collect implements [prometheus.Collector].
func (m stateMetrics) Collect(c chan<- prometheus.Metric) {
	s := m.status()
	for _, state := range []State{Starting, Fresh, Standby, Behind, Doubtful} {
		value := 0.0
		if s.State == state {
			value = 1
		}
		c <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, value, string(state))
	}
	asOf := 0.0
	if !s.FreshAsOf.IsZero() {
		asOf = float64(s.FreshAsOf.UnixMicro()) / 1e6
	}
	c <- prometheus.MustNewConstMetric(m.asOf, prometheus.GaugeValue, asOf)
}
