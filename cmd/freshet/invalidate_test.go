package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/proof/testbed"
)

// counter is the admin listener of a freshet that has no servers: a counter where operators ask.
type counter struct {
	t    *testing.T
	url  string
	book *doubt.Book
	keys []string // that were invalidated
	// config is that of the freshet that runs.
	config *config.Config
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	book, err := doubt.New(&doubttest.Memory{}, nil, nil)
	testbed.Must(t, err)
	cfg, err := config.Parse("f.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: u}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), operate.CheckMappings)
	testbed.Must(t, err)
	listen := testbed.FreeAddress(t)
	c := &counter{t: t, url: "http://" + listen, book: book, config: cfg}
	doubts := operate.Book(func() *doubt.Book { return book })
	server, err := admin.New(admin.Deps{
		Status: func() any { return app.Status{State: app.Doubtful, Doubts: book.List()} },
		Doubts: doubts,
		Invalidations: operate.Invalidations{
			Book: doubts, Config: cfg,
			Forget: func(_ context.Context, keys []string) (int, error) {
				c.keys = append(c.keys, keys...)
				return len(keys), nil
			},
		},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}, admin.Options{Listen: listen, Token: "hush-hush-hush"})
	testbed.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testbed.Must(t, <-done)
	})
	t.Setenv("FRESHET_ADMIN_TOKEN", "hush-hush-hush")
	return c
}

// asks runs a command, and returns its exit code and what is on stdout and on stderr.
func (c *counter) asks(args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	code = execute(c.t.Context(), append(args, "--url", c.url), &out, &err)
	return code, out.String(), err.String()
}

// says runs a command that must end well, with these words on stdout.
func (c *counter) says(words string, args ...string) string {
	c.t.Helper()
	code, stdout, stderr := c.asks(args...)
	if code != exitDone || !strings.Contains(stdout, words) {
		c.t.Errorf("%s: exit code %d, want %q on stdout: %s%s", args, code, words, stdout, stderr)
	}
	return stdout
}

// recorded waits until there is a doubt, and returns its id.
func (c *counter) recorded() string {
	testbed.Eventually(c.t, patience, "there is a doubt", func() bool { return len(c.book.List()) > 0 })
	return c.book.List()[0].ID
}

func TestKeysAreInvalidatedByTheFreshetThatRuns(t *testing.T) {
	c := newCounter(t)
	c.says("forgot 2 keys\n", "invalidate", "product:1", "user:2")
	if fmt.Sprint(c.keys) != "[product:1 user:2]" || len(c.book.List()) > 0 {
		t.Errorf("%q, %+v", c.keys, c.book.List())
	}
}

// A name that is copied from Redis has the prefix in it, and its key would be believed to be forgotten. The prefix that
// counts is that of the freshet that is asked: the file at hand may be another one's, or none.
func TestANameWithThePrefixIsRemarkedOn(t *testing.T) {
	c := newCounter(t)
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	testbed.Must(t, os.WriteFile(file, []byte(`
source: {addresses: ["127.0.0.1:1"], user: u}
redis: {addresses: ["127.0.0.1:1"], key_prefix: "other:"}
admin: {token: hush-hush-hush}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), 0o600))
	c.config.Redis.KeyPrefix = "shop:"
	remark := "\"shop:product:1\" means \"shop:shop:product:1\" in Redis, since redis.key_prefix is put before each name"
	for _, more := range [][]string{nil, {"--config", file}} {
		code, stdout, stderr := c.asks(append(more, "invalidate", "product:1", "shop:product:1")...)
		if code != exitDone || stdout != "forgot 2 keys\n" || !strings.HasPrefix(stderr, remark) {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
		code, _, stderr = c.asks(append(more, "invalidate", "--pattern", "shop:*")...)
		if code != exitDone || !strings.HasPrefix(stderr, `"shop:*" means "shop:shop:*" in Redis`) {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		code, _, stderr = c.asks(append(more, "invalidate", "product:1", "other:product:1")...)
		if code != exitDone || stderr != "" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}
}

func TestWhatIsInvalidatedIsADoubtOfTheFreshetThatRuns(t *testing.T) {
	c := newCounter(t)
	out := c.says("asked for doubt ", "invalidate", "--table", "shop.product", "--pattern", "product:1*")
	id := c.recorded()
	if d := c.book.List()[0]; !strings.Contains(out, id) || d.Cause != alarm.ByHand || d.Pattern != "product:1*" {
		t.Errorf("%s: %+v", out, d)
	}
	code, stdout, stderr := c.asks("invalidate", "--table", "shop.prodcut")
	if code != exitUsage || stdout != "" ||
		stderr != "no mapping is for \"shop.prodcut\": did you mean \"shop.product\"?\n" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	t.Setenv("FRESHET_ADMIN_TOKEN", "guessed")
	if code, _, stderr := c.asks("invalidate", "--all"); code != exitFailed || !strings.Contains(stderr, "401") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestHowADoubtIsAnsweredIsShownEverywhere(t *testing.T) {
	c := newCounter(t)
	c.says("asked for doubt", "invalidate", "--all")
	id := c.recorded()
	c.book.Say(id, "first of two passes")
	c.says("forget all keys of all mappings (first of two passes)\n", "doubts", "list")
	c.says("mappings (first of two passes)\n", "status")
	shows := func(line string, command ...string) {
		t.Helper()
		if out := c.says("", command...); !regexp.MustCompile("(?m)^" + line + "$").MatchString(out) {
			t.Errorf("%s lacks %q:\n%s", command, line, out)
		}
	}
	shows("answer  +first of two passes", "doubts", "show", id)
	shows(` +"answer": "first of two passes",?`, "status", "--json")
	c.book.Stuck(doubt.Doubt{ID: id}, "product:{name} holds free text")
	shows(`no answer +product:\{name\} holds free text`, "doubts", "show", id)
	shows(` +"stuck": true,?`, "status", "--json")
	shows(` +"stuck": true,?`, "doubts", "list", "--json")
}

// whenAsked calls do with the doubt that there is, once its answer is asked for.
func (c *counter) whenAsked(do func(d doubt.Doubt) error) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		id := c.recorded()
		c.book.Say(id, "first of two passes")
		testbed.Eventually(c.t, patience, "its answer is asked for", func() bool { return c.book.List()[0].Asked })
		if err := do(c.book.List()[0]); err != nil {
			c.t.Error(err)
		}
	}()
	return done
}

func TestTheEndOfADoubtIsWaitedFor(t *testing.T) {
	c := newCounter(t)
	done := c.whenAsked(func(d doubt.Doubt) error {
		return c.book.Answered(t.Context(), d.ID, d.Last, "3 keys forgotten, in two passes over redis")
	})
	testbed.Must(t, c.book.Record(t.Context(), doubt.Doubt{Cause: alarm.FirstStart, Message: "keys were cached before"}))
	id := c.recorded()
	c.says("doubt "+id+" is answered: 3 keys forgotten, in two passes over redis\n", "doubts", "answer", id, "--wait")
	<-done
}

// A deployment that waits must not take a dismissal for an answer.
func TestADoubtThatIsDismissedWhileItIsWaitedForIsNotAnswered(t *testing.T) {
	c := newCounter(t)
	done := c.whenAsked(func(d doubt.Doubt) error { return c.book.Dismiss(t.Context(), d.ID, d.Last) })
	testbed.Must(t, c.book.Record(t.Context(), doubt.Doubt{Cause: alarm.FirstStart, Message: "keys were cached before"}))
	code, stdout, stderr := c.asks("doubts", "answer", c.recorded(), "--wait")
	<-done
	if code != exitEnded || stdout != "" || !strings.Contains(stderr,
		"was dismissed before it was answered (so far: first of two passes): not all that it is about was forgotten") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestADoubtThatCannotBeAnsweredIsNotWaitedFor(t *testing.T) {
	c := newCounter(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.book.Stuck(doubt.Doubt{ID: c.recorded()}, "product:{name} holds free text")
	}()
	code, stdout, stderr := c.asks("invalidate", "--all", "--wait")
	<-done
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, "cannot be answered: product:{name} holds free text") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
