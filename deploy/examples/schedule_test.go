package examples

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/proof/testbed"
)

// cronJob is what a CronJob of Kubernetes says that counts here.
type cronJob struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Spec       struct {
		Schedule          string
		TimeZone          string `yaml:"timeZone"`
		ConcurrencyPolicy string `yaml:"concurrencyPolicy"`
		JobTemplate       struct {
			Spec struct {
				Template struct {
					Spec struct {
						RestartPolicy string `yaml:"restartPolicy"`
						Containers    []struct {
							Image string
							Args  []string
							Env   []struct {
								Name      string
								Value     string
								ValueFrom struct {
									SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
								} `yaml:"valueFrom"`
							}
						}
					}
				}
			}
		} `yaml:"jobTemplate"`
	}
}

// manifest returns cronjob.yaml.
func manifest(t *testing.T) (job cronJob) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("warm", "cronjob.yaml"))
	testbed.Must(t, err)
	testbed.Must(t, yaml.Unmarshal(text, &job))
	return job
}

// unit returns the settings of a file of systemd, by section and name.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("warm", name))
	testbed.Must(t, err)
	all, section := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, setting := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case !setting:
			t.Errorf("%s has the line %q", name, line)
		default:
			all[section+"."+key] = value
		}
	}
	return all
}

func TestTheSchedulesMeanEachNight(t *testing.T) {
	job, timer, service := manifest(t), unit(t, "freshet-warm.timer"), unit(t, "freshet-warm.service")
	if job.APIVersion != "batch/v1" || job.Kind != "CronJob" || job.Spec.ConcurrencyPolicy != "Forbid" ||
		job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy != "Never" || job.Spec.TimeZone != "Etc/UTC" {
		t.Errorf("cronjob.yaml is %+v", job)
	}
	var minute, hour int
	if n, err := fmt.Sscanf(job.Spec.Schedule, "%d %d * * *", &minute, &hour); n != 2 || err != nil {
		t.Fatalf("the schedule %q is no time of each day: %v", job.Spec.Schedule, err)
	}
	if want := map[string]string{
		"Unit.Description": "Fill the cache from example.product each night",
		"Timer.OnCalendar": fmt.Sprintf("*-*-* %02d:%02d:00 UTC", hour, minute),
		"Timer.Persistent": "true", // also if the machine was off then
		"Install.WantedBy": "timers.target",
	}; !maps.Equal(timer, want) {
		t.Errorf("freshet-warm.timer is %q, want %q", timer, want)
	}
	known := []string{"Unit.Description", "Unit.After", "Service.Type", "Service.User", "Service.ExecStart"}
	if keys := slices.Sorted(maps.Keys(service)); !slices.Equal(keys, slices.Sorted(slices.Values(known))) {
		t.Errorf("freshet-warm.service has %q", keys)
	}
	// One that is not oneshot counts as started at once, so that nobody hears of a warm-up that fails.
	if service["Service.Type"] != "oneshot" {
		t.Errorf("freshet-warm.service is %q", service)
	}
}

// systemd's own checker finds keys that it does not know, and values that it cannot read.
func TestSystemdTakesTheUnits(t *testing.T) {
	checker := testbed.SystemdAnalyze(t)
	dir := t.TempDir()
	for _, name := range []string{"freshet-warm.timer", "freshet-warm.service"} {
		text, err := os.ReadFile(filepath.Join("warm", name))
		testbed.Must(t, err)
		here := strings.ReplaceAll(string(text), "/usr/local/bin/freshet", "/bin/true")
		testbed.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(here), 0o600))
	}
	for _, name := range []string{"freshet-warm.timer", "freshet-warm.service"} {
		out, err := exec.CommandContext(t.Context(), checker, "verify", filepath.Join(dir, name)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "freshet-warm") { // it also speaks of other units of the machine
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// What the schedules run fills the cache of a freshet that runs: from a container that has only what the manifest gives
// it, and as systemd starts it.
func TestWhatTheSchedulesRunFillsTheCache(t *testing.T) {
	d := newDesk(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"), testbed.Redis(t))
	dir, err := filepath.Abs("warm")
	testbed.Must(t, err)
	listen := testbed.FreeAddress(t)
	s := &session{t: t, dir: dir, env: append(slices.Clone(d.env),
		"FRESHET_ADMIN_LISTEN="+listen, "FRESHET_EVENTLOG_DIR="+filepath.Join(t.TempDir(), "data"))}
	s.run("mysql < schema.sql")
	s.run(`mysql example -e "INSERT INTO product VALUES (19, 'Shelf', 80.00, 0, NULL)"`)
	s.do(command{line: "freshet run"})

	fills := func(t *testing.T, env []string, argv ...string) {
		t.Helper()
		d.redis.Do(t, "FLUSHALL")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(d.path, "freshet"), argv...)
		cmd.Dir, cmd.Env = t.TempDir(), env
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "is done: 2 rows read") {
			t.Fatalf("freshet %q: %v\n%s", argv, err, out)
		}
		n, err := d.redis.Client().Exists(t.Context(), "product:17", "product:18").Result()
		testbed.Must(t, err)
		none, err := d.redis.Client().Exists(t.Context(), "product:19").Result()
		testbed.Must(t, err)
		if n != 2 || none != 0 {
			t.Errorf("%d of 2 products are cached, and %d of those that are not in stock", n, none)
		}
	}
	t.Run("kubernetes", func(t *testing.T) {
		all := manifest(t).Spec.JobTemplate.Spec.Template.Spec.Containers
		if len(all) != 1 {
			t.Fatalf("%d containers", len(all))
		}
		var env []string
		for _, e := range all[0].Env {
			if e.ValueFrom.SecretKeyRef.Key == "admin-token" {
				e.Value = "example-token" // of freshet.yaml
			}
			env = append(env, e.Name+"="+e.Value)
		}
		argv := slices.Clone(all[0].Args)
		at := slices.Index(argv, "http://freshet:8686")
		if at < 0 {
			t.Fatalf("%q asks no freshet at its port", argv)
		}
		argv[at] = "http://" + listen
		fills(t, env, argv...)
	})
	t.Run("systemd", func(t *testing.T) {
		line := unit(t, "freshet-warm.service")["Service.ExecStart"]
		if strings.ContainsAny(line, `$%\';`) {
			t.Fatalf("%s: systemd reads some of these characters in its own way", line)
		}
		argv := fields(line)
		if argv[0] != "/usr/local/bin/freshet" {
			t.Fatalf("%q", argv)
		}
		at := slices.Index(argv, "/etc/freshet/freshet.yaml")
		if at < 0 {
			t.Fatalf("%q names no configuration", argv)
		}
		argv[at] = filepath.Join(dir, "freshet.yaml")
		fills(t, s.env, argv[1:]...)
	})
	if code := s.freshet.Stop(t, patience); code != 0 {
		t.Errorf("freshet stopped with exit code %d", code)
	}
}

// fields splits a line at blanks that are in no double quotes.
func fields(line string) (words []string) {
	quoted := false
	for _, w := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		words = append(words, strings.Trim(w, `"`))
	}
	return words
}
