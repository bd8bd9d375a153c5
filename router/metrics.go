package router

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of all mappings. Their labels come from the configuration only: mapping is the mapping's
// place in it, from 1, and table its pattern.
type metrics struct {
	rows, keys, null, absent, long, failed, filtered *prometheus.CounterVec

	all []prometheus.Collector
}

// counters are those of one mapping.
type counters struct {
	rows, keys, null, absent, long, failed prometheus.Counter
	// filtered is by verdict.
	filtered [admitted]prometheus.Counter
}

func newMetrics() *metrics {
	var all []prometheus.Collector
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_router_" + name, Help: help},
			append([]string{"mapping", "table"}, labels...))
		all = append(all, v)
		return v
	}
	m := &metrics{
		rows:     counter("rows_total", "Row changes of tables that the mapping matches."),
		filtered: counter("filtered_rows_total", "Row changes that the mapping passed over, by what it asks for.", "by"),
		keys:     counter("keys_total", "Keys that the mapping's rows made stale."),
		null:     counter("null_keys_total", "Keys not made because a column was NULL."),
		absent:   counter("absent_keys_total", "Keys that could not be named because the row image lacked a column."),
		long:     counter("long_keys_total", "Keys not made because they were longer than 64 KiB."),
		failed:   counter("predicate_errors_total", "Predicates that failed at run time and counted as true."),
	}
	m.all = all
	return m
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range m.all {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

// counters creates the counters of the mapping with the given ordinal.
func (m *metrics) counters(ordinal int, table string) *counters {
	mapping := strconv.Itoa(ordinal + 1)
	of := func(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
		return v.WithLabelValues(append([]string{mapping, table}, labels...)...)
	}
	c := &counters{
		rows: of(m.rows), keys: of(m.keys), null: of(m.null), absent: of(m.absent), long: of(m.long), failed: of(m.failed),
	}
	for v := range admitted {
		c.filtered[v] = of(m.filtered, v.label())
	}
	return c
}
