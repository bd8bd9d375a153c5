package admin

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestThePageIsServedWithAPolicyThatAllowsNothingElse(t *testing.T) {
	f := start(t, Options{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8",
		"/icon.svg": "image/svg+xml",
	} {
		res, err := http.Get(f.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		h := res.Header
		if res.StatusCode != 200 || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %v", path, res.Status, h)
		}
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'",
			"frame-ancestors 'none'",
		} {
			if !strings.Contains(h.Get("Content-Security-Policy"), want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, h.Get("Content-Security-Policy"))
			}
		}
		if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: the policy is %s", path, h.Get("Content-Security-Policy"))
		}
	}
	for path, want := range map[string]int{"/index.html": 404, "/page/": 404, "/page.js/": 404} {
		if code, _ := get(t, "GET", f.url+path, "", ""); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if code, _ := get(t, "POST", f.url+"/", "", ""); code != 404 {
		t.Errorf("POST /: %d", code)
	}
}

// Nothing that the policy would block, and no markup out of data.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	bad := regexp.MustCompile(`https?://|style=|<script>|\son[a-z]+=|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|localStorage|sessionStorage|cookie`)
	for _, name := range []string{"index.html", "page.css", "page.js"} {
		b, err := os.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if m := bad.FindString(string(b)); m != "" {
			t.Errorf("%s has %q", name, m)
		}
	}
}

// watch opens a stream of events.
func watch(t *testing.T, url, token string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/events", nil)
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
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestTheStatusIsStreamedUntilTheServerEnds(t *testing.T) {
	f := start(t, Options{})
	res := watch(t, f.url, "")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	begin := time.Now()
	lines := bufio.NewScanner(res.Body)
	for range 2 {
		if !lines.Scan() || lines.Text() != `data: {"state":"fresh"}` || !lines.Scan() || lines.Text() != "" {
			t.Fatalf("line %q, %v", lines.Text(), lines.Err())
		}
	}
	if d := time.Since(begin); d < streamEvery/2 {
		t.Errorf("two events within %s", d)
	}
	f.stop()
	for lines.Scan() { // to the end of the stream
	}
}

func TestStreamsAreBounded(t *testing.T) {
	f := start(t, Options{})
	first := watch(t, f.url, "")
	for range maxStreams - 1 {
		watch(t, f.url, "")
	}
	if code, body := get(t, "GET", f.url+"/events", "", ""); code != 503 ||
		!strings.Contains(body, "16 pages are watching already") {
		t.Errorf("one too many: %d %s", code, body)
	}
	first.Body.Close()
	for deadline := time.Now().Add(30 * time.Second); ; {
		res := watch(t, f.url, "")
		if res.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after one has gone: %s", res.Status)
		}
	}
}

func TestOffLoopbackThePageAsksForTheTokenItself(t *testing.T) {
	f := start(t, Options{Listen: "0.0.0.0:0", Token: "s3cret"})
	url := "http://127.0.0.1:" + f.admin.Addr().String()[strings.LastIndexByte(f.admin.Addr().String(), ':')+1:]
	for path, want := range map[string]int{"/": 200, "/page.js": 200, "/events": 401, "/status": 401, "/nothing": 401} {
		if code, _ := get(t, "GET", url+path, "", ""); code != want {
			t.Errorf("%s without the token: %d, want %d", path, code, want)
		}
	}
	if res := watch(t, url, "s3cret"); res.StatusCode != 200 {
		t.Errorf("/events with the token: %s", res.Status)
	}
}

func TestThePageIsRefusedUnderAForeignHostName(t *testing.T) {
	f := start(t, Options{})
	for _, path := range []string{"/", "/events"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", f.url+path, nil)
		req.Host = "evil.example:80"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 403 {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
