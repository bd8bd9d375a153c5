package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// prometheusPackage holds prometheus and promtool. It is unpacked and not installed: installed,
// it would run as a service of the system.
const prometheusPackage = "prometheus"

// PrometheusOptions say how to start a Prometheus server.
type PrometheusOptions struct {
	// Config is the text of prometheus.yml. Default: nothing is scraped.
	Config string
	// Files are written next to prometheus.yml, which may name them as rule_files.
	Files map[string]string
	// Args are added to the server's command line.
	Args []string
	// Dir is where the instance's directory is made. Default: the temporary directory, or for tests memory.
	Dir string
	// Log gets a line about what will be installed, before it is. Default: stderr.
	Log io.Writer
}

// PrometheusServer is a running Prometheus server.
type PrometheusServer struct {
	*Process

	Version string // 2.42.0
	Addr    string // host:port
	Dir     string // the instance's directory

	http  *http.Client
	held  *port.Reservation
	owned *instanceDir
}

// Sample is one series of an instant query's result. A scalar has no labels.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Prometheus starts a Prometheus server with a configuration, the text of prometheus.yml. It
// ends with the test.
func Prometheus(t testing.TB, config string) *PrometheusServer {
	t.Helper()
	return forTest(t, StartPrometheus, PrometheusOptions{Config: config})
}

// Promtool returns the path of promtool, with which rules and configurations are checked.
func Promtool(t testing.TB) string {
	t.Helper()
	p, err := (&installer{log: os.Stderr}).prometheus(t.Context())
	Must(t, err)
	return filepath.Join(filepath.Dir(p.argv[0]), "promtool")
}

// StartPrometheus starts a Prometheus server. Close ends it.
func StartPrometheus(ctx context.Context, o PrometheusOptions) (*PrometheusServer, error) {
	p, err := Options{Log: o.Log}.installer().prometheus(ctx)
	if err != nil {
		return nil, err
	}
	held, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	s := &PrometheusServer{Version: p.version, Addr: held.Addr, Process: &Process{name: p.name}, held: held}
	s.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	if s.owned, err = newInstanceDir(o.Dir, p.name); err != nil {
		held.Release()
		return nil, err
	}
	s.Dir = s.owned.path
	s.Process.dir, s.logPath, s.ready = s.Dir, filepath.Join(s.Dir, "log"), s.answers
	config := filepath.Join(s.Dir, "prometheus.yml")
	s.argv = append([]string{
		p.argv[0], "--config.file=" + config, "--web.listen-address=" + s.Addr,
		"--storage.tsdb.path=" + filepath.Join(s.Dir, "data"), "--web.enable-lifecycle", "--log.level=warn",
	}, o.Args...)
	if err := s.write(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// write makes the configuration and the files next to it.
func (s *PrometheusServer) write(o PrometheusOptions) error {
	errs := []error{os.WriteFile(filepath.Join(s.Dir, "prometheus.yml"), []byte(o.Config), 0o644)}
	for name, text := range o.Files {
		errs = append(errs, os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("testbed: prometheus: %w", err)
	}
	return nil
}

// answers is nil once the server takes queries.
func (s *PrometheusServer) answers(ctx context.Context) error {
	_, err := s.get(ctx, "/-/ready", nil)
	return err
}

// get returns the body of an answer with status 200.
func (s *PrometheusServer) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: s.Addr, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, lastBytes(body, logTailBytes))
	}
	return body, err
}

// Query evaluates an expression now, and fails the test if the server refuses it. What has no
// data yields nothing.
func (s *PrometheusServer) Query(t testing.TB, expr string) []Sample {
	t.Helper()
	samples, err := s.QueryContext(t.Context(), expr)
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// QueryContext evaluates an expression that yields a vector or a scalar now.
func (s *PrometheusServer) QueryContext(ctx context.Context, expr string) ([]Sample, error) {
	body, err := s.get(ctx, "/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, fmt.Errorf("testbed: prometheus: %s: %w", expr, err)
	}
	samples, err := parseSamples(body)
	if err != nil {
		return nil, fmt.Errorf("testbed: prometheus: %s: %w", expr, err)
	}
	return samples, nil
}

// parseSamples reads the answer to an instant query, see "HTTP API" in Prometheus's documentation.
func parseSamples(body []byte) ([]Sample, error) {
	var answer struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	type series struct {
		Metric map[string]string
		Value  [2]any // time, value as text
	}
	var all []series
	var err error
	switch answer.Data.ResultType {
	case "vector":
		err = json.Unmarshal(answer.Data.Result, &all)
	case "scalar":
		all = make([]series, 1)
		err = json.Unmarshal(answer.Data.Result, &all[0].Value)
	default:
		err = fmt.Errorf("a result of type %q is neither vector nor scalar", answer.Data.ResultType)
	}
	if err != nil {
		return nil, err
	}
	samples := make([]Sample, len(all))
	for i, s := range all {
		text, _ := s.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		samples[i] = Sample{s.Metric, v}
	}
	return samples, nil
}

// Close kills the server, gives its port back and removes its directory.
func (s *PrometheusServer) Close() error {
	err := s.Kill()
	s.held.Release()
	return errors.Join(err, s.owned.remove())
}

// prometheus finds Prometheus with promtool next to it: on PATH, else unpacked in the cache
// directory, where it is brought if need be.
func (in *installer) prometheus(ctx context.Context) (*program, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "prometheus")
	unpacked := filepath.Join(dir, "usr", "bin", "prometheus")
	find := func() string {
		onPath, _ := lookPath("prometheus")
		for _, path := range []string{onPath, unpacked} {
			if _, err := exec.LookPath(filepath.Join(filepath.Dir(path), "promtool")); path != "" && err == nil {
				return path
			}
		}
		return ""
	}
	err = in.ensure(ctx, need{
		what:    "Prometheus (apt-get download " + prometheusPackage + ", into " + dir + ")",
		present: func() bool { return find() != "" },
		can:     canInstall,
		install: func(ctx context.Context) error { return in.unpack(ctx, dir, prometheusPackage) },
		missing: func(why error) error {
			return fmt.Errorf("testbed: prometheus is missing and cannot be installed (%w): put prometheus and promtool on PATH",
				why)
		},
	})
	if err != nil {
		return nil, err
	}
	path := find()
	if path == "" {
		return nil, fmt.Errorf("testbed: the package %s brought no prometheus and promtool", prometheusPackage)
	}
	return newProgram(ctx, "prometheus", []string{path}, nil)
}

// unpack puts the files of Debian packages into a directory, and nothing into the system. What they
// depend on must be there.
func (in *installer) unpack(ctx context.Context, dir string, names ...string) error {
	if err := asRoot(ctx, "apt-get", "-q", "update"); err != nil {
		return err
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	download := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "download"}, names...)...)
	download.Dir = part
	if out, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("testbed: apt-get download %s: %w\n%s", strings.Join(names, " "), err, lastBytes(out, logTailBytes))
	}
	debs, _ := filepath.Glob(filepath.Join(part, "*.deb"))
	for _, deb := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", deb, part).CombinedOutput(); err != nil {
			return fmt.Errorf("testbed: dpkg-deb --extract %s: %w\n%s", deb, err, lastBytes(out, logTailBytes))
		}
		if err := os.Remove(deb); err != nil {
			return fmt.Errorf("testbed: %w", err)
		}
	}
	return os.Rename(part, dir)
}
