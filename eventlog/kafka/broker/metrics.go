package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are what a client counts.
type counters struct {
	errors    *prometheus.CounterVec
	throttled *prometheus.CounterVec
}

// newCounters registers the metrics with reg, or nowhere if it is nil.
func newCounters(reg prometheus.Registerer) (*counters, error) {
	c := &counters{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_kafka_request_errors_total",
			Help: "Requests to Kafka that failed, by what their error means.",
		}, []string{"class"}),
		throttled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_kafka_throttled_seconds_total",
			Help: "Time for which brokers held up our requests because of a quota, by kind of request.",
		}, []string{"request"}),
	}
	for _, class := range Classes() {
		if class != Ended {
			c.errors.WithLabelValues(class.String())
		}
	}
	for _, request := range []string{"fetch", "produce"} {
		c.throttled.WithLabelValues(request)
	}
	if reg == nil {
		return c, nil
	}
	for _, m := range []prometheus.Collector{c.errors, c.throttled} {
		if err := reg.Register(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// failed counts an error; that a caller ended is none.
func (c *counters) failed(class Class) {
	if class != Ended {
		c.errors.WithLabelValues(class.String()).Inc()
	}
}

func (c *counters) throttledFor(request string, d time.Duration) {
	c.throttled.WithLabelValues(request).Add(d.Seconds())
}
