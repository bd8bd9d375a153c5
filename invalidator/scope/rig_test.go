package scope

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// keysOf returns the keyspace of mappings of shop.product, all of which it can search for.
func keysOf(t testing.TB, prefix string, specs ...spectest.Mapping) *keyspace.Keyspace {
	t.Helper()
	r, err := router.New(spectest.Specs(specs...), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyspace.New(r.Mappings(), []*event.Table{spectest.Product()}, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if b := k.Blind(); len(b) > 0 {
		t.Fatal(b)
	}
	return k
}

func place(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos} }

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// fakeRedis is a Redis of keys that do not change by themselves. A cursor is the ordinal of a key.
type fakeRedis struct {
	keys []string
	// many, if it is not 0, is how many keys there are instead: product:0 and on.
	many int
	// hashes are the fields of the keys that are hashes; fieldPage is how many a page has.
	hashes    map[string][]string
	fieldPage int
	// takes is how long it takes for an answer.
	takes time.Duration

	mu sync.Mutex
	// server returns who answers the n-th question about it; nil: always the same one.
	server func(n int) (string, error)
	// fail returns why a question is not answered.
	fail func(q question) error
	// questions are all that were asked.
	questions []question
	servers   int
	scanned   int
}

// question is one that Redis was asked.
type question struct {
	what string // scan, fields, server or size
	of   string // the glob, or the hash
	page uint64
	at   time.Time
}

func (r *fakeRedis) ask(ctx context.Context, what, of string, page uint64) error {
	q := question{what, of, page, time.Now()}
	r.mu.Lock()
	r.questions = append(r.questions, q)
	fail := r.fail
	r.mu.Unlock()
	if r.takes > 0 {
		select {
		case <-time.After(r.takes):
		case <-ctx.Done():
		}
	}
	if fail != nil {
		if err := fail(q); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// asked returns the questions of a kind.
func (r *fakeRedis) asked(what string) (all []question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.questions {
		if q.what == what {
			all = append(all, q)
		}
	}
	return all
}

func (r *fakeRedis) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	if err := r.ask(ctx, "scan", glob, cursor); err != nil {
		return nil, 0, err
	}
	n, key := len(r.keys), func(i int) string { return r.keys[i] }
	if r.many > 0 {
		n, key = r.many, func(i int) string { return fmt.Sprintf("product:%d", i) }
	}
	from := int(cursor)
	to := min(from+int(count), n)
	var page []string
	for i := from; i < to; i++ {
		k := key(i)
		if ok, err := path.Match(glob, k); ok || glob == "" {
			page = append(page, k)
		} else if err != nil {
			return nil, 0, err
		}
	}
	r.mu.Lock()
	r.scanned += len(page)
	r.mu.Unlock()
	if to == n {
		to = 0
	}
	return page, uint64(to), nil
}

func (r *fakeRedis) Fields(ctx context.Context, key string, cursor uint64, _ int64) ([]string, uint64, error) {
	if err := r.ask(ctx, "fields", key, cursor); err != nil {
		return nil, 0, err
	}
	fields := r.hashes[key]
	to := min(int(cursor)+r.fieldPage, len(fields))
	page := fields[cursor:to]
	if to == len(fields) {
		to = 0
	}
	return page, uint64(to), nil
}

func (r *fakeRedis) Server(ctx context.Context) (string, error) {
	if err := r.ask(ctx, "server", "", 0); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers++
	if r.server == nil {
		return "a", nil
	}
	return r.server(r.servers)
}

func (r *fakeRedis) Size(ctx context.Context) (int64, error) {
	return int64(max(len(r.keys), r.many)), r.ask(ctx, "size", "", 0)
}

// fakeEngine finishes all that partitions hand out, at once.
type fakeEngine struct {
	// took, if it is there, is called for each batch.
	took func(b *event.Batch)

	mu     sync.Mutex
	served [][]*event.Batch // by partition; nil where nothing is kept
	drop   bool             // what was taken is not kept
}

func (e *fakeEngine) Serve(ctx context.Context, p eventlog.Partition) error {
	e.mu.Lock()
	at := len(e.served)
	e.served = append(e.served, nil)
	e.mu.Unlock()
	for {
		b, token, err := p.Fetch(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if e.took != nil {
			e.took(b)
		}
		if !e.drop {
			e.mu.Lock()
			e.served[at] = append(e.served[at], b)
			e.mu.Unlock()
		}
		p.Commit(token)
	}
}

// lines returns what the n-th partition handed out, a line for each invalidation, sorted.
func (e *fakeEngine) lines(n int) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, b := range e.served[n] {
		for i := range b.Len() {
			all = append(all, line(b, i))
		}
	}
	slices.Sort(all)
	return all
}

// line says what is done to a key: the action, the intent, the key and the fields.
func line(b *event.Batch, i int) string {
	inv := &b.Invalidations[i]
	text := fmt.Sprintf("%s %s %s", inv.Action, inv.Intent, b.Key(i))
	all, err := b.Fields(i).All()
	if err != nil {
		return err.Error()
	}
	for _, f := range all {
		if f == nil {
			text += " NULL"
		} else {
			text += fmt.Sprintf(" <%s>", f)
		}
	}
	return text
}

// run carries a scope out on fakes.
func run(t testing.TB, ctx context.Context, r *fakeRedis, e *fakeEngine, o Options, task Task) error {
	t.Helper()
	s, err := New(Deps{Redis: r, Serve: e.Serve, Log: silent}, o)
	if err != nil {
		t.Fatal(err)
	}
	if task.Progress == nil {
		task.Progress = &Progress{}
	}
	if task.Source == "" {
		task.Source = "s"
	}
	return s.Run(ctx, task)
}

func sorted(lines ...string) []string {
	slices.Sort(lines)
	return lines
}

func text(lines []string) string { return strings.Join(lines, "\n") }
