package router

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of all mappings. Their labels come from the configuration only: mapping is the mapping's
// place in it, from 1, and table its pattern.
type metrics struct {
	rows, keys, null, absent, long, failed, filtered, forgotten, unsent *prometheus.CounterVec

	all []prometheus.Collector
}

// counters are those of one mapping.
type counters struct {
	rows, keys                 tally
	null, absent, long, failed prometheus.Counter
	// filtered is by verdict.
	filtered [admitted]prometheus.Counter
	// forgotten and unsent are by reason; of unsent there are fewer. None of a mapping that only deletes keys.
	forgotten, unsent [reasons]prometheus.Counter
}

// tally counts what comes with every row. A counter is an atomic operation, and two for each row would be a sixth of
// what routing costs: so they are added up, and shown when there are many, and by [Router.Publish].
type tally struct {
	n     int
	shown prometheus.Counter
}

const tallyMost = 1024

func (t *tally) add(n int) {
	if t.n += n; t.n >= tallyMost {
		t.publish()
	}
}

func (t *tally) publish() {
	if t.n > 0 {
		t.shown.Add(float64(t.n))
		t.n = 0
	}
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
		forgotten: counter("forgotten_values_total",
			"Values, fields and members that were deleted instead of written, by what was in doubt.", "by"),
		unsent: counter("unsent_notices_total", "Messages and stream entries that were not made, by the reason.", "by"),
		failed: counter("predicate_errors_total", "Predicates that failed at run time and counted as true."),
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

// counters creates the counters of the mapping with the given ordinal; more says that it does more than delete keys.
func (m *metrics) counters(ordinal int, table string, more bool) *counters {
	mapping := strconv.Itoa(ordinal + 1)
	of := func(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
		return v.WithLabelValues(append([]string{mapping, table}, labels...)...)
	}
	c := &counters{
		rows: tally{shown: of(m.rows)}, keys: tally{shown: of(m.keys)},
		null: of(m.null), absent: of(m.absent), long: of(m.long), failed: of(m.failed),
	}
	for v := range admitted {
		c.filtered[v] = of(m.filtered, v.label())
	}
	for r := reason(0); r < reasons && more; r++ {
		c.forgotten[r] = of(m.forgotten, r.label())
		if r <= valueNull {
			c.unsent[r] = of(m.unsent, r.label())
		}
	}
	return c
}
