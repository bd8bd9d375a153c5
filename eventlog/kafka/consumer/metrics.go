package consumer

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a consumer counts, and what it shows of its partitions while it owns them.
type metrics struct {
	records, invalidations, buried, marks, retries prometheus.Counter
	losses                                         *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, c *Consumer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		records:       counter("freshet_kafka_fetched_records_total", "Records handed out to be worked on."),
		invalidations: counter("freshet_kafka_fetched_invalidations_total", "Invalidations in the records handed out."),
		buried: counter("freshet_kafka_unreadable_records_total",
			"Records that could not be read and were put among the dead letters."),
		marks:   counter("freshet_kafka_fetched_marks_total", "Visibility marks read."),
		retries: counter("freshet_kafka_fetch_retries_total", "Attempts to read from Kafka that failed and were made again."),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_kafka_losses_total",
			Help: "Times that records were found to be lost before they were finished, by how.",
		}, []string{"loss"}),
	}
	for _, l := range losses() {
		m.losses.WithLabelValues(string(l))
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, col := range []prometheus.Collector{
		m.records, m.invalidations, m.buried, m.marks, m.retries, m.losses, newLagCollector(c),
	} {
		errs = append(errs, reg.Register(col))
	}
	return m, errors.Join(errs...)
}

// lagCollector shows the partitions that are owned when it is asked, so that one that was revoked is shown no more.
type lagCollector struct {
	c                                            *Consumer
	lag, finished, end, headroom, owned, stopped *prometheus.Desc
}

func newLagCollector(c *Consumer) *lagCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &lagCollector{
		c:   c,
		lag: desc("freshet_kafka_lag_records", "Records of the partition that are not finished.", "partition"),
		finished: desc("freshet_kafka_finished_offset", "Offset below which everything in the partition is finished.",
			"partition"),
		end: desc("freshet_kafka_end_offset", "Offset that the partition's next record will get.", "partition"),
		headroom: desc("freshet_kafka_retention_headroom_seconds",
			"Time left until retention.ms may delete the oldest record that is not finished.", "partition"),
		owned: desc("freshet_kafka_owned_partitions", "Partitions that this process was given."),
		stopped: desc("freshet_kafka_stopped_partitions",
			"Those of them that are read no further, since records of them are lost."),
	}
}

// Describe implements [prometheus.Collector].
func (l *lagCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.lag, l.finished, l.end, l.headroom, l.owned, l.stopped} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *lagCollector) Collect(out chan<- prometheus.Metric) {
	lags := l.c.Lags()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	stopped := 0
	for _, lag := range lags {
		p := strconv.Itoa(lag.Partition)
		gauge(l.lag, float64(lag.Records), p)
		gauge(l.finished, float64(lag.Finished), p)
		gauge(l.end, float64(lag.End), p)
		if lag.Known {
			gauge(l.headroom, lag.Headroom.Seconds(), p)
		}
		if lag.Stopped != nil {
			stopped++
		}
	}
	gauge(l.owned, float64(len(lags)))
	gauge(l.stopped, float64(stopped))
}
