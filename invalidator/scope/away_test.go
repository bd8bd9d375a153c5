package scope

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// answers returns a function of who answers each question about it; the last answers all further ones.
func answers(servers ...string) func(int) (string, error) {
	return func(n int) (string, error) { return servers[min(n, len(servers))-1], nil }
}

// The order of keys is a server's own: a pass that other servers had a part in may have missed some.
func TestAPassThatMeetsAnotherServerIsDoneAgain(t *testing.T) {
	for name, c := range map[string]struct {
		servers []string
		passes  int
	}{
		"the same":                  {[]string{"a"}, 2},
		"another at the end":        {[]string{"a", "a", "a", "a", "b"}, 3},
		"another during the second": {[]string{"a", "a", "a", "a", "a", "a", "a", "b"}, 3},
		"another between them":      {[]string{"a", "a", "a", "a", "a", "b"}, 2},
		"another for a while":       {[]string{"a", "b", "a"}, 3},
		"two others":                {[]string{"a", "b", "b", "b", "c"}, 4},
		"one that does not say":     {[]string{""}, 2},
		"one that says it later":    {[]string{"", "a"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e := &fakeRedis{server: answers(c.servers...)}, &fakeEngine{}
				for i := range 3 * pageKeys {
					r.keys = append(r.keys, fmt.Sprintf("product:%d", i))
				}
				task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}"))}
				if err := run(t, t.Context(), r, e, Options{}, task); err != nil {
					t.Fatal(err)
				}
				if n := len(e.served) - 1; n != c.passes {
					t.Errorf("%d passes, want %d", n, c.passes)
				}
				if n := len(e.lines(len(e.served) - 1)); n != len(r.keys) {
					t.Errorf("the last pass found %d keys, want all %d", n, len(r.keys))
				}
			})
		})
	}
}

// If the address leads to another server each time, no pass can be trusted. That must not be all that Redis does.
func TestServersThatTakeTurnsAreNotAskedWithoutRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRedis{server: func(n int) (string, error) { return fmt.Sprint(n), nil }, takes: time.Millisecond}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var p Progress
		task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}")), Progress: &p}
		if err := run(t, ctx, r, &fakeEngine{}, Options{}, task); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n := len(r.asked("scan")); n < 3 || n > 200 {
			t.Errorf("%d passes in a minute", n)
		}
		if p.Trouble.Load() == nil {
			t.Error("nobody is told why it comes to no end")
		}
	})
}

// Redis that does not answer is asked until it does, and nothing is lost.
func TestRedisThatIsAwayIsAskedAgain(t *testing.T) {
	for _, what := range []string{"scan", "fields", "server", "size"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := spectest.Keys("product:{id}")
				m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{id}", 31)}
				r := &fakeRedis{
					keys:   []string{"product:1", "h:1", "product:2"},
					hashes: map[string][]string{"h:1": {"1", "2", "3"}}, fieldPage: 1,
				}
				began, loading, hung := time.Now(), errors.New("LOADING"), errors.New("i/o timeout")
				r.fail = func(q question) error {
					switch since := time.Since(began); {
					case q.what != what, since < 0:
						return nil
					case since < time.Minute:
						return loading
					case since < 2*time.Minute:
						return hung
					case since < 150*time.Second:
						return loading
					}
					return nil
				}
				var p Progress
				e, done := &fakeEngine{}, make(chan error)
				task := Task{Keys: keysOf(t, "", m), Progress: &p}
				go func() { done <- run(t, t.Context(), r, e, Options{}, task) }()
				for _, want := range []error{loading, hung, loading} {
					time.Sleep(50 * time.Second)
					synctest.Wait()
					if err := p.Trouble.Load(); err == nil || !errors.Is(*err, want) {
						t.Errorf("after %s the trouble is %v, want %v", time.Since(began), err, want)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if err := p.Trouble.Load(); err != nil {
					t.Errorf("the trouble is still %v", *err)
				}
				want := sorted("delete forget product:1", "delete forget product:2", "hash forget h:1 <1>",
					"hash forget h:1 <2>", "hash forget h:1 <3>")
				for _, n := range []int{0, 2} {
					if d := cmp.Diff(want, e.lines(n)); d != "" {
						t.Error(d)
					}
				}
			})
		})
	}
}

// A large hash would never come to its end if each failure began it again.
func TestAFailedPageOfFieldsIsAskedForAgainAndNotTheWholeHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
		m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{id}", 31)}
		r := &fakeRedis{
			keys: []string{"h:1"}, hashes: map[string][]string{"h:1": {"1", "2", "3", "4"}}, fieldPage: 1,
		}
		failed := false
		r.fail = func(q question) error {
			if q.what != "fields" || q.page != 2 || failed {
				return nil
			}
			failed = true
			return errors.New("i/o timeout")
		}
		if err := run(t, t.Context(), r, &fakeEngine{}, Options{}, Task{Keys: keysOf(t, "", m)}); err != nil {
			t.Fatal(err)
		}
		var pages []uint64
		for _, q := range r.asked("fields") {
			pages = append(pages, q.page)
		}
		if d := cmp.Diff([]uint64{0, 1, 2, 2, 3, 0, 1, 2, 3}, pages); d != "" {
			t.Error(d)
		}
	})
}

// A scope that waits, for Redis or for its rate, ends with its context, and says that it is not done.
func TestAScopeEndsWithItsContext(t *testing.T) {
	for name, r := range map[string]*fakeRedis{
		"redis is away":           {many: 10, fail: func(question) error { return errors.New("LOADING") }},
		"it rests after a page":   {many: 10_000, takes: time.Minute},
		"it rests for its rate":   {many: 10_000},
		"the end is asked for it": {many: 1, fail: failsAtTheEnd},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}"))}
				go func() { done <- run(t, ctx, r, &fakeEngine{}, Options{Rate: 1}, task) }()
				time.Sleep(90 * time.Second)
				synctest.Wait()
				stopped := time.Now()
				stop()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("it ends with %v", err)
				}
				if took := time.Since(stopped); took != 0 {
					t.Errorf("it ends %s after its context", took)
				}
			})
		})
	}
}

// failsAtTheEnd leaves the question unanswered whether the server is still the same.
func failsAtTheEnd(q question) error {
	if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 0 && q.what == "server" {
		return errors.New("i/o timeout")
	}
	return nil
}

// stopping is an engine that is stopped: it returns without a fault, and what it has taken is not finished.
type stopping struct {
	fakeEngine
	// at is the partition during which it stops, and after how many batches: from then on it takes nothing.
	at, after int
	// unfinished is set if it has taken what it was offered and commits nothing of it.
	unfinished bool
}

func (e *stopping) Serve(ctx context.Context, p eventlog.Partition) error {
	switch n := e.partitions(); {
	case n < e.at:
		return e.fakeEngine.Serve(ctx, p)
	case n > e.at:
		return nil
	}
	e.mu.Lock()
	e.served = append(e.served, nil)
	e.mu.Unlock()
	for i := 0; i < e.after || e.unfinished; i++ {
		_, token, err := p.Fetch(ctx)
		if err != nil {
			return nil
		}
		if !e.unfinished {
			p.Commit(token)
		}
	}
	return nil
}

// An engine that is stopped returns without a fault. What it did not finish is not forgotten.
func TestAScopeIsNotDoneIfTheEngineStops(t *testing.T) {
	for name, e := range map[string]*stopping{
		"before it began":                {at: 0},
		"in the first pass":              {at: 0, after: 2},
		"before the probe":               {at: 1},
		"while the probe waits":          {at: 1, unfinished: true},
		"in the second pass":             {at: 2, after: 2},
		"before the last delete is done": {at: 2, unfinished: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(Deps{Redis: &fakeRedis{many: 5000}, Serve: e.Serve, Log: silent}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				var p Progress
				task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}")), Source: "s", Progress: &p}
				if err := s.Run(t.Context(), task); !errors.Is(err, ErrStopped) {
					t.Errorf("it ends with %v, want %v", err, ErrStopped)
				}
			})
		})
	}
}

// What the engine fails with is handed on.
func TestAFaultOfTheEngineEndsTheScope(t *testing.T) {
	fault := errors.New("redis will never do that")
	s, err := New(Deps{
		Redis: &fakeRedis{}, Log: silent,
		Serve: func(context.Context, eventlog.Partition) error { return fault },
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}")), Progress: &Progress{}}
	if err := s.Run(t.Context(), task); !errors.Is(err, fault) {
		t.Errorf("it ends with %v", err)
	}
}

// The probe asks the engine's rule for all keys: D is the longest of those meant.
func TestTheProbeCarriesThePlaceAndTheLongestD(t *testing.T) {
	at := event.Version{Epoch: 1, File: 2, Pos: 3, Row: 4}
	k := keysOf(t, "", spectest.Keys("a:{id}").D(time.Second), spectest.Keys("b:{id}").D(3*time.Second),
		spectest.Keys("c:{id}").D(2*time.Second), spectest.Keys("none:{id}"))
	b, _, err := newProbe(&Task{Keys: k, Source: "s", At: at}).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b.Source != "s" || b.Last != at || b.Version(0) != at || b.Age != event.Unknown || !b.Leftover || b.Len() != 1 {
		t.Errorf("%+v", b)
	}
	if d := b.Of(0).D; d != 3*time.Second {
		t.Errorf("D is %s, want the longest", d)
	}
}

// Where no place is known it is what was read before now: a mark that has long been there says nothing about that.
func TestWithoutAPlaceTheProbeCountsFromNow(t *testing.T) {
	k := keysOf(t, "", spectest.Keys("a:{id}").D(time.Second))
	for name, task := range map[string]Task{
		"no place":  {Keys: k, Source: "s"},
		"no source": {Keys: k, At: place(10)},
	} {
		b, _, err := newProbe(&task).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.Source != "" || b.Age != 0 || b.At.IsZero() {
			t.Errorf("%s: source %q, age %s at %s", name, b.Source, b.Age, b.At)
		}
	}
}

// The probe's delete is sent to Redis as all others. It names a key of the same form as those of a template, so that
// the user has the right to it, and one that is nobody's: neither a row's, nor a counter, nor a hash.
func TestTheProbeHarmsNothing(t *testing.T) {
	hash := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	hash.Hash = &spec.Hash{Key: spectest.Text("stats", 30), Field: spectest.Text("{id}", 31)}
	set := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	set.Set = &spec.Set{Key: spectest.Text("s:{id}", 30), Member: spectest.Text("{id}", 31)}
	expire := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	expire.Expire = &spec.Expire{Keys: []spec.Text{spectest.Text("e:{id}", 30)}, In: time.Second}
	count, keys := spectest.Counter("g:{id}"), spectest.Keys("product:{id}")
	for _, c := range []struct {
		specs []spectest.Mapping
		want  string
	}{
		{[]spectest.Mapping{keys}, "product:freshet:probe"},
		{[]spectest.Mapping{count}, "g:freshet:probe"},
		{[]spectest.Mapping{hash}, "stats:freshet:probe"},
		{[]spectest.Mapping{expire}, "e:freshet:probe"},
		{[]spectest.Mapping{set}, "s:freshet:probe"},
		{[]spectest.Mapping{hash, keys, count}, "product:freshet:probe"},
	} {
		b, _, err := newProbe(&Task{Keys: keysOf(t, "", c.specs...)}).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := line(b, 0); got != "delete forget "+c.want {
			t.Errorf("the probe is %q, want a delete of %s", got, c.want)
		}
	}
}
