package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJavaSaysItsVersion(t *testing.T) {
	for out, want := range map[string]int{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime": 17,
		"openjdk version \"21\" 2023-09-19":                       21,
		"java version \"1.8.0_392\"":                              1,
		"picked up options\nopenjdk version \"25-ea\"":            25,
		"no Java at all": 0,
	} {
		if got := javaMajor(out); got != want {
			t.Errorf("%q is %d, want %d", out, got, want)
		}
	}
}

func TestKafkaHomeIsTakenIfItIsOfTheVersion(t *testing.T) {
	home, cache := t.TempDir(), t.TempDir()
	t.Setenv("KAFKA_HOME", home)
	t.Setenv("XDG_CACHE_HOME", cache)
	cached := filepath.Join(cache, "freshet-testbed", "kafka-4.1.0")
	Must(t, os.MkdirAll(cached, 0o755))
	Must(t, os.MkdirAll(filepath.Join(home, "libs"), 0o755))
	Must(t, os.WriteFile(filepath.Join(home, "libs", "kafka_2.13-4.3.0.jar"), nil, 0o644))
	for version, want := range map[string]string{"4.3.0": filepath.Join(home, "libs"), "4.1.0": cached} {
		got, err := (&installer{log: os.Stderr}).kafkaJars(t.Context(), version)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", version, got, err, want)
		}
	}
}

func TestWhatIsMissingIsSaidInOneLine(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("KAFKA_HOME", "")
	_, err := StartKafka(t.Context(), KafkaOptions{})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), EnvKafka) ||
		!strings.Contains(err.Error(), "on PATH") {
		t.Errorf("Kafka: %v", err)
	}
	// Where it is in a directory for servers it is found without PATH.
	if _, err := StartPrometheus(t.Context(), PrometheusOptions{Config: "no: such"}); err == nil {
		t.Error("Prometheus started")
	} else if strings.Contains(err.Error(), "missing") &&
		(strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "promtool on PATH")) {
		t.Errorf("Prometheus: %v", err)
	}
}
