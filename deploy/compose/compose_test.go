package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should happen at once.
const patience = 60 * time.Second

func project(t *testing.T) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{"compose.yaml"})
	testbed.Must(t, err)
	p, err := o.LoadProject(t.Context())
	testbed.Must(t, err)
	return p
}

func TestTheProjectIsWhole(t *testing.T) {
	p := project(t)
	want := []string{"grafana", "invalidator", "kafka", "mysql", "prometheus", "reader", "redis"}
	if got := p.ServiceNames(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("services %v", got)
	}
	exact := regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+\.\d+$`)
	for name, s := range p.Services {
		if s.Build == nil && !exact.MatchString(s.Image) {
			t.Errorf("%s: the image %s is not pinned to one version", name, s.Image)
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, "Dockerfile")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if fi, err := os.Stat(v.Source); err != nil || fi.IsDir() || !v.ReadOnly {
				t.Errorf("%s: %s must be a file, and mounted for reading: %v", name, v.Source, err)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to everybody", name, port.Published)
			}
		}
	}
	if n := p.Services["invalidator"].Deploy.Replicas; n == nil || *n != 2 {
		t.Errorf("invalidators: %v", n)
	}
}

// mounted returns the file that a service sees at a path.
func mounted(t *testing.T, s types.ServiceConfig, target string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Target == target {
			return v.Source
		}
	}
	t.Fatalf("%s has nothing at %s", s.Name, target)
	return ""
}

func TestPrometheusAndGrafanaFindWhatTheyAreGiven(t *testing.T) {
	p := project(t)
	config := mounted(t, p.Services["prometheus"], "/etc/prometheus/prometheus.yaml")
	if out, err := exec.CommandContext(t.Context(), testbed.Promtool(t), "check", "config", "--syntax-only",
		config).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	names := map[string]string{
		config: "/etc/prometheus/freshet.rules.yaml",
		mounted(t, p.Services["grafana"], "/etc/grafana/provisioning/dashboards/freshet.yaml"): "/etc/grafana/dashboards",
	}
	for file, path := range names {
		text, err := os.ReadFile(file)
		testbed.Must(t, err)
		if !strings.Contains(string(text), path) {
			t.Errorf("%s does not name %s", file, path)
		}
	}
	mounted(t, p.Services["prometheus"], "/etc/prometheus/freshet.rules.yaml")
	mounted(t, p.Services["grafana"], "/etc/grafana/dashboards/freshet.json")
}

// The commands and configurations of the project, with real servers instead of its images: a row changes, and its key
// is deleted.
func TestTheProjectsConfigurationsWork(t *testing.T) {
	p := project(t)
	source, redis, kafka := testbed.MySQL(t, p.Services["mysql"].Command...), testbed.Redis(t), testbed.Kafka(t)
	script, err := os.ReadFile(mounted(t, p.Services["mysql"], "/docker-entrypoint-initdb.d/freshet.sql"))
	testbed.Must(t, err)
	for statement := range strings.SplitSeq(regexp.MustCompile(`--.*`).ReplaceAllString(string(script), ""), ";") {
		if strings.TrimSpace(statement) != "" {
			source.Exec(t, statement)
		}
	}
	start := func(name string) *testbed.Running {
		s := p.Services[name]
		text, err := os.ReadFile(mounted(t, s, "/etc/freshet/freshet.yaml"))
		testbed.Must(t, err)
		env := []string{
			"FRESHET_EVENTLOG_KAFKA_BROKERS=" + strings.Join(kafka.Brokers(), ","),
			"FRESHET_ADMIN_LISTEN=" + testbed.FreeAddress(t), "FRESHET_ADMIN_METRICS_LISTEN=" + testbed.FreeAddress(t),
		}
		if name == "reader" {
			env = append(env, "FRESHET_SOURCE_ADDRESSES="+source.Addr)
		} else {
			env = append(env, "FRESHET_REDIS_ADDRESSES="+redis.Addr)
		}
		for k, v := range s.Environment {
			env = append(env, fmt.Sprintf("%s=%s", k, *v))
		}
		if code := (testbed.Program{Args: []string{"validate"}, Config: string(text), Env: env}).Start(t).Wait(t,
			patience); code != 0 {
			t.Fatalf("%s: validate: exit code %d", name, code)
		}
		return testbed.Program{Args: s.Command, Config: string(text), Env: env}.Start(t)
	}
	all := []*testbed.Running{start("reader"), start("invalidator"), start("invalidator")}
	client := redis.Client()
	price := 0
	testbed.Eventually(t, patience, "a changed row's key is deleted", func() bool {
		testbed.Must(t, client.SetNX(t.Context(), "product:1", "old", 0).Err())
		price++
		source.Exec(t, fmt.Sprintf("UPDATE shop.product SET price = %d WHERE id = 1", price))
		n, err := client.Exists(t.Context(), "product:1").Result()
		testbed.Must(t, err)
		return n == 0
	})
	for i, r := range all {
		if code := r.Stop(t, patience); code != 0 {
			t.Errorf("program %d: exit code %d", i, code)
		}
	}
}
