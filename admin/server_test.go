package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLetters holds dead letters 1 to 3 until they are replayed or purged.
type fakeLetters struct{ ids []uint64 }

func (f *fakeLetters) List(_ context.Context, _ string, after uint64, limit int) ([]Letter, error) {
	var out []Letter
	for _, id := range f.ids {
		if id > after && len(out) < limit {
			out = append(out, Letter{ID: id, Key: "product:1"})
		}
	}
	return out, nil
}

func (f *fakeLetters) Replay(_ context.Context, s Selection) (int, error) { return f.take(s), nil }
func (f *fakeLetters) Purge(_ context.Context, s Selection) (int, error)  { return f.take(s), nil }

func (f *fakeLetters) take(s Selection) int {
	if s.All {
		n := len(f.ids)
		f.ids = nil
		return n
	}
	return len(s.IDs)
}

type fixture struct {
	warming fakeWarming
	*Server
	url   string
	ready error
	tails chan struct{}
	asked fakeInvalidations
	stop  func() // ends the server, and waits for it
}

func start(t *testing.T, o Options) *fixture {
	t.Helper()
	return startWith(t, &fixture{tails: make(chan struct{}, 1)}, o)
}

func startWith(t *testing.T, f *fixture, o Options) *fixture {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := New(Deps{
		Live:   func() error { return nil },
		Ready:  func() []Check { return []Check{{"source", nil}, {"redis", f.ready}} },
		Status: func() any { return map[string]string{"state": "fresh"} },
		Tail: func(ctx context.Context, each func(any) error) error {
			if err := each(map[string]int{"n": 1}); err != nil {
				return err
			}
			<-ctx.Done()
			f.tails <- struct{}{}
			return nil
		},
		Hot:     func() any { return map[string][]string{"keys": {"user:1"}} },
		Letters: &fakeLetters{ids: []uint64{1, 2, 3}},
		Doubts: &fakeDoubts{all: []Doubt{
			{ID: "a1", Message: "TRUNCATE", Last: noon},
			{ID: "b2", Last: noon},
			{
				ID: "c3", Templates: []string{"product:{id}"}, Pattern: "product:1*", Asked: true, Answer: "first of two passes",
				Stuck: true,
			},
		}},
		Invalidations: f.invalidations(),
		Warming:       &f.warming,
		Metrics:       prometheus.NewRegistry(),
		Log:           slog.New(slog.DiscardHandler),
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	f.Server, f.url = s, "http://"+s.admin.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		f.stop()
		http.DefaultClient.CloseIdleConnections()
	})
	return f
}

func get(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestHealthSaysWhatIsNotWell(t *testing.T) {
	f := start(t, Options{})
	for path, want := range map[string]string{
		"/livez": "ok\n", "/readyz": "ok\n",
		"/readyz?verbose": "[+] source ok\n[+] redis ok\n",
	} {
		if code, body := get(t, "GET", f.url+path, "", ""); code != 200 || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	f.ready = errors.New("redis 127.0.0.1:6379 does not answer")
	if code, body := get(t, "GET", f.url+"/readyz", "", ""); code != 503 ||
		!strings.Contains(body, "[-] redis: redis 127.0.0.1:6379 does not answer") {
		t.Errorf("not ready: %d %q", code, body)
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	f := start(t, Options{Token: "s3cret"})
	for _, c := range []struct {
		method, path, token, body string
		code                      int
	}{
		{"POST", "/dlq/purge", "", `{"all":true}`, 401},
		{"POST", "/dlq/purge", "wrong", `{"all":true}`, 401},
		{"GET", "/dlq", "", "", 401},
		{"GET", "/tail", "", "", 401},
		{"GET", "/debug/pprof/", "", "", 401},
		{"GET", "/status", "", "", 200},
		{"GET", "/dlq/2", "s3cret", "", 200},
		{"GET", "/dlq/9", "s3cret", "", 404},
		{"GET", "/dlq/x", "s3cret", "", 400},
		{"POST", "/dlq/replay", "s3cret", `{}`, 400},
		{"POST", "/dlq/replay", "s3cret", `{"ids":[1],"all":true}`, 400},
		{"POST", "/dlq/replay", "s3cret", `{"every":true}`, 400},
		{"POST", "/dlq/replay", "s3cret", `{"ids":[1,2]}`, 200},
		{"GET", "/dlq/replay", "s3cret", "", 400},
		{"GET", "/nothing", "s3cret", "", 404},
	} {
		if code, body := get(t, c.method, f.url+c.path, c.token, c.body); code != c.code {
			t.Errorf("%s %s with token %q and %s: %d %s, want %d", c.method, c.path, c.token, c.body, code, body, c.code)
		}
	}
	none := start(t, Options{})
	if code, body := get(t, "POST", none.url+"/dlq/purge", "", `{"all":true}`); code != 403 ||
		!strings.Contains(body, "admin.token") {
		t.Errorf("without any token configured: %d %s", code, body)
	}
}

func TestAForeignHostNameIsRefusedOnLoopback(t *testing.T) {
	f := start(t, Options{})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", f.url+"/status", nil)
	req.Host = "evil.example:80"
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 403 {
		t.Fatalf("got %s", res.Status)
	}
}

func TestAnOpenListenerNeedsATokenForEverything(t *testing.T) {
	if _, err := New(Deps{}, Options{Listen: "0.0.0.0:0"}); err == nil || !strings.Contains(err.Error(), "admin.token") {
		t.Fatalf("got %v", err)
	}
	f := start(t, Options{Listen: "0.0.0.0:0", Token: "s3cret"})
	url := "http://127.0.0.1:" + f.admin.Addr().String()[strings.LastIndexByte(f.admin.Addr().String(), ':')+1:]
	if code, _ := get(t, "GET", url+"/metrics", "", ""); code != 401 {
		t.Errorf("without the token: %d", code)
	}
	if code, _ := get(t, "GET", url+"/metrics", "s3cret", ""); code != 200 {
		t.Errorf("with the token: %d", code)
	}
}

func TestThePublicListenerShowsHealthAndMetricsOnly(t *testing.T) {
	f := start(t, Options{MetricsListen: "127.0.0.1:0", Token: "s3cret"})
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/metrics": 200, "/status": 404, "/dlq": 404,
		"/tail": 404,
	} {
		if code, _ := get(t, "GET", "http://"+f.metrics.Addr().String()+path, "s3cret", ""); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

func TestAPortInUseIsNamedByItsKey(t *testing.T) {
	f := start(t, Options{})
	_, err := New(Deps{}, Options{Listen: f.admin.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "admin.listen "+f.admin.Addr().String()) {
		t.Fatalf("got %v", err)
	}
}

func TestTheClientDoesWhatTheServerOffers(t *testing.T) {
	f := start(t, Options{Token: "s3cret"})
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	c := NewClient(f.url+"/", "s3cret", hc)
	raw, err := c.Status(t.Context())
	var status map[string]string
	if err != nil || json.Unmarshal(raw, &status) != nil || status["state"] != "fresh" {
		t.Fatalf("status %s, %v", raw, err)
	}
	letters, err := c.List(t.Context(), "", 1, 1)
	if err != nil || len(letters) != 1 || letters[0].ID != 2 {
		t.Fatalf("list %v, %v", letters, err)
	}
	if n, err := c.Replay(t.Context(), Selection{IDs: []uint64{1}}); n != 1 || err != nil {
		t.Fatalf("replay %d, %v", n, err)
	}
	if n, err := c.Purge(t.Context(), Selection{All: true}); n != 3 || err != nil {
		t.Fatalf("purge %d, %v", n, err)
	}
	if _, err := c.Purge(t.Context(), Selection{}); err == nil ||
		!strings.Contains(err.Error(), "say which dead letters") {
		t.Fatalf("an empty selection: %v", err)
	}
	stop := errors.New("stop")
	if err := c.Tail(t.Context(), func(line []byte) error {
		if string(line) != `{"n":1}` {
			t.Errorf("line %s", line)
		}
		return stop
	}); !errors.Is(err, stop) {
		t.Fatalf("tail %v", err)
	}
	<-f.tails // the server notices that the client has gone
	gone := NewClient("http://127.0.0.1:1", "", hc)
	if _, err := gone.Status(t.Context()); !errors.Is(err, ErrAway) {
		t.Fatalf("nobody there: %v", err)
	}
}

// A password in --url is in no message, whatever is wrong.
func TestNoMessageOfTheClientHasAPassword(t *testing.T) {
	f := start(t, Options{Token: "s3cret"})
	at := strings.TrimPrefix(f.url, "http://")
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, url := range []string{
		"http://me:hunter2@127.0.0.1:1", "http://me:hunter 2@127.0.0.1:1", "me:hunter2@127.0.0.1:1",
		"http://me:hunter2@" + at,
		"http://me:hunter2@" + at + "/elsewhere",
	} {
		c := NewClient(url, "guessed", hc)
		_, err := c.Replay(t.Context(), Selection{All: true})
		if err == nil || strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("%s: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(f.url, "", hc).Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrAway) {
		t.Errorf("nobody waits for the answer any more: %v", err)
	}
	if _, err := NewClient("127.0.0.1:1", "", hc).Status(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "write http://HOST:PORT") {
		t.Errorf("without a scheme: %v", err)
	}
}

// A process that is stopped takes connections, and says nothing.
func TestAFreshetThatIsFrozenIsNotWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient("http://"+l.Addr().String(), "", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	c.timeout = 50 * time.Millisecond
	if _, err := c.InvalidateKeys(t.Context(), []string{"product:1"}); !errors.Is(err, ErrAway) {
		t.Errorf("keys: %v", err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrAway) {
		t.Errorf("status: %v", err)
	}
}

func TestWhereNothingPassesTheTailSaysSo(t *testing.T) {
	w := httptest.NewRecorder()
	(&Server{}).tail(w, httptest.NewRequest(http.MethodGet, "/tail", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "ask the reader that leads") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

func TestHotKeysAreForWhoHoldsTheToken(t *testing.T) {
	f := start(t, Options{Token: "s3cret"})
	if code, body := get(t, "GET", f.url+"/hot", "", ""); code != 401 || strings.Contains(body, "user:1") {
		t.Errorf("without the token: %d %s", code, body)
	}
	if code, body := get(t, "GET", f.url+"/hot", "s3cret", ""); code != 200 || !strings.Contains(body, "user:1") {
		t.Errorf("with the token: %d %s", code, body)
	}
	b, err := NewClient(f.url, "s3cret", nil).Hot(t.Context())
	if err != nil || !strings.Contains(string(b), "user:1") {
		t.Errorf("%s %v", b, err)
	}
	if code, _ := get(t, "GET", start(t, Options{}).url+"/hot", "", ""); code != 200 {
		t.Errorf("on loopback, where no token is set: %d", code)
	}
	none := httptest.NewRecorder()
	(&Server{}).hot(none, nil)
	if none.Code != 404 || !strings.Contains(none.Body.String(), "ask an invalidator") {
		t.Errorf("where none are counted: %d %s", none.Code, none.Body)
	}
}
