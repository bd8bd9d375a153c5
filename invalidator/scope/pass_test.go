package scope

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/keyspace"
)

// all is a mapping with every action, of which everything can be searched for.
func all() spectest.Mapping {
	return spectest.Everything(spectest.Keys("product:{id}")).Free("sku", "[a-z]+").D(time.Second)
}

// Each key that was found is forgotten by its own action, in both passes, as an old leader's leftovers are: nothing is
// written, and one delete is enough.
func TestWhatIsFoundIsForgottenByItsOwnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRedis{
			keys: []string{
				"app:product:1", "app:h:5", "app:s:5", "app:z:-5", "app:e:7", "app:g:9", "app:product:x", "product:1",
				"app:freshet:v:{app:product:1}", "app:product:1:reviews",
			},
			hashes:    map[string][]string{"app:h:5": {"1", "x", "2"}},
			fieldPage: 2,
		}
		e := &fakeEngine{}
		k := keysOf(t, "app:", all())
		newest := event.Version{Epoch: 1, File: 2, Pos: 3, Row: 1 << 31}
		var p Progress
		task := Task{Keys: k, At: place(10), Newest: func() event.Version { return newest }, Progress: &p}
		if err := run(t, t.Context(), r, e, Options{Prefix: "app:"}, task); err != nil {
			t.Fatal(err)
		}
		want := sorted(
			"rebuild forget product:1 NULL NULL NULL", "hash forget h:5 <1>",
			"hash forget h:5 <2>", "set forget s:5", "zset forget z:-5",
			"expire forget e:7", "incr forget g:9",
		)
		if len(e.served) != 3 {
			t.Fatalf("%d partitions, want a pass, a probe and a pass", len(e.served))
		}
		for _, n := range []int{0, 2} {
			if d := cmp.Diff(want, e.lines(n)); d != "" {
				t.Errorf("pass %d: %s", n, d)
			}
			for _, b := range e.served[n] {
				alike(t, b, newest)
			}
		}
		if n := p.Found.Load(); n != 14 {
			t.Errorf("%d keys were found, want 14", n)
		}
	})
}

// alike checks what all batches of a pass have in common.
func alike(t *testing.T, b *event.Batch, v event.Version) {
	t.Helper()
	if b.Source != "s" || !b.Leftover || b.Age != 0 || b.At.IsZero() {
		t.Errorf("source %q, leftover %v, age %s at %s", b.Source, b.Leftover, b.Age, b.At)
	}
	if b.Last != v {
		t.Errorf("the last version is %s, want %s", b.Last, v)
	}
	for i := range b.Len() {
		if got := b.Version(i); got != v {
			t.Errorf("%s: version %s, want %s", b.Key(i), got, v)
		}
		if c := b.Of(i); c.D != 0 || c.Table != "shop.product" || c.RateLimit != 0 {
			t.Errorf("%s: %+v", b.Key(i), c)
		}
		if e, tells := b.EffectOf(i), b.Invalidations[i].Action == event.ActionRebuild; e == nil || e.Publish != tells {
			t.Errorf("%s: effect %+v, want the action's own", b.Key(i), e)
		}
	}
}

// What somebody names goes whatever newer change is known of it, and so is no leftover: a newer change may be finished
// before the second delete, by a mapping with a shorter D.
func TestKeysThatAreNamedAreNoLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spectest.Keys("product:{id}")
		m.Rebuild = spectest.FromRow(event.FormJSON, "id")
		e := &fakeEngine{}
		s, err := New(Deps{Redis: &fakeRedis{}, Serve: e.Serve, Log: silent}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		task := Task{Keys: keysOf(t, "", m), Source: "s", Progress: &Progress{}}
		if err := s.Forget(t.Context(), task, []string{"product:1", "another"}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(sorted("rebuild forget product:1", "delete forget another"), e.lines(0)); d != "" {
			t.Error(d)
		}
		for _, b := range e.served[0] {
			if b.Leftover || !b.Named {
				t.Errorf("leftover: %v, named: %v", b.Leftover, b.Named)
			}
		}
	})
}

// A plain delete has neither an effect nor fields, and a hash without values no effect.
func TestAPlainDeleteStaysOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spectest.Keys("product:{id}")
		m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{id}", 31)}
		r := &fakeRedis{
			keys:   []string{"product:1", "h:1"},
			hashes: map[string][]string{"h:1": {"7"}}, fieldPage: 5,
		}
		e := &fakeEngine{}
		if err := run(t, t.Context(), r, e, Options{}, Task{Keys: keysOf(t, "", m), At: place(10)}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(sorted("delete forget product:1", "hash forget h:1 <7>"), e.lines(0)); d != "" {
			t.Error(d)
		}
		for _, b := range e.served[0] {
			for i := range b.Len() {
				if b.EffectOf(i) != nil {
					t.Errorf("%s has an effect", b.Key(i))
				}
				if v := b.Version(i); v != place(10) {
					t.Errorf("version %s, want that of the place: nothing newer is known", v)
				}
			}
		}
	})
}

// A newest version that is before the place says nothing about it.
func TestTheVersionIsThatOfThePlaceAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, at := &fakeEngine{}, event.Version{Epoch: 2, File: 1, Pos: 10, Row: 3}
		task := Task{
			Keys: keysOf(t, "", spectest.Keys("product:{id}")), At: at,
			Newest: func() event.Version { return event.Version{Epoch: 1, File: 9, Pos: 99} },
		}
		if err := run(t, t.Context(), &fakeRedis{keys: []string{"product:1"}}, e, Options{}, task); err != nil {
			t.Fatal(err)
		}
		if v := e.served[0][0].Version(0); v != at {
			t.Errorf("version %s, want %s", v, at)
		}
	})
}

// A key that several mappings make is forgotten by each of them.
func TestAKeyOfSeveralMappingsIsForgottenByEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := spectest.Counter("product:{id}")
		e := &fakeEngine{}
		k := keysOf(t, "", spectest.Keys("product:{id}"), counter)
		if err := run(t, t.Context(), &fakeRedis{keys: []string{"product:1"}}, e, Options{}, Task{Keys: k}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(sorted("delete forget product:1", "incr forget product:1"), e.lines(0)); d != "" {
			t.Error(d)
		}
	})
}

func TestOnlyAndPatternNarrow(t *testing.T) {
	only := func(text string) func(*keyspace.Target) bool {
		return func(t *keyspace.Target) bool { return t.Action.Key.Text.Value == text }
	}
	for name, c := range map[string]struct {
		task Task
		glob string
		want []string
	}{
		"nothing": {
			Task{},
			"a\\[b:*",
			sorted("delete forget product:1", "delete forget product:12", "delete forget sku:1"),
		},
		"only":    {Task{Only: only("sku:{id}")}, "a\\[b:*", []string{"delete forget sku:1"}},
		"pattern": {Task{Pattern: "*:1"}, "a\\[b:*:1", sorted("delete forget product:1", "delete forget sku:1")},
		"both": {
			Task{Only: only("product:{id}"), Pattern: "*:1"},
			"a\\[b:*:1",
			[]string{"delete forget product:1"},
		},
		"a pattern of no keys": {Task{Pattern: "other:*"}, "a\\[b:other:*", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fakeRedis{keys: []string{"a[b:product:1", "a[b:product:12", "a[b:sku:1", "a[b:other:1", "product:1"}}
				e := &fakeEngine{}
				c.task.Keys = keysOf(t, "a[b:", spectest.Keys("product:{id}", "sku:{id}"))
				if err := run(t, t.Context(), r, e, Options{Prefix: "a[b:"}, c.task); err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{0, 2} {
					if d := cmp.Diff(c.want, e.lines(n)); d != "" {
						t.Error(d)
					}
				}
				for _, q := range r.asked("scan") {
					if q.of != c.glob {
						t.Errorf("redis is asked for %q, want %q", q.of, c.glob)
					}
				}
			})
		})
	}
}

// A hash is gone through page by page where its fields have placeholders, and not at all where they have none.
func TestTheFieldsOfAHashAreGoneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loose, fixed := spectest.Mapping{}, spectest.Mapping{}
		loose.Table, fixed.Table = spectest.Text("shop.product", 1), spectest.Text("shop.product", 1)
		loose.Hash = &spec.Hash{Key: spectest.Text("loose:{id}", 30), Field: spectest.Text("f:{id}", 31)}
		fixed.Hash = &spec.Hash{Key: spectest.Text("fixed:{id}", 30), Field: spectest.Text("price", 31)}
		r := &fakeRedis{
			keys:   []string{"loose:1", "loose:2", "fixed:1"},
			hashes: map[string][]string{"fixed:1": {"price", "other"}}, fieldPage: 500,
		}
		want := []string{"hash forget fixed:1 <price>"}
		for i := range 1201 {
			r.hashes["loose:1"] = append(r.hashes["loose:1"], fmt.Sprintf("f:%d", i), fmt.Sprintf("g:%d", i))
			want = append(want, fmt.Sprintf("hash forget loose:1 <f:%d>", i))
		}
		e := &fakeEngine{took: func(b *event.Batch) {
			if b.Len() > batchKeys+pageKeys {
				t.Errorf("a batch of %d", b.Len())
			}
		}}
		if err := run(t, t.Context(), r, e, Options{}, Task{Keys: keysOf(t, "", loose, fixed)}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(sorted(want...), e.lines(0)); d != "" {
			t.Error(d)
		}
		var asked []string
		for _, q := range r.asked("fields") {
			asked = append(asked, fmt.Sprintf("%s %d", q.of, q.page))
		}
		pass := []string{"loose:1 0", "loose:1 500", "loose:1 1000", "loose:1 1500", "loose:1 2000", "loose:2 0"}
		if d := cmp.Diff(append(pass, pass...), asked); d != "" {
			t.Error(d)
		}
	})
}

// Nothing that was handed out goes out before the keys before it have had their time at the rate.
func TestNoMoreThanTheRateGoesOut(t *testing.T) {
	for name, specs := range map[string][]spectest.Mapping{
		"one mapping": {spectest.Keys("product:{id}")},
		"more than fits into a batch": {
			spectest.Keys("product:{id}"), spectest.Counter("product:{id}"),
			spectest.Keys("product:{category_id}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rate = 100
				r := &fakeRedis{many: 2345, takes: time.Millisecond}
				began, before := time.Now(), 0
				e := &fakeEngine{drop: true}
				e.took = func(b *event.Batch) {
					if e.partitions() == 2 {
						return // the probe
					}
					if least := time.Duration(before) * time.Second / rate; time.Since(began) < least {
						t.Errorf("%d keys within %s", before, time.Since(began))
					}
					before += b.Len()
				}
				task := Task{Keys: keysOf(t, "", specs...)}
				if err := run(t, t.Context(), r, e, Options{Rate: rate}, task); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < time.Duration(before)*time.Second/rate {
					t.Errorf("%d keys took %s", before, took)
				}
				if want := 2 * 2345 * len(specs); before != want {
					t.Errorf("%d keys, want %d", before, want)
				}
			})
		})
	}
}

func (e *fakeEngine) partitions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.served)
}

// Redis' time is for others for the most part: what it was asked is followed by a rest of four times as long.
func TestAPageIsFollowedByARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRedis{takes: 10 * time.Millisecond}
		for i := range 2600 {
			r.keys = append(r.keys, fmt.Sprintf("other:%d", i))
		}
		k := keysOf(t, "", spectest.Keys("product:{id}"))
		if err := run(t, t.Context(), r, &fakeEngine{}, Options{}, Task{Keys: k}); err != nil {
			t.Fatal(err)
		}
		pages := r.asked("scan")
		const one = 2600 / pageKeys // pages of a pass
		if len(pages) != 2*one {
			t.Fatalf("%d pages, want twice %d", len(pages), one)
		}
		for i, q := range pages {
			if i == 0 || i == one {
				continue
			}
			if since, took := q.at.Sub(pages[i-1].at), 2*r.takes; since != 5*took {
				t.Errorf("page %d is asked for %s after the one before it, which took %s", i, since, took)
			}
		}
	})
}

// Whatever Redis holds, a pass holds a page of it.
func TestAPassHoldsAPageOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, taken, most := &fakeRedis{many: 1_000_000}, 0, 0
		e := &fakeEngine{drop: true, took: func(b *event.Batch) {
			r.mu.Lock()
			most = max(most, r.scanned-taken)
			r.mu.Unlock()
			taken += b.Len()
		}}
		s, err := New(Deps{Redis: r, Serve: e.Serve, Log: silent}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var p Progress
		task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}")), Source: "s", Progress: &p}
		if err := s.pass(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if taken != r.many || p.Found.Load() != int64(r.many) || p.Keys.Load() != int64(r.many) {
			t.Errorf("%d keys were taken, of %d", taken, r.many)
		}
		if most > pageKeys {
			t.Errorf("%d keys were held at once, want a page of %d", most, pageKeys)
		}
	})
}

func TestAnEmptyRedisIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := &fakeEngine{}, &Progress{}
		task := Task{Keys: keysOf(t, "", spectest.Keys("product:{id}")), Progress: p}
		if err := run(t, t.Context(), &fakeRedis{}, e, Options{}, task); err != nil {
			t.Fatal(err)
		}
		if n := len(e.lines(0)) + len(e.lines(2)); n != 0 || p.Found.Load() != 0 {
			t.Errorf("%d keys", n)
		}
		if len(e.lines(1)) != 1 {
			t.Error("there is no probe: what is not there yet may be filled by a slow reader")
		}
	})
}

func TestWhatAScopeNeedsIsAskedFor(t *testing.T) {
	serve := (&fakeEngine{}).Serve
	for _, c := range []struct {
		d Deps
		o Options
	}{
		{Deps{Serve: serve}, Options{}},
		{Deps{Redis: &fakeRedis{}}, Options{}},
		{Deps{Redis: &fakeRedis{}, Serve: serve}, Options{Rate: -1}},
	} {
		if _, err := New(c.d, c.o); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	s, err := New(Deps{Redis: &fakeRedis{}, Serve: serve}, Options{})
	if err != nil || s.options.Rate != DefaultRate {
		t.Errorf("%v, %+v", err, s)
	}
}

// What is meant is asked of the key alone, as mappings write it, whatever of it is forgotten.
func TestOnlyTheKeysThatAreMeantAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRedis{
			keys:      []string{"app:product:1", "app:product:2", "app:h:5", "app:h:6", "app:s:5", "app:z:6", "product:1"},
			hashes:    map[string][]string{"app:h:5": {"1"}, "app:h:6": {"1"}},
			fieldPage: 2,
		}
		e := &fakeEngine{}
		var p Progress
		meant := map[string]bool{"product:2": true, "h:5": true, "z:6": true}
		task := Task{Keys: keysOf(t, "app:", all()), At: place(10), Progress: &p}
		task.Meant = func(key string) bool { return meant[key] }
		if err := run(t, t.Context(), r, e, Options{Prefix: "app:"}, task); err != nil {
			t.Fatal(err)
		}
		want := sorted("rebuild forget product:2 NULL NULL NULL", "hash forget h:5 <1>", "zset forget z:6")
		for _, n := range []int{0, 2} {
			if d := cmp.Diff(want, e.lines(n)); d != "" {
				t.Errorf("pass %d: %s", n, d)
			}
		}
	})
}
