package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should happen at once.
const patience = 60 * time.Second

func project(t *testing.T, more ...string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions(append([]string{"compose.yaml"}, more...))
	testbed.Must(t, err)
	p, err := o.LoadProject(t.Context())
	testbed.Must(t, err)
	return p
}

const services = "grafana invalidator kafka mysql prometheus reader redis"

func TestTheProjectIsWhole(t *testing.T) {
	t.Run("one Redis", func(t *testing.T) { testWhole(t, project(t), services) })
	t.Run("sentinels", func(t *testing.T) {
		testWhole(t, project(t, "compose.sentinel.yaml"), services+" redis-replica sentinel-1 sentinel-2 sentinel-3")
	})
	t.Run("cluster", func(t *testing.T) {
		testWhole(t, project(t, "compose.cluster.yaml"),
			"cluster "+services+" redis-2 redis-3 redis-4 redis-5 redis-6")
	})
}

func testWhole(t *testing.T, p *types.Project, want string) {
	if got := strings.Join(p.ServiceNames(), " "); got != want {
		t.Fatalf("services %s, want %s", got, want)
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
	source, kafka := testbed.MySQL(t, p.Services["mysql"].Command...), testbed.Kafka(t)
	script, err := os.ReadFile(mounted(t, p.Services["mysql"], "/docker-entrypoint-initdb.d/freshet.sql"))
	testbed.Must(t, err)
	for statement := range strings.SplitSeq(regexp.MustCompile(`--.*`).ReplaceAllString(string(script), ""), ";") {
		if strings.TrimSpace(statement) != "" {
			source.Exec(t, statement)
		}
	}
	t.Run("one Redis", func(t *testing.T) {
		s := newStage(t, p, source, kafka)
		s.run(t, "one", func() { s.deletes(t, s.redis["redis"].Client()) })
	})
	t.Run("sentinels", func(t *testing.T) {
		s := newStage(t, project(t, "compose.sentinel.yaml"), source, kafka)
		sentinels := s.startSentinels(t)
		s.run(t, "sentinels", func() {
			s.deletes(t, s.redis["redis"].Client())
			testbed.Eventually(t, patience, "the sentinels fail over", func() bool {
				return sentinels[0].Client().Failover(t.Context(), "mymaster").Err() == nil
			})
			testbed.Eventually(t, patience, "the replica is the master", func() bool {
				return s.redis["redis-replica"].IsMaster(t.Context())
			})
			s.deletes(t, s.redis["redis-replica"].Client())
		})
	})
	t.Run("cluster", func(t *testing.T) {
		s := newStage(t, project(t, "compose.cluster.yaml"), source, kafka)
		s.makeCluster(t)
		var addrs []string
		for _, r := range s.redis {
			addrs = append(addrs, r.Addr)
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		defer client.Close()
		s.run(t, "cluster", func() { s.deletes(t, client) })
	})
}

// stage is the project's servers as processes: each address that it names is another one here.
type stage struct {
	project *types.Project
	source  *testbed.Server
	kafka   *testbed.KafkaCluster
	redis   map[string]*testbed.RedisServer
	here    []string // the project's addresses, each with the one here
}

// newStage starts what the project calls redis-server.
func newStage(t *testing.T, p *types.Project, source *testbed.Server, kafka *testbed.KafkaCluster) *stage {
	t.Helper()
	s := &stage{project: p, source: source, kafka: kafka, redis: map[string]*testbed.RedisServer{}}
	for _, name := range p.ServiceNames() { // a master before its replica
		if name != "redis" && !strings.HasPrefix(name, "redis-") {
			continue
		}
		words := slices.Clone([]string(p.Services[name].Command))
		for i, w := range words {
			switch other, is := s.redis[w]; {
			case is && words[i-1] == "--replicaof":
				words[i], words[i+1] = "127.0.0.1", strconv.Itoa(other.Port)
			case words[max(i-1, 0)] == "--replica-announce-ip":
				words[i] = "localhost"
			}
		}
		s.redis[name] = testbed.Redis(t, words[min(1, len(words)):]...)
		s.here = append(s.here, name+":6379", s.redis[name].Addr)
	}
	return s
}

// translate returns a text with the addresses that there are here.
func (s *stage) translate(text string) string { return strings.NewReplacer(s.here...).Replace(text) }

// startSentinels starts the project's sentinels.
func (s *stage) startSentinels(t *testing.T) (all []*testbed.Sentinel) {
	t.Helper()
	text, err := os.ReadFile(mounted(t, s.project.Services["sentinel-1"], "/etc/sentinel.conf"))
	testbed.Must(t, err)
	all = testbed.Sentinels(t, testbed.SentinelOptions{
		Name: "mymaster",
		Text: strings.ReplaceAll(string(text), "redis 6379", "localhost "+strconv.Itoa(s.redis["redis"].Port)),
	}, 3)
	for i, c := range all {
		s.here = append(s.here, fmt.Sprintf("sentinel-%d:26379", i+1), c.Addr)
	}
	testbed.Eventually(t, patience, "the sentinels know the replica", func() bool {
		return !slices.ContainsFunc(all, func(c *testbed.Sentinel) bool {
			of, err := c.Client().Replicas(t.Context(), "mymaster").Result()
			return err != nil || len(of) != 1 || of[0]["master-link-status"] != "ok"
		})
	})
	return all
}

// makeCluster does what the project does to make a cluster of its nodes, and once more, when they are one.
func (s *stage) makeCluster(t *testing.T) {
	t.Helper()
	words := s.project.Services["cluster"].Command
	for range 2 {
		cmd := exec.CommandContext(t.Context(), words[0], words[1], s.translate(words[2]))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// run runs the project's programs, with a topic of their own, while do is done.
func (s *stage) run(t *testing.T, topic string, do func()) {
	t.Helper()
	var all []*testbed.Running
	for _, name := range []string{"reader", "invalidator", "invalidator"} {
		all = append(all, s.start(t, topic, name))
	}
	do()
	for i, r := range all {
		if code := r.Stop(t, patience); code != 0 {
			t.Errorf("program %d: exit code %d", i, code)
		}
	}
}

func (s *stage) start(t *testing.T, topic, name string) *testbed.Running {
	t.Helper()
	service := s.project.Services[name]
	text, err := os.ReadFile(mounted(t, service, "/etc/freshet/freshet.yaml"))
	testbed.Must(t, err)
	config := s.translate(strings.ReplaceAll(string(text), "mysql:3306", s.source.Addr))
	env := []string{
		"FRESHET_EVENTLOG_KAFKA_BROKERS=" + strings.Join(s.kafka.Brokers(), ","), "FRESHET_EVENTLOG_KAFKA_TOPIC=" + topic,
		"FRESHET_ADMIN_LISTEN=" + testbed.FreeAddress(t), "FRESHET_ADMIN_METRICS_LISTEN=" + testbed.FreeAddress(t),
	}
	for k, v := range service.Environment {
		env = append(env, k+"="+s.translate(*v))
	}
	program := testbed.Program{Args: []string{"validate"}, Config: config, Env: env}
	if code := program.Start(t).Wait(t, patience); code != 0 {
		t.Fatalf("%s: validate: exit code %d", name, code)
	}
	program.Args = service.Command
	return program.Start(t)
}

// deletes waits until a change of each row deletes its key.
func (s *stage) deletes(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	for id := 1; id <= 3; id++ {
		key := fmt.Sprintf("product:%d", id)
		testbed.Eventually(t, patience, "the changed row's key is deleted: "+key, func() bool {
			testbed.Must(t, client.SetNX(t.Context(), key, "old", 0).Err())
			s.source.Exec(t, fmt.Sprintf("UPDATE shop.product SET price = price + 1 WHERE id = %d", id))
			n, err := client.Exists(t.Context(), key).Result()
			testbed.Must(t, err)
			return n == 0
		})
	}
}
