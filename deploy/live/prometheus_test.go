package live

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/deploy/grafana"
	"github.com/freshet/freshet/deploy/prometheus"
	"github.com/freshet/freshet/proof/testbed"
)

// scraped is a set of freshets that work together, scraped under a job of its own.
type scraped struct {
	job      string
	freshets []*freshet
	kafka    bool
}

// expression is one that must have data, with a name for a failure. kafka: only where there is Kafka.
type expression struct {
	name, expr string
	kafka      bool
}

// ofDashboard returns the expressions of the dashboard, for all freshets of a job.
func ofDashboard(t *testing.T, job string) (all []expression) {
	t.Helper()
	var d struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	testbed.Must(t, json.Unmarshal(grafana.File, &d))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", job, "$instance", ".*")
	row := ""
	for _, p := range d.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		for _, q := range p.Targets {
			all = append(all, expression{row + ": " + p.Title, fill.Replace(q.Expr), row == "Kafka"})
		}
	}
	return all
}

// comparison is where a rule compares: with bool it yields 0 or 1 instead of nothing.
var comparison = regexp.MustCompile(`([^=!<>~])(==|!=|>=|<=|>|<) (\d)`)

// ofRules returns what the rules are about: their expressions, except that what is not so yields 0 instead of nothing.
func ofRules(t *testing.T, job string) (all []expression) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	testbed.Must(t, yaml.Unmarshal(prometheus.Rules, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			expr := comparison.ReplaceAllString(r.Expr, "$1$2 bool $3")
			expr = strings.ReplaceAll(expr, `{job="freshet"}`, "")
			all = append(all, expression{
				r.Alert + r.Record, fmt.Sprintf(`(%s) and on (job) up{job=%q}`, expr, job),
				g.Name == "freshet-kafka",
			})
		}
	}
	return all
}

// hasData reports whether an expression yields a number.
func hasData(t *testing.T, p *testbed.PrometheusServer, expr string) bool {
	t.Helper()
	return slices.ContainsFunc(p.Query(t, expr), func(s testbed.Sample) bool { return !math.IsNaN(s.Value) })
}

// allHaveData waits until every expression has had data once, and names those that had none.
func allHaveData(t *testing.T, p *testbed.PrometheusServer, s scraped) {
	t.Helper()
	left := append(ofDashboard(t, s.job), ofRules(t, s.job)...)
	if len(left) < 80 {
		t.Fatalf("only %d expressions", len(left))
	}
	left = slices.DeleteFunc(left, func(e expression) bool { return e.kafka && !s.kafka })
	defer func() {
		for _, e := range left {
			t.Errorf("%s: %s has no data: %s", s.job, e.name, e.expr)
		}
	}()
	testbed.Eventually(t, patience, s.job+": every expression has data", func() bool {
		left = slices.DeleteFunc(left, func(e expression) bool { return hasData(t, p, e.expr) })
		return len(left) == 0
	})
}

// newPrometheus starts a Prometheus with the rules as they are shipped, and one job for each set.
func newPrometheus(t *testing.T, sets ...scraped) *testbed.PrometheusServer {
	t.Helper()
	config := "global: {scrape_interval: 250ms, evaluation_interval: 500ms}\nrule_files: " +
		"[freshet.rules.yaml]\nscrape_configs:\n"
	for _, s := range sets {
		var targets []string
		for _, f := range s.freshets {
			targets = append(targets, fmt.Sprintf("%q", f.listen))
		}
		config += fmt.Sprintf("  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", s.job, strings.Join(targets, ", "))
	}
	p, err := testbed.StartPrometheus(t.Context(), testbed.PrometheusOptions{
		Config: config, Files: map[string]string{"freshet.rules.yaml": string(prometheus.Rules)},
	})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, p.Close()) })
	return p
}

// Every expression of the dashboard and of the rules has data from running freshets, and the metrics are those that are
// documented: under load, with keys that Redis refuses, and with Redis stopped, when the alarms come.
func TestARealPrometheusHasDataForEveryExpression(t *testing.T) {
	s := newShop(t)
	// Notes are refused: they are parked, and then given up.
	s.redis.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~product:*", "~category:*", "~freshet:*")
	one := scraped{job: "freshet", freshets: []*freshet{s.run()}}
	several := scraped{job: "kafka", freshets: s.onKafka(), kafka: true}
	p := newPrometheus(t, one, several)
	s.load()

	for _, set := range []scraped{one, several} {
		allHaveData(t, p, set)
	}
	t.Run("docs", func(t *testing.T) {
		compareWithDocs(t, shown(t, one.freshets...), documented(t, "Kafka"))
		compareWithDocs(t, shown(t, several.freshets...), documented(t, "Embedded"))
	})
	fires := func(alert, job, state string) {
		t.Helper()
		testbed.Eventually(t, patience, alert+" is "+state+" for "+job, func() bool {
			return hasData(t, p, fmt.Sprintf(`ALERTS{alertname=%q, job=%q, alertstate=%q}`, alert, job, state))
		})
	}
	for _, job := range []string{one.job, several.job} {
		fires("FreshetDeadLetters", job, "firing")
	}
	t.Run("page", func(t *testing.T) { pageOfAnInvalidator(t, several.freshets[1]) })
	if alerts := p.Query(t, `ALERTS{alertname=~"FreshetRedis.*Away|FreshetRedisSlotsUnserved|FreshetRebuildsFail"}`); len(alerts) > 0 {
		t.Errorf("before anything went wrong: %v", alerts)
	}

	testbed.Must(t, s.redis.Stop())
	for _, job := range []string{one.job, several.job} {
		fires("FreshetRedisAway", job, "pending")
		fires("FreshetNotFresh", job, "pending")
	}
	for _, set := range []scraped{one, several} {
		allHaveData(t, p, set)
		lag := fmt.Sprintf(`max(freshet_invalidator_partition_lag_seconds{job=%q}) > 3`, set.job)
		testbed.Eventually(t, patience, set.job+": the lag grows", func() bool { return hasData(t, p, lag) })
	}
}
