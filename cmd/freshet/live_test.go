package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

func TestARunningFreshetTellsHowItIsAndStopsWhenItIsTold(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		metrics := testbed.FreeAddress(t)
		s.env = []string{"FRESHET_ADMIN_METRICS_LISTEN=" + metrics}
		r := s.run()
		s.env = nil
		s.cache("product:1")
		s.write(1)
		s.gone("product:1")
		s.await("the row is counted, and finished", func(st *app.Status) bool {
			return st.Rows == 1 && st.Keys >= 2 && st.Pending == 0
		})

		t.Run("status", func(t *testing.T) { s.statusIsTold(t) })
		t.Run("health", func(t *testing.T) { healthIsTold(t, "http://"+s.listen, "http://"+metrics) })
		t.Run("metrics", func(t *testing.T) { metricsAreClean(t, "http://"+s.listen) })
		t.Run("second", func(t *testing.T) { s.secondIsRefused(t) })
		tail, lines := s.tails()

		if code := r.Stop(t, patience); code != exitDone {
			t.Fatalf("exit code %d after SIGTERM", code)
		}
		if r.Stdout() != "" {
			t.Errorf("on stdout: %s", r.Stdout())
		}
		for line := range strings.Lines(r.Stderr()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("a line of the log is no JSON: %s", line)
			}
		}
		// Who watched is let go, and what it saw was whole.
		for _, w := range []*testbed.Running{tail, lines} {
			if code := w.Wait(t, patience); code != exitDone {
				t.Errorf("tail: exit code %d", code)
			}
		}
		if file := strings.TrimSpace(s.ask("position", "show")); !strings.Contains(file, "file ") {
			t.Errorf("position show: %s", file)
		}
	})
}

func (s *site) statusIsTold(t *testing.T) {
	text := s.ask("status")
	for _, want := range []string{
		`(?m)^state +fresh: all that was committed until .* ago is finished, final deletes included$`,
		`(?m)^fresh as of +20`,
		`(?m)^source +default, ` + regexp.QuoteMeta(s.source.Addr) + `, ` + string(s.source.Flavor) + `, .*:[0-9]+$`,
		`(?m)^since the start +1 row changes$`,
		`(?m)^keys done +[2-9] since the start, `,
		`(?m)^in trouble +0 parked, 0 dead letters$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("status lacks %s:\n%s", want, text)
		}
	}
	var st app.Status
	if err := json.Unmarshal([]byte(s.ask("status", "--json")), &st); err != nil || st.Rows != 1 || !st.Redis.Up ||
		st.Source.Server == "" {
		t.Errorf("status --json: %+v, %v", st, err)
	}
	if hot := s.ask("status", "--hot"); !strings.Contains(hot, "HOTTEST TABLES") ||
		!strings.Contains(hot, "HOTTEST KEYS") || !strings.HasPrefix(hot, "state") {
		t.Errorf("the hottest: %s", hot)
	}
	var hot app.HotStatus
	if err := json.Unmarshal([]byte(s.ask("status", "--hot", "--json")), &hot); err != nil || len(hot.Keys) == 0 ||
		len(hot.Tables) != 1 {
		t.Errorf("the hottest: %+v, %v", hot, err)
	}
	if elsewhere := s.ask("status", "--url", "http://"+s.listen+"/"); !strings.HasPrefix(elsewhere, "state") {
		t.Errorf("status --url: %s", elsewhere)
	}
}

func healthIsTold(t *testing.T, urls ...string) {
	for _, url := range urls {
		for path, want := range map[string]string{
			"/livez": "ok\n", "/readyz": "ok\n",
			"/readyz?verbose": "[+] source ok\n[+] redis ok\n",
		} {
			if code, body := get(t, url+path); code != 200 || body != want {
				t.Errorf("%s%s: %d %q", url, path, code, body)
			}
		}
	}
}

func metricsAreClean(t *testing.T, url string) {
	code, body := get(t, url+"/metrics")
	if code != 200 || !strings.Contains(body, "\nfreshet_") {
		t.Fatalf("%d\n%s", code, body)
	}
	problems, err := promlint.New(bytes.NewReader([]byte(body))).Lint()
	testbed.Must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if strings.Contains(body, "product:1") {
		t.Error("the metrics name a key")
	}
}

// secondIsRefused starts what would get in the way of a running freshet.
func (s *site) secondIsRefused(t *testing.T) {
	other := *s
	other.t, other.listen = t, testbed.FreeAddress(t)
	other.refused(exitFailed, []string{s.dir, "in use by another process"}, "run")
	other.refused(exitFailed, []string{"in use by another process", "stop freshet"}, "position", "set", "gtid:"+
		s.source.GTIDs(t))
	other.refused(exitFailed, []string{"in use by another process", "freshet status"}, "position", "show")
	port := *s
	port.t, port.dir = t, t.TempDir()
	port.refused(exitFailed, []string{"admin.listen " + s.listen, "address already in use"}, "run")
	port.listen = other.listen
	if out := port.start("run", "--until-caught-up"); out.Wait(t, patience) != exitDone {
		t.Error("the directory of the freshet that was refused for its port cannot be used")
	}
}

// tails starts both kinds of tail, and returns them when they have shown something.
func (s *site) tails() (text, lines *testbed.Running) {
	s.t.Helper()
	text, lines = s.start("tail"), s.start("tail", "--json")
	testbed.Eventually(s.t, patience, "both tails show an invalidation", func() bool {
		s.write(7)
		return strings.Contains(text.Stdout(), "product:7") && strings.Contains(lines.Stdout(), "product:7")
	})
	line, _, _ := strings.Cut(text.Stdout(), "\n")
	if !regexp.MustCompile(`^20[^ ]+  delete  shop\.product  "product:7"  [0-9/]+  [^ ]+$`).MatchString(line) {
		s.t.Errorf("tail: %s", line)
	}
	line, _, _ = strings.Cut(lines.Stdout(), "\n")
	var e app.TailEvent
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Key != "product:7" || e.Table != "shop.product" ||
		e.Committed.IsZero() || e.GTID == "" {
		s.t.Errorf("tail --json: %s, %v", line, err)
	}
	return text, lines
}

func TestAnInterruptedTailEndsWell(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	r := s.run()
	text, lines := s.tails()
	text.Signal(syscall.SIGINT)
	lines.Signal(syscall.SIGTERM)
	for _, w := range []*testbed.Running{text, lines} {
		if code := w.Wait(t, patience); code != exitDone || w.Stderr() != "" {
			t.Errorf("exit code %d, on stderr %q", code, w.Stderr())
		}
	}
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestAWrongPasswordIsASentenceWithoutThePassword(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		source.Exec(t, "CREATE USER 'cache'@'127.0.0.1' IDENTIFIED BY 'right-password'")
		s.user, s.password = "cache", "wrong-password"
		r := s.start("run")
		ends(t, r, exitFailed, "source "+source.Addr, "Access denied for user 'cache'")
		if strings.Contains(r.Stderr(), s.password) {
			t.Error("the password is told")
		}
		check := s.start("check")
		if code := check.Wait(t, patience); code != exitFailed || !strings.Contains(check.Stdout(), "Access denied") ||
			strings.Contains(check.Stdout(), s.password) {
			t.Errorf("check: exit code %d, %s", code, check.Stdout())
		}
	})
}

func TestFreshetStartsWithoutRedisAndRecovers(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	testbed.Must(t, s.redis.Stop())
	r := s.start("run")
	s.await("it says that Redis is away", func(st *app.Status) bool {
		return st.State == app.Behind && !st.Redis.Up && strings.Contains(st.Sentence, s.redis.Addr)
	})
	if code, body := s.get("/readyz"); code != 503 || !strings.Contains(body, "[-] redis: ") ||
		!strings.Contains(body, "[+] source ok") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, _ := s.get("/livez"); code != 200 {
		t.Errorf("/livez: %d: a restart would not help", code)
	}
	s.write(1)
	testbed.Must(t, s.redis.Start(t.Context()))
	// What was cached before the first start could not be looked at.
	s.await("all is finished", func(st *app.Status) bool {
		return st.State == app.Doubtful && st.Keys >= 2 && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.FirstStart
	})
	s.ask("doubts", "dismiss", s.status().Doubts[0].ID)
	s.await("it is fresh again", func(st *app.Status) bool { return st.State == app.Fresh })
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestAFirstStartAmongTheKeysOfOthersIsFresh(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		for _, key := range lookalikes() {
			s.cache(key)
		}
		s.run().Stop(t, patience)
		s.dir = filepath.Join(t.TempDir(), "data") // a first start once more
		s.cache("product:1")
		s.start("run")
		s.await("it is in doubt", func(st *app.Status) bool {
			return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.FirstStart
		})
	})
}

func TestFreshetWaitsForTheSourceAndCanBeStoppedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	testbed.Must(t, s.source.Stop())
	r := s.start("run")
	s.await("it says that it connects", func(st *app.Status) bool {
		return st.State == app.Starting && strings.Contains(st.Sentence, s.source.Addr)
	})
	if code, body := s.get("/readyz"); code != 503 || !strings.Contains(body, "[-] source: ") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestFreshetStopsWhileRedisHangsAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	r := s.run()
	s.cache("product:1")
	testbed.Must(t, s.redis.Pause())
	s.write(1)
	s.await("the key is in flight, and Redis is missed",
		func(st *app.Status) bool { return st.InFlight == 1 && !st.Redis.Up })
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	testbed.Must(t, s.redis.Resume())
	if rows, _ := s.caughtUp(); rows != 1 || s.cached("product:1") {
		t.Errorf("rows=%d, and product:1 cached: %v", rows, s.cached("product:1"))
	}
}
