package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/deploy/examples/localcache"
	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// site is an nginx with the shipped configuration in front of an application that counts how often it is asked.
type site struct {
	t      *testing.T
	dir    string
	url    string
	client http.Client
	asked  atomic.Int64
	redis  *testbed.RedisServer
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		t: t, dir: t.TempDir(), redis: testbed.Redis(t),
		client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, edition %d", r.URL.Path, s.asked.Add(1))
	}))
	t.Cleanup(application.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	listen := l.Addr().String()
	testbed.Must(t, l.Close())
	text, err := os.ReadFile("nginx.conf")
	testbed.Must(t, err)
	config := strings.NewReplacer("127.0.0.1:8080", listen, "http://127.0.0.1:8000", application.URL).Replace(string(text))
	if os.Geteuid() == 0 {
		config = "user root;\n" + config // its workers would have no rights in the test's directory
	}
	testbed.Must(t, os.WriteFile(filepath.Join(s.dir, "nginx.conf"), []byte(config), 0o644))
	testbed.Must(t, os.Mkdir(filepath.Join(s.dir, "pages"), 0o755))
	s.url = "http://" + listen
	s.serve(testbed.Nginx(t))
	return s
}

// serve runs nginx until the test ends.
func (s *site) serve(nginx string) {
	s.t.Helper()
	args := []string{"-p", s.dir, "-c", "nginx.conf", "-e", "stderr"}
	if out, err := exec.CommandContext(s.t.Context(), nginx, append(args, "-t")...).CombinedOutput(); err != nil {
		s.t.Fatalf("nginx -t: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), nginx, args...)
	testbed.Must(s.t, cmd.Start())
	s.t.Cleanup(func() {
		testbed.Must(s.t, cmd.Process.Signal(syscall.SIGTERM))
		testbed.Must(s.t, cmd.Wait())
	})
	testbed.Eventually(s.t, patience, "nginx listens", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// get returns a page, and if it was kept.
func (s *site) get(path string) (page string, kept bool) {
	s.t.Helper()
	res, err := s.client.Get(s.url + path)
	testbed.Must(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	testbed.Must(s.t, err)
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", path, res.Status)
	}
	return string(body), res.Header.Get("X-Cache") == "HIT"
}

func (s *site) keeps(path string) {
	s.t.Helper()
	page, _ := s.get(path)
	testbed.Eventually(s.t, patience, path+" is kept", func() bool {
		again, kept := s.get(path)
		same := again == page
		page = again
		return kept && same
	})
}

// purge runs the program's inside until the returned function is called.
func (s *site) purge() (stop func()) {
	s.t.Helper()
	rdb := s.redis.NewClient(&redis.Options{MaxRetries: -1})
	p := &purger{
		dir: filepath.Join(s.dir, "pages"), key: regexp.MustCompile("^price:([0-9]+)$"), page: "/price/$1",
		state:  filepath.Join(s.dir, "last"),
		failed: func(err error) { s.t.Error(err) },
	}
	p.follower = &localcache.Follower{Redis: rdb, Stream: "price-changes", Last: p.last(), Handler: p}
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.follower.Run(ctx, func(err error) { s.t.Log(err) }) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait(); testbed.Must(s.t, rdb.Close()) })
	s.t.Cleanup(stop)
	return stop
}

func (s *site) change(key string) {
	s.t.Helper()
	s.redis.Do(s.t, "XADD", "price-changes", "*", "key", key, "action", "delete")
}

func TestAPageIsKeptUntilItsRowChanges(t *testing.T) {
	s := newSite(t)
	s.change("price:1")
	stop := s.purge()
	testbed.Eventually(t, patience, "the stream is followed",
		func() bool { _, err := os.Stat(filepath.Join(s.dir, "last")); return err == nil })
	s.keeps("/price/17")
	s.keeps("/price/18")
	asked := s.asked.Load()
	before, _ := s.get("/price/17")
	s.change("other:17")
	s.change("price:17")
	testbed.Eventually(t, patience, "the page is fetched again",
		func() bool { page, _ := s.get("/price/17"); return page != before })
	if _, kept := s.get("/price/18"); !kept || s.asked.Load() != asked+1 {
		t.Errorf("the other page was fetched as well: the application was asked %d times more", s.asked.Load()-asked)
	}

	// What changes while nobody removes pages is removed when somebody does again, and no more.
	stop()
	s.keeps("/price/17")
	before, _ = s.get("/price/17")
	s.change("price:17")
	asked = s.asked.Load()
	stop = s.purge()
	testbed.Eventually(t, patience, "the page is fetched again",
		func() bool { page, _ := s.get("/price/17"); return page != before })
	if _, kept := s.get("/price/18"); !kept || s.asked.Load() != asked+1 {
		t.Errorf("the other page was fetched as well: the application was asked %d times more", s.asked.Load()-asked)
	}

	// Entries that are gone may have told of any page.
	stop()
	s.redis.Do(t, "DEL", "price-changes")
	s.change("price:99")
	before, _ = s.get("/price/18")
	s.purge()
	testbed.Eventually(t, patience, "every page is fetched again",
		func() bool { page, _ := s.get("/price/18"); return page != before })
}

// What is no page of nginx is never removed, and a page that cannot be removed ends the program with its position where
// it was.
func TestOnlyPagesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	var failed error
	p := &purger{
		dir: dir, key: regexp.MustCompile("^price:([0-9]+)$"), page: "/price/$1", state: filepath.Join(t.TempDir(), "last"),
		failed: func(err error) { failed = err }, follower: &localcache.Follower{Last: "5-1"},
	}
	page := p.file("/price/17")
	if rest, ok := strings.CutPrefix(page, dir); !ok || rest != "/4/7a/9b6c0fea6bb0bd4ddcec9dc7f754e7a4" {
		t.Errorf("the page is in %s", page)
	}
	for _, file := range []string{page, filepath.Join(dir, "notes.txt")} {
		testbed.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)))
	}
	p.Lost()
	if _, err := os.Stat(page); err == nil {
		t.Error("the page is still there")
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	p.Current(time.Now())
	if p.last() != "5-1" || failed != nil {
		t.Errorf("saved %q, %v", p.last(), failed)
	}

	testbed.Must(t, os.MkdirAll(filepath.Join(page, "not empty"), 0o755)) // which os.Remove does not remove
	p.Changed("price:17")
	p.follower.Last = "6-1"
	p.Current(time.Now())
	if failed == nil || p.last() != "5-1" {
		t.Errorf("saved %q, %v", p.last(), failed)
	}
}
