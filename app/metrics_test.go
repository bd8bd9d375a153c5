package app

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/app/operate"
)

func TestTheStateIsAMetric(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := Status{State: Starting}
	must(t, reg.Register(newStateMetrics(func() Status { return s })))
	must(t, reg.Register(buildInfo("v1.2.3")))
	const head = `# HELP freshet_state 1 for the state that freshet is in, 0 for the others: starting, fresh, standby, behind, doubtful.
# TYPE freshet_state gauge
`
	const asOf = `# HELP freshet_fresh_as_of_timestamp_seconds Everything that was committed before this moment is finished, by this machine's clock; 0 until it is known.
# TYPE freshet_fresh_as_of_timestamp_seconds gauge
`
	for _, c := range []struct {
		state State
		at    time.Time
		want  string
	}{
		{Starting, time.Time{}, head + `freshet_state{state="behind"} 0
freshet_state{state="doubtful"} 0
freshet_state{state="fresh"} 0
freshet_state{state="standby"} 0
freshet_state{state="starting"} 1
` + asOf + "freshet_fresh_as_of_timestamp_seconds 0\n"},
		{Fresh, time.UnixMicro(1769846400_250000), head + `freshet_state{state="behind"} 0
freshet_state{state="doubtful"} 0
freshet_state{state="fresh"} 1
freshet_state{state="standby"} 0
freshet_state{state="starting"} 0
` + asOf + "freshet_fresh_as_of_timestamp_seconds 1.76984640025e+09\n"},
	} {
		s.State, s.FreshAsOf = c.state, c.at
		must(t, testutil.GatherAndCompare(reg, strings.NewReader(c.want), "freshet_state",
			"freshet_fresh_as_of_timestamp_seconds"))
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	families, err := reg.Gather()
	must(t, err)
	if got := families[0].String(); families[0].GetName() != "freshet_build_info" || !strings.Contains(got, "v1.2.3") ||
		!strings.Contains(got, "go1.") {
		t.Errorf("build info: %s", got)
	}
}

func TestTheReaderMeasuresFromTheCommit(t *testing.T) {
	r, _ := newReader(t)
	c := row(100, "")
	c.Tx.Committed = time.Now().Add(-2 * time.Second)
	must(t, r.Row(c))
	must(t, r.Commit(c.Tx, end(150)))
	if p := r.latency.Read.LastMinute(time.Now()); p.Count != 0 {
		t.Errorf("%+v before it is handed on", p)
	}
	must(t, r.Flush())
	if p := r.latency.Read.LastMinute(time.Now()); p.Count != 1 || p.P50 < 2*time.Second || p.P50 > 30*time.Second {
		t.Errorf("%+v", p)
	}
}

func TestWalksAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := newWalkMetrics(reg)
	must(t, err)
	m.rows.WithLabelValues((&walked{}).what()).Add(7)
	m.keys.WithLabelValues((&walked{Walk: operate.Walk{Forget: true}}).what()).Add(9)
	must(t, testutil.GatherAndCompare(reg, strings.NewReader(`# HELP freshet_walk_keys_total Keys of these rows that were handed on to be written or forgotten.
# TYPE freshet_walk_keys_total counter
freshet_walk_keys_total{for="doubt"} 9
freshet_walk_keys_total{for="warm_up"} 0
# HELP freshet_walk_rows_total Rows that were read from their tables.
# TYPE freshet_walk_rows_total counter
freshet_walk_rows_total{for="doubt"} 0
freshet_walk_rows_total{for="warm_up"} 7
# HELP freshet_walks_running Tables that this process is reading row by row.
# TYPE freshet_walks_running gauge
freshet_walks_running{for="doubt"} 0
freshet_walks_running{for="warm_up"} 0
`)))
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
