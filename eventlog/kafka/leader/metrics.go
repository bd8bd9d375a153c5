package leader

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the election and of the checkpoint topic.
type metrics struct {
	leading, term, stash prometheus.Gauge
	terms                prometheus.Counter
	losses               *prometheus.CounterVec
	seconds              prometheus.Histogram
	failures             prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshet_reader_leading", Help: "1 while this process is the leader among the readers of its source, else 0.",
		}),
		term: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshet_reader_term", Help: "The last term that this process has led in; 0 before the first.",
		}),
		terms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshet_reader_terms_total", Help: "Terms that this process has taken.",
		}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_reader_losses_total", Help: "Terms that this process has lost while it was leading, by reason.",
		}, []string{"reason"}),
		stash: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshet_checkpoint_stashed_keys", Help: "Keys of XA transactions that are prepared and not yet committed.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freshet_checkpoint_save_seconds", Help: "How long it took to save the position.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshet_checkpoint_save_failures_total", Help: "Saves of the position that failed; each is tried again.",
		}),
	}
	for _, reason := range []error{errReassigned, errCutOff, ErrDeposed, errRecreated} {
		m.losses.WithLabelValues(reasonOf(reason))
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.leading, m.term, m.terms, m.losses, m.stash, m.seconds, m.failures} {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) saved(took time.Duration, err error) {
	m.seconds.Observe(took.Seconds())
	if err != nil && !errors.Is(err, ErrDeposed) {
		m.failures.Inc()
	}
}

func (m *metrics) stashed(keys int) { m.stash.Set(float64(keys)) }

// reasonOf names the reason for a loss.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errReassigned):
		return "reassigned"
	case errors.Is(err, errCutOff):
		return "cut_off"
	case errors.Is(err, errRecreated):
		return "topic_anew"
	}
	return "deposed"
}
