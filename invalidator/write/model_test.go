package write

import (
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/proof/testbed"
)

// replaced are scripts with a piece of their text replaced: to give them the world's clock, and to take rules away.
func replaced(t testing.TB, in *scripts, old, with string) *scripts {
	t.Helper()
	found := false
	edit := func(s *Script) *Script {
		if strings.Contains(s.Source, old) {
			found = true
		}
		r := newScript(s.Name, strings.ReplaceAll(s.Source, old, with))
		if s.several != nil {
			found = found || strings.Contains(s.several.Source, old)
			r.several = newScript(s.Name, strings.ReplaceAll(s.several.Source, old, with))
		}
		return r
	}
	out := &scripts{rebuild: edit(in.rebuild), stage: edit(in.stage), field: edit(in.field), member: edit(in.member)}
	if !found {
		t.Fatalf("no script holds %q", old)
	}
	return out
}

// run has calls run these scripts in the place of those of the same names.
func (s *scripts) run(calls []*Call) {
	for _, c := range calls {
		for _, r := range []*Script{s.rebuild, s.stage, s.field, s.member} {
			if c.Script != nil && c.Script.Name == r.Name {
				c.Script, c.words[1] = r, r.SHA
			}
		}
	}
}

// simulated are the scripts with the world's clock.
func simulated(t testing.TB) *scripts {
	t.Helper()
	return replaced(t, theScripts, "redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'u')")
}

// play runs the world of a seed.
func play(t testing.TB, client *redis.Client, s *scripts, k kind, h hazards, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{ctx: t.Context(), h: h, rng: rng, client: client, kind: k}
	o := Options{Random: rng.Uint64}
	if w.chance(h.fewMarks) {
		o.Entries = 1 + rng.IntN(3)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.b, w.scripts = b, s
	w.run()
	return w
}

func kinds() map[string]kind {
	return map[string]kind{
		"string": whole{}, "string with negative entries": whole{missing: true}, "hash": columns{},
		"fields": fieldwise{}, "set": members{}, "sorted set": members{sorted: true},
	}
}

func drawHazards(t *rapid.T) hazards {
	c := func(name string) float64 { return rapid.SampledFrom([]float64{0, 0, 0.1, 0.3, 0.6, 0.9}).Draw(t, name) }
	return hazards{
		evict: c("evict"), handover: c("handover"), rewind: c("rewind"), rename: c("rename"), zombie: c("zombie"),
		overlap: c("overlap"), late: c("late"), leftover: c("leftover"), stuck: c("stuck"), slow: c("slow"),
		fewMarks: c("few marks"), torn: c("torn"),
		refused: c("refused"), goBack: c("go back"), scope: c("scope"),
		walk: c("walk"), waits: c("waits"), killed: c("killed"),
	}
}

// fewerWorlds has rapid play some worlds of each kind, unless it is a soak or their number was given.
func fewerWorlds(t *testing.T) {
	t.Helper()
	n := flag.Lookup("rapid.checks")
	if os.Getenv("FRESHET_SOAK") != "" || n.Value.String() != n.DefValue {
		return
	}
	if err := n.Value.Set("30"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Value.Set(n.DefValue) })
}

func TestWhatIsWrittenIsNeverOlderThanTheRow(t *testing.T) {
	fewerWorlds(t)
	for version, start := range map[string]func(testing.TB, ...string) *testbed.RedisServer{
		"redis":   testbed.Redis,
		"redis 8": testbed.Redis8,
	} {
		client := start(t).Client()
		s := simulated(t)
		for name, k := range kinds() {
			t.Run(version+"/"+name, func(t *testing.T) {
				written, left := 0, 0
				rapid.Check(t, func(rt *rapid.T) {
					w := play(t, client, s, k, drawHazards(rt), rapid.Uint64().Draw(rt, "seed"))
					if w.fault != "" {
						rt.Fatalf("%s\n%s", w.fault, strings.Join(w.trace, "\n"))
					}
					written += w.written
					left += w.left
				})
				if written == 0 || left == 0 {
					t.Errorf("%d values were written, and %d left by what was done again", written, left)
				}
			})
		}
	}
}

// A guard that wrote nothing would pass all else: where nothing goes wrong, the final action leaves the row's value.
func TestWhereNothingGoesWrongTheValueIsThere(t *testing.T) {
	client := testbed.Redis(t).Client()
	s := simulated(t)
	for seed := uint64(1); seed <= 40; seed++ {
		w := play(t, client, s, whole{missing: true}, hazards{}, seed)
		last, want := len(w.changes), "none"
		if !w.changes[last-1].gone {
			want = value(last)
		}
		if have := w.redis("get", worldKey); have != want || w.fault != "" {
			t.Fatalf("seed %d: %v, want %s; %s\n%s", seed, have, want, w.fault, strings.Join(w.trace, "\n"))
		}
	}
}
