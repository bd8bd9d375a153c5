package canal

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are counted by the loop and read by what shows them. The loop publishes its own plain numbers at ends
// of transactions, so that the hot path has no atomic operation for each row.
type counters struct {
	events, transactions, rows, replayed atomic.Uint64
	received                             atomic.Uint64
	connected                            atomic.Bool
	// committed is when the last transaction was committed by the source's clock, in Unix nanoseconds; 0: none yet.
	committed atomic.Int64
	// read is when the source was last known to hold nothing that was not handed over, by our clock, in Unix
	// nanoseconds.
	read atomic.Int64
	// retention is how long the source keeps its binlogs; nil: not known yet.
	retention atomic.Pointer[Retention]
}

// fresh is how long the source's word that we have read everything counts.
const fresh = 3

// lag is how far we are behind: zero while the source says at each heartbeat that we have read everything, else how
// long ago that was, or, if later, how old by the source's clock what was last read is.
func (c *counters) lag(now time.Time, heartbeat time.Duration) time.Duration {
	committed, read := c.committed.Load(), c.read.Load()
	since := now.Sub(time.Unix(0, max(committed, read)))
	if max(committed, read) == 0 || (read != 0 && now.Sub(time.Unix(0, read)) < fresh*heartbeat) {
		return 0
	}
	return max(0, since)
}

// headroom is for how many seconds the source keeps what must be read next.
func (c *counters) headroom(now time.Time, heartbeat time.Duration) float64 {
	r := c.retention.Load()
	if r == nil {
		return math.NaN()
	}
	kept := r.For(now)
	if kept == 0 {
		return math.Inf(1)
	}
	return (kept - c.lag(now, heartbeat)).Seconds()
}

type metrics struct {
	connects, statements *prometheus.CounterVec

	asks struct{ answered, failed prometheus.Counter }
	// marks counts marks sent.
	marks prometheus.Counter
	epoch prometheus.Gauge
	// fillWait is how much later than the source fill servers have changes, and fillIn whether they are waited for.
	fillWait *prometheus.HistogramVec
	fillIn   *prometheus.GaugeVec
	// streamed says which address the binlog comes from.
	streamed *prometheus.GaugeVec
}

// Kinds of statement that are counted.
const (
	statementDDL       = "ddl"
	statementTruncate  = "truncate"
	statementRows      = "rows"
	statementUnclear   = "unclear"
	statementXAResolve = "xa_resolve"
)

func newMetrics(reg prometheus.Registerer, c *counters, heartbeat time.Duration,
	waiting func() int,
) (*metrics, error) {
	m := &metrics{
		connects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_source_connects_total",
			Help: "Attempts to read from the source, by result.",
		}, []string{"result"}),
		statements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshet_source_statements_total",
			Help: "Statements that were logged as text, by what they do: ddl, truncate (rows of a mapped table removed " +
				"without row events), rows (rows of a mapped table changed without row events), unclear, xa_resolve.",
		}, []string{"kind"}),
		marks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freshet_source_marks_total",
			Help: "Visibility marks sent.",
		}),
		epoch: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshet_source_epoch",
			Help: "Epoch of the versions; it rises when the source's identity changes.",
		}),
		fillWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freshet_source_fill_wait_seconds",
			Help: "How much later than on the source changes were visible on a server of source.fill_from, by its address.",
			// From what a quick network takes to what nobody waits for.
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300},
		}, []string{"server"}),
		fillIn: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshet_source_fill_waited_for",
			Help: "1 while final deletes wait for a server of source.fill_from, 0 while it is left out, by its address.",
		}, []string{"server"}),
		streamed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshet_source_streamed",
			Help: "1 for the address of source.addresses that the binlog comes from, 0 for the others.",
		}, []string{"server"}),
	}
	for _, r := range []string{"ok", "error"} {
		m.connects.WithLabelValues(r)
	}
	for _, k := range []string{statementDDL, statementTruncate, statementRows, statementUnclear, statementXAResolve} {
		m.statements.WithLabelValues(k)
	}
	asks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshet_source_asks_total",
		Help: "Questions to the source about what everybody can read, by result.",
	}, []string{"result"})
	m.asks.answered, m.asks.failed = asks.WithLabelValues("answered"), asks.WithLabelValues("failed")
	all := []prometheus.Collector{m.connects, m.statements, m.marks, m.epoch, m.fillWait, m.fillIn, m.streamed, asks}
	all = append(all, c.collectors(heartbeat)...)
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_source_unconfirmed_batches",
		Help: "Batches handed over that the source, and the servers of source.fill_from, have not yet said to be visible " +
			"to everybody.",
	}, func() float64 { return float64(waiting()) }))
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range all {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// collectors shows the counters.
func (c *counters) collectors(heartbeat time.Duration) []prometheus.Collector {
	count := func(name, help string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(n.Load()) })
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	return []prometheus.Collector{
		count("freshet_source_events_total", "Binlog events read.", &c.events),
		count("freshet_source_transactions_total", "Transactions read, of mapped tables or not.", &c.transactions),
		count("freshet_source_rows_total", "Row changes of mapped tables read.", &c.rows),
		count("freshet_source_replayed_rows_total",
			"Row changes that came again after a reconnect within a transaction and were left out.", &c.replayed),
		count("freshet_source_received_bytes_total", "Bytes received on the binlog connection.", &c.received),
		gauge("freshet_source_connected", "1 while the binlog connection stands.", func() float64 {
			if c.connected.Load() {
				return 1
			}
			return 0
		}),
		gauge("freshet_source_lag_seconds",
			"How far reading is behind the source: 0 when all that it held at the last heartbeat has been read.",
			func() float64 { return c.lag(time.Now(), heartbeat).Seconds() }),
		gauge("freshet_source_retention_headroom_seconds",
			"For how long the source will keep what must be read next; +Inf when it keeps everything.",
			func() float64 { return c.headroom(time.Now(), heartbeat) }),
	}
}

// publishEach is after how many rows or transactions, a power of two, the loop's numbers are shown.
const publishEach = 1024

// publish shows the loop's numbers.
func (l *loop) publish() {
	l.n.events.Store(l.events)
	l.n.transactions.Store(l.transactions)
	l.n.rows.Store(l.rows)
	l.n.replayed.Store(l.again)
	if !l.committed.IsZero() {
		l.n.committed.Store(l.committed.UnixNano())
	}
	l.shown = l.rows
}
