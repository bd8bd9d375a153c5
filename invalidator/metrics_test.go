package invalidator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/event/latency"
)

func TestMetricsPassTheLinter(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if _, err := New(Deps{Redis: noRedis{}, Store: &memStore{}, Registerer: reg}, Options{}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "freshet_") {
			t.Errorf("%s lacks the prefix", f.GetName())
		}
	}
	if _, err := New(Deps{Redis: noRedis{}, Store: &memStore{}, Registerer: reg}, Options{}); err == nil {
		t.Error("a second engine took the same registry")
	}
}

func TestMetricsCountWhatWasDone(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		reg := prometheus.NewPedanticRegistry()
		if err := errors.Join(r.engine.metrics.register(reg), r.engine.latency.Register(reg)); err != nil {
			r.Fatal(err)
		}
		r.refuse("bad")
		b := batchOf(4, d2, "a", "a", "b", "bad")
		b.Origins[0].Committed = time.Now().Add(-20 * ms).UnixMicro()
		r.append(b)
		r.mark(4)
		r.pass(d2)
		want := `
# HELP freshet_invalidator_deletes_acknowledged_total Keys whose delete, or other action, Redis acknowledged, by which time it is.
# TYPE freshet_invalidator_deletes_acknowledged_total counter
freshet_invalidator_deletes_acknowledged_total{delete="final"} 2
freshet_invalidator_deletes_acknowledged_total{delete="first"} 2
freshet_invalidator_deletes_acknowledged_total{delete="parked"} 0
freshet_invalidator_deletes_acknowledged_total{delete="retry"} 0
# HELP freshet_invalidator_duplicates_total Keys left out because their batch held them already.
# TYPE freshet_invalidator_duplicates_total counter
freshet_invalidator_duplicates_total 1
# HELP freshet_invalidator_keys_found_total Deleted keys that existed in Redis.
# TYPE freshet_invalidator_keys_found_total counter
freshet_invalidator_keys_found_total 4
# HELP freshet_invalidator_keys_parked_total Keys in trouble put into the store.
# TYPE freshet_invalidator_keys_parked_total counter
freshet_invalidator_keys_parked_total 1
# HELP freshet_invalidator_pending_keys Keys deleted once and not finished.
# TYPE freshet_invalidator_pending_keys gauge
freshet_invalidator_pending_keys 0
# HELP freshet_invalidator_redis_up 1 while Redis answers and takes deletes: with a cluster, all of its nodes.
# TYPE freshet_invalidator_redis_up gauge
freshet_invalidator_redis_up 1
# HELP freshet_invalidation_latency_seconds From a transaction's commit, by the source's clock, until Redis had acknowledged the first delete of its keys.
# TYPE freshet_invalidation_latency_seconds histogram
freshet_invalidation_latency_seconds_bucket{le="0.0001"} 0
freshet_invalidation_latency_seconds_bucket{le="0.00025"} 0
freshet_invalidation_latency_seconds_bucket{le="0.0005"} 0
freshet_invalidation_latency_seconds_bucket{le="0.001"} 0
freshet_invalidation_latency_seconds_bucket{le="0.0025"} 0
freshet_invalidation_latency_seconds_bucket{le="0.005"} 0
freshet_invalidation_latency_seconds_bucket{le="0.01"} 0
freshet_invalidation_latency_seconds_bucket{le="0.025"} 1
freshet_invalidation_latency_seconds_bucket{le="0.05"} 1
freshet_invalidation_latency_seconds_bucket{le="0.1"} 1
freshet_invalidation_latency_seconds_bucket{le="0.25"} 1
freshet_invalidation_latency_seconds_bucket{le="0.5"} 1
freshet_invalidation_latency_seconds_bucket{le="1"} 1
freshet_invalidation_latency_seconds_bucket{le="2.5"} 1
freshet_invalidation_latency_seconds_bucket{le="5"} 1
freshet_invalidation_latency_seconds_bucket{le="10"} 1
freshet_invalidation_latency_seconds_bucket{le="30"} 1
freshet_invalidation_latency_seconds_bucket{le="60"} 1
freshet_invalidation_latency_seconds_bucket{le="300"} 1
freshet_invalidation_latency_seconds_bucket{le="1800"} 1
freshet_invalidation_latency_seconds_bucket{le="7200"} 1
freshet_invalidation_latency_seconds_bucket{le="+Inf"} 1
freshet_invalidation_latency_seconds_sum 0.02
freshet_invalidation_latency_seconds_count 1
`
		names := []string{"freshet_invalidation_latency_seconds"}
		for _, n := range []string{
			"deletes_acknowledged_total", "duplicates_total", "keys_found_total", "keys_parked_total",
			"pending_keys", "redis_up",
		} {
			names = append(names, "freshet_invalidator_"+n)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
			r.Error(err)
		}
	})
}

func TestTheStagesOfABatchAreMeasured(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 30 * ms } })
		b := batchOf(4, d2, "a", "b")
		b.Origins[0].Committed = time.Now().Add(-50 * ms).UnixMicro()
		r.append(b)
		r.pass(time.Second)
		r.mark(4)
		r.pass(d2 + time.Second)
		near := func(name string, h *latency.Histogram, want time.Duration) {
			r.Helper()
			if p := h.LastMinute(time.Now()); p.Count != 1 || p.P50 < want || p.P50 > want+want/4 {
				r.Errorf("%s: %+v, want %s", name, p, want)
			}
		}
		near("invalidation", r.engine.latency.Invalidation, 80*ms)
		near("delete", r.engine.latency.Delete, 30*ms)
		near("finish", r.engine.latency.Finish, 970*ms+d2+30*ms)
	})
}

func TestRedisStateIsASentence(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		// The bubble's clock begins at the turn of the century.
		if got := r.engine.Snapshot().Redis; got != "tape:1 answers, since 2000-01-01T00:00:00Z" {
			r.Error(got)
		}
		r.redis.set(func() {
			r.redis.answer = func([]string) error { return readonly }
			r.redis.ping = func() error { return readonly }
		})
		r.pass(time.Minute)
		if got := r.engine.Snapshot().Redis; !strings.HasPrefix(got, "tape:1 is away since 2000-01-01T00:01:00Z: READONLY") {
			r.Error(got)
		}
	})
}
