package prometheus

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// promtool runs Prometheus' own checker in this directory.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testbed.Promtool(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestTheRulesDoWhatTheirTestsSay(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yaml")
	promtool(t, "test", "rules", "freshet.rules.test.yaml")
}

func TestEveryAlertSaysWhatToDoAndIsTested(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Record      string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	testbed.Must(t, yaml.Unmarshal(Rules, &file))
	tests, err := os.ReadFile("freshet.rules.test.yaml")
	testbed.Must(t, err)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if !strings.Contains(string(tests), r.Alert+r.Record) {
				t.Errorf("%s%s is in no test", r.Alert, r.Record)
			}
			if r.Alert == "" {
				continue
			}
			if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			for _, name := range []string{"summary", "runbook"} {
				if len(r.Annotations[name]) < 30 {
					t.Errorf("%s has no %s worth the name: %q", r.Alert, name, r.Annotations[name])
				}
			}
		}
	}
}
