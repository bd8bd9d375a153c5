package testbed_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

func TestPrometheusScrapesAndAnswers(t *testing.T) {
	s := testbed.Prometheus(t, "global: {scrape_interval: 100ms}\n")
	if got := s.Query(t, "1 + 1"); len(got) != 1 || got[0].Value != 2 {
		t.Fatalf("1 + 1 is %v", got)
	}
	if _, err := s.QueryContext(t.Context(), "1 +"); err == nil {
		t.Fatal("half an expression was answered")
	}
	scraper := testbed.Prometheus(t,
		fmt.Sprintf("global: {scrape_interval: 100ms}\nscrape_configs: [{job_name: p, static_configs: [{targets: [%q]}]}]\n",
			s.Addr))
	testbed.Eventually(t, 2*time.Minute, "the target is up", func() bool {
		got := scraper.Query(t, `up{job="p"}`)
		return len(got) == 1 && got[0].Value == 1 && got[0].Labels["instance"] == s.Addr
	})
	testbed.Must(t, scraper.Stop())
	testbed.Must(t, scraper.Start(t.Context()))
	if got := scraper.Query(t, `max_over_time(up[1m])`); len(got) != 1 {
		t.Fatalf("after a restart: %v", got)
	}
}

func TestPromtoolTellsGoodRulesFromBad(t *testing.T) {
	for expr, good := range map[string]bool{"up == 0": true, "up ==": false} {
		file := filepath.Join(t.TempDir(), "rules.yml")
		testbed.Must(t, os.WriteFile(file, []byte("groups: [{name: g, rules: [{alert: A, expr: '"+expr+"'}]}]\n"), 0o644))
		out, err := exec.Command(testbed.Promtool(t), "check", "rules", file).CombinedOutput()
		if (err == nil) != good {
			t.Fatalf("%s: %v\n%s", expr, err, out)
		}
	}
}
