package hot

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// batch returns a batch of keys of one table.
func batch(table string, keys ...string) *event.Batch {
	var b event.Batch
	b.Reset()
	b.AddOrigin(event.Origin{Table: table})
	for i, k := range keys {
		b.Add(append(b.Text(), k...), uint32(i+1), event.ActionDelete)
	}
	return b.Clone()
}

// small returns a sketch whose runs differ only by what it is given.
func small(t testing.TB, o Options) *Sketch {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.random = rand.NewPCG(1, 2)
	return s
}

func find(all []Count, name string) (Count, bool) {
	i := slices.IndexFunc(all, func(c Count) bool { return c.Name == name })
	if i < 0 {
		return Count{}, false
	}
	return all[i], true
}

// model is what a sketch should say, counted exactly, with the same decay.
type model struct {
	counts         map[string]float64
	total, seconds float64
}

func (m *model) pass(d, window time.Duration) {
	f := math.Exp(-d.Seconds() / window.Seconds())
	for k := range m.counts {
		m.counts[k] *= f
	}
	m.total *= f
	m.seconds = m.seconds*f + window.Seconds()*(1-f)
}

// While nothing is left out, every key above the share is found, and the truth lies within the bounds: whatever comes,
// in whatever order, over whatever time.
func TestEveryKeyAboveTheShareIsFoundWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		counters := rapid.IntRange(1, 12).Draw(rt, "counters")
		window := time.Duration(rapid.IntRange(1, 60).Draw(rt, "window")) * time.Second
		s := small(t, Options{Keys: counters, Window: window, Samples: 1 << 20})
		now := s.start
		s.now = func() time.Time { return now }
		exact := model{counts: map[string]float64{}}
		for range rapid.IntRange(1, 12).Draw(rt, "batches") {
			if wait := time.Duration(rapid.IntRange(0, 3).Draw(rt, "wait")) * time.Second; wait > 0 {
				now = now.Add(wait)
				exact.pass(wait, window)
			}
			keys := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
				// One is common, many are rare.
				return fmt.Sprint("k", rapid.IntRange(0, 40).Draw(rt, "key")*rapid.IntRange(0, 1).Draw(rt, "rare"))
			}), 1, 12).Draw(rt, "keys")
			s.Count(batch("shop.product", keys...))
			for _, k := range keys {
				exact.counts[k]++
			}
			exact.total += float64(len(keys))
			checkAgainst(rt, s, &exact, counters)
		}
	})
}

func checkAgainst(rt *rapid.T, s *Sketch, exact *model, counters int) {
	const epsilon = 1e-9
	seconds := max(exact.seconds, 1)
	top := s.Keys(counters)
	if got := s.PerSecond(); math.Abs(got-exact.total/seconds) > epsilon*exact.total {
		rt.Fatalf("%g keys per second, want %g", got, exact.total/seconds)
	}
	for _, c := range top {
		truth := exact.counts[c.Name] / seconds
		if truth < c.Low-epsilon || truth > c.High+epsilon || c.PerSecond < c.Low || c.PerSecond > c.High {
			rt.Fatalf("%+v: it is %g per second", c, truth)
		}
		if c.High-c.Low > exact.total/float64(counters)/seconds+epsilon {
			rt.Fatalf("%+v is less sure than the share 1/%d of %g", c, counters, exact.total/seconds)
		}
	}
	if !slices.IsSortedFunc(top, func(a, b Count) int { return int(math.Copysign(1, b.PerSecond-a.PerSecond)) }) {
		rt.Fatalf("not in order: %+v", top)
	}
	for name, n := range exact.counts {
		if _, ok := find(top, name); !ok && n > exact.total/float64(counters)+epsilon && n >= gone {
			rt.Fatalf("%s has %g of %g and is not among %d: %+v", name, n, exact.total, counters, top)
		}
	}
}

// A flood of keys of which one in many is looked at: the hot ones are found, and their bounds hold as often as
// promised.
func TestHotKeysAreFoundInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hotKeys, perBatch = 20, 2000
		s := small(t, Options{Keys: 128, Samples: 500})
		exact := map[string]float64{}
		random := rand.New(rand.NewPCG(3, 4))
		batches := make([]*event.Batch, 50)
		for n := range batches {
			keys := make([]string, perBatch)
			for i := range keys {
				if keys[i] = fmt.Sprintf("cold:%d", random.IntN(1e6)); i%4 == 0 {
					keys[i] = fmt.Sprintf("hot:%d", random.IntN(hotKeys)) // each 1.25 % of all
				}
				exact[keys[i]] += 20
			}
			batches[n] = batch(fmt.Sprint("shop.t", n%2), keys...)
		}
		for n := range 20 * len(batches) { // 200,000 keys a second for 10 s
			s.Count(batches[n%len(batches)])
			time.Sleep(10 * time.Millisecond) // the bubble's
		}
		if s.stride < 200 {
			t.Errorf("one in %d is looked at", s.stride)
		}
		top := s.Keys(hotKeys)
		within := 0
		for i := range hotKeys {
			name := fmt.Sprintf("hot:%d", i)
			c, ok := find(top, name)
			if !ok {
				t.Errorf("%s is not among the hottest: %+v", name, top)
			}
			if truth := exact[name] / 10; c.Low <= truth && truth <= c.High && c.Low > truth/3 && c.High < 3*truth {
				within++
			}
		}
		if within < hotKeys*85/100 {
			t.Errorf("%d of %d within their bounds: %+v", within, hotKeys, top)
		}
		if got := s.PerSecond(); math.Abs(got-200_000) > 20_000 {
			t.Errorf("%g keys per second in all", got)
		}
		for _, c := range s.Tables(10) {
			if c.Low > 100_000 || c.High < 100_000 || c.High-c.Low > 40_000 {
				t.Errorf("%+v, want half of 200,000", c)
			}
		}
	})
}

// Rows that yield the same keys in the same order, as all do, are not looked at in step with it.
func TestEveryTemplateOfAMappingIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Options{Samples: 101})
		for range 200 {
			keys := make([]string, 1280)
			for i := range keys {
				keys[i] = fmt.Sprint("template:", i%2)
			}
			s.Count(batch("shop.product", keys...))
			time.Sleep(50 * time.Millisecond) // the bubble's
		}
		if s.stride%2 != 0 {
			t.Fatalf("one in %d: this test wants an even number", s.stride)
		}
		if top := s.Keys(2); len(top) != 2 || top[1].PerSecond < top[0].PerSecond*0.8 {
			t.Errorf("%+v", top)
		}
	})
}

func TestTheLastMinutesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Options{})
		many := func(key string, seconds int) {
			for range seconds {
				s.Count(batch("shop.product", slices.Repeat([]string{key}, 100)...))
				time.Sleep(time.Second) // the bubble's
			}
		}
		many("product:1", 60)
		if c, _ := find(s.Keys(1), "product:1"); math.Abs(c.PerSecond-100) > 1 || c.Low != c.PerSecond ||
			c.High != c.PerSecond {
			t.Errorf("100 a second: %+v", c)
		}
		many("product:2", 180)
		if top := s.Keys(2); top[0].Name != "product:2" || top[0].PerSecond < 75 || top[1].PerSecond > 15 {
			t.Errorf("three minutes later: %+v", top)
		}
		time.Sleep(time.Hour)
		if top, tables := s.Keys(2), s.Tables(2); len(top)+len(tables) > 0 {
			t.Errorf("an hour later: %+v, %+v", top, tables)
		}
		if p := s.PerSecond(); p > 0.001 {
			t.Errorf("an hour later: %g per second", p)
		}
	})
}

// What is seldom looked at because much came is seen again soon once little comes.
func TestAFloodIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Options{Samples: 10})
		s.Count(batch("shop.product", slices.Repeat([]string{"product:1"}, 100_000)...))
		if s.stride < 1000 {
			t.Fatalf("in a flood one in %d is looked at", s.stride)
		}
		time.Sleep(2 * step)
		for range 2 {
			s.Count(batch("shop.user", "user:1"))
			time.Sleep(2 * step)
		}
		if _, ok := find(s.Keys(10), "user:1"); !ok || s.stride != 1 {
			t.Errorf("one in %d is looked at: %+v", s.stride, s.Keys(10))
		}
	})
}

// However much comes at once, and before anything is known of it, little of it is looked at.
func TestASingleFloodCostsLittle(t *testing.T) {
	s := small(t, Options{Samples: 100})
	s.now = func() time.Time { return s.start }
	taken := 0.0
	for range 500 {
		s.Count(batch("shop.product", slices.Repeat([]string{"product:1"}, 2000)...))
	}
	for _, i := range s.keys.heap {
		taken += s.keys.counts[i]
	}
	if s.stride < 1<<12 || math.Abs(taken-1e6) > 3e5 {
		t.Errorf("one in %d is looked at, for %g", s.stride, taken)
	}
}

func TestNamesAreKeptAsTheyAreUpToABound(t *testing.T) {
	s := small(t, Options{})
	odd := "k\x00\xff\n\"<script>"
	long := strings.Repeat("x", MaxName)
	b := batch("shop.product", odd, "", long, long+"1", long+"2", long+"2")
	s.Count(b)
	for _, want := range []Count{{Name: odd, Length: len(odd)}, {Name: ""}, {Name: long, Length: MaxName}} {
		if c, ok := find(s.Keys(10), want.Name); !ok || c.Length < want.Length {
			t.Errorf("%q: %+v", want.Name, c)
		}
	}
	lengths := map[string]int{}
	for _, c := range s.Keys(10) {
		lengths[fmt.Sprint(len(c.Name), " ", c.Length, " ", c.PerSecond)]++
		if len(c.Name) > 0 && unsafe.StringData(c.Name) == unsafe.StringData(b.Key(0)) {
			t.Error("a name shares the batch's memory")
		}
	}
	// The two that differ after the bound are two.
	want := map[string]int{"13 13 1": 1, "0 0 1": 1, "256 256 1": 1, "256 257 1": 1, "256 257 2": 1}
	if !maps.Equal(lengths, want) {
		t.Errorf("%v, want %v", lengths, want)
	}
}

func TestMemoryIsFixed(t *testing.T) {
	s := small(t, Options{})
	batches := make([]*event.Batch, 40)
	for i := range batches {
		keys := make([]string, 200)
		for j := range keys {
			keys[j] = strings.Repeat("long", 100) + fmt.Sprint(i, "/", j)
		}
		batches[i] = batch(fmt.Sprint("shop.t", i), keys...)
	}
	n := 0
	if allocated := testing.AllocsPerRun(100, func() { s.Count(batches[n%len(batches)]); n++ }); allocated != 0 {
		t.Errorf("%g allocations to count 200 keys", allocated)
	}
	var size uintptr
	for _, sum := range []*summary{s.keys, s.tables} {
		if len(sum.counters) > sum.limit || cap(sum.counters) != sum.limit {
			t.Errorf("%d counters, room for %d", len(sum.counters), cap(sum.counters))
		}
		size += uintptr(cap(sum.counters))*(unsafe.Sizeof(counter{})+8+2+2) + uintptr(len(sum.index))*2
	}
	if size > 410<<10 {
		t.Errorf("%d bytes", size)
	}
}

func TestManyMayCountAndLook(t *testing.T) {
	s := small(t, Options{Keys: 16})
	var all sync.WaitGroup
	for p := range 4 {
		all.Go(func() {
			for i := range 200 {
				s.Count(batch(fmt.Sprint("shop.t", p), "hot", fmt.Sprint("cold:", p, ":", i)))
			}
		})
		all.Go(func() {
			for range 50 {
				s.Keys(5)
				s.Tables(5)
				s.PerSecond()
			}
		})
	}
	all.Wait()
	// 800 of 1600, within the first second or a few.
	if top := s.Keys(1); top[0].Name != "hot" || top[0].High < s.PerSecond()*0.49 || s.total < 1500 {
		t.Errorf("%+v of %g", top, s.total)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Keys: -1}, {Tables: maxCounters + 1}, {Window: time.Millisecond}, {Samples: -1}} {
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "hot: ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := small(t, Options{Keys: 1, Tables: maxCounters})
	s.Count(batch("shop.a", "a", "b", "b"))
	s.Count(batch("shop.b"))
	if top := s.Keys(-1); len(top) != 0 {
		t.Errorf("%+v", top)
	}
	if top := s.Tables(9); len(top) != 1 || top[0].Name != "shop.a" {
		t.Errorf("%+v", top)
	}
}
