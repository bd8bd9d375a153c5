package write

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// several is a random round trip: what Redis holds before it, and the items.
type several struct {
	rng   *rand.Rand
	names Names
	// kind is what most keys are, and most items are about.
	kind  int
	state [][]any
	items []*Item
}

var severalKeys = []string{"k1", "k2", "k3", "k4", "k5"}

// newSeveral draws a round trip. Most items are like the one before, or the one before that, so that they share a call.
func newSeveral(seed uint64) *several {
	s := &several{rng: rand.New(rand.NewPCG(seed, 2))}
	s.is("flushall")
	s.is("hset", "clock", "s", worldBegins, "u", 0)
	s.kind = s.rng.IntN(6)
	confirm := one(s.rng, 0.5, 0.9, 1)
	for _, k := range severalKeys {
		s.layOut(k, confirm)
	}
	likes, alike := []func() *Item{s.like()}, one(s.rng, 0.7, 1)
	if s.chance(0.4) {
		likes = append(likes, s.like()) // in turn, as what removes a member and adds another one
	}
	for i := range 2 + s.rng.IntN(24) {
		if s.chance(1 - alike) {
			likes[i%len(likes)] = s.like()
		}
		s.items = append(s.items, likes[i%len(likes)]())
	}
	return s
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func (s *several) chance(p float64) bool { return s.rng.Float64() < p }

func (s *several) is(words ...any) { s.state = append(s.state, words) }

func (s *several) version() event.Version {
	return event.Version{
		Epoch: one[uint32](s.rng, 1, 1, 1, 1, 1, 1, 1, 2), File: 1, Pos: uint64(8 + s.rng.IntN(4)),
	}
}

// old is a version that is older than most changes, as often as that.
func (s *several) old(confirm float64) string {
	if s.chance(confirm) {
		return inRedis(event.Version{Epoch: 1, File: 1, Pos: 8})
	}
	return inRedis(s.version())
}

// mostly draws what a key is, or an item is about.
func (s *several) mostly() int {
	if s.chance(0.9) {
		return s.kind
	}
	return s.rng.IntN(6)
}

// mark is one that confirms as often as that, and is older than most changes then.
func (s *several) mark(confirm float64) string {
	if s.chance(confirm) {
		return s.old(1) + " 0 s"
	}
	since := one[int64](s.rng, 0, 0, worldBegins*1000-1500, 1)
	return fmt.Sprintf("%s %d %s", inRedis(s.version()), since, one(s.rng, "s", "s", "t"))
}

var severalParts = []string{"a", "b", "c", "d", "e", "f"}

// layOut draws a key and what stands next to it.
func (s *several) layOut(k string, confirm float64) {
	name := func(kind Kind) string { return string(s.names.Append(nil, kind, k)) }
	if s.chance(confirm) {
		s.is("set", name(KindVersion), s.mark(confirm))
	}
	for _, part := range severalParts {
		for _, kind := range []Kind{KindField, KindOldField} {
			if s.chance(confirm) == (kind == KindField) {
				s.is("hset", name(kind), part, s.mark(confirm))
			}
		}
		if s.chance(0.5) {
			s.is("hset", name(KindMember), "="+part, s.old(min(confirm, 0.8)))
		}
	}
	if s.chance(0.9) {
		s.is("hset", name(KindMember), "<", s.mark(confirm))
	}
	if s.chance(0.9) {
		s.is("hset", name(KindMember), ">", s.old(confirm))
	}
	if !s.chance(confirm) {
		s.is("hset", name(KindMember), "|", inRedis(s.version()))
		s.is("hset", name(KindOldMember), "=a", inRedis(s.version()))
	}
	if s.chance(0.02) {
		s.is("unlink", name(KindVersion), name(KindField), name(KindMember))
		for _, kind := range []Kind{KindVersion, KindField, KindMember} {
			s.is("sadd", name(kind), "of another type")
		}
	}
	if s.chance(0.9) {
		s.is([][]any{
			{"set", k, "old"},
			{"set", k, "old"},
			{"hset", k, "a", "old"},
			{"hset", k, "a", "old"},
			{"sadd", k, "x"},
			{"zadd", k, "1", "x"},
		}[s.mostly()]...)
	}
}

// like draws what several items may have in common, and returns what makes one of them.
func (s *several) like() func() *Item {
	kind := s.mostly()
	intent := one(s.rng, event.IntentPut, event.IntentPut, event.IntentPut, event.IntentRemove, event.IntentForget)
	e := event.Effect{As: event.FormString, TTL: one(s.rng, 0, time.Minute, 2*time.Hour), Jitter: one(s.rng, 0, 0.1)}
	e.Missing = s.chance(0.5)
	until := one[int64](s.rng, inTime, inTime, inTime, worldBegins*1000-1)
	begun := one[int64](s.rng, 0, 0, worldBegins*1000-1000)
	d := one(s.rng, testD, testD, 0)
	leftover, named := s.chance(0.3), s.chance(0.1)
	keys, key := severalKeys[:1+s.rng.IntN(len(severalKeys))], ""
	return func() *Item {
		if key == "" || s.chance(0.4) {
			key = one(s.rng, keys...)
		}
		it := &Item{Key: key, Effect: &e, Intent: intent, Source: "s", Version: s.version()}
		it.Until, it.Begun, it.D, it.Leftover, it.Named = until, begun, d, leftover, named
		part, value := one(s.rng, severalParts...), fmt.Sprint("new ", it.Version.Pos)
		switch kind {
		case 0, 1:
			it.Action, it.Fields = event.ActionRebuild, fields(value)
		case 2:
			hash := e
			hash.As = event.FormHash
			it.Action, it.Effect, it.Fields = event.ActionRebuild, &hash, fields("a", value, part, value)
		case 3:
			it.Action, it.Fields = event.ActionHash, fields(part, value)
		case 4:
			it.Action, it.Fields = event.ActionSet, fields(part)
		case 5:
			it.Action, it.Fields = event.ActionZSet, fields(part, one(s.rng, "5", "5", "5", "6.5", "no number"))
		}
		return it
	}
}

// load has Redis know the scripts, so that nothing is sent twice.
func (r *rig) load(s *scripts) {
	for _, script := range []*Script{s.rebuild, s.stage, s.field, s.member} {
		r.redis("script", "load", script.Source)
		if script.several != nil {
			r.redis("script", "load", script.several.Source)
		}
	}
}

// play does the items, in the commands into which pack puts their calls, and returns all that can be seen of it.
func (s *several) play(r *rig, in *scripts, pack func([]*Call) []Packed) (seen string, packed []Packed) {
	for _, words := range s.state {
		r.redis(words...)
	}
	r.b.Reset()
	var calls []*Call
	var ends []int
	for _, it := range s.items {
		calls = r.b.Append(calls, it)
		ends = append(ends, len(calls))
	}
	in.run(calls)
	packed = pack(calls)
	sendPacked(r.Context(), r.client, packed)
	from, removed := 0, 0
	for i, it := range s.items {
		outcome, err := r.b.Outcome(it, calls[from:ends[i]])
		if it.Action == event.ActionDelete && err == nil { // how many there were is known, not which
			if outcome == Removed {
				removed++
			}
			outcome = 0
		}
		seen += fmt.Sprintf("%s %s %s %s at %s: %s %v, begun %d\n", it.Action, it.Intent, it.Key, printable(it.Fields),
			it.Version, outcome, err, r.b.Begun(calls[from:ends[i]]))
		from = ends[i]
	}
	seen += fmt.Sprintf("%d removed\n", removed)
	for _, k := range severalKeys {
		for _, kind := range []Kind{"", KindVersion, KindField, KindOldField, KindMember, KindOldMember} {
			key := k
			if kind != "" {
				key = string(s.names.Append(nil, kind, k))
			}
			seen += key + ": " + r.content(key) + "\n"
		}
	}
	return seen, packed
}

func printable(f event.Fields) string { return fmt.Sprintf("%q", string(f)) }

// isAsOneByOne fails the test unless the items do in few commands what they do one by one, and returns the commands.
func (s *several) isAsOneByOne(t *rapid.T, r *rig, whole *scripts) []Packed {
	r.b.random = rand.New(rand.NewPCG(1, 1)).Uint64
	want, _ := s.play(r, whole, Alone)
	r.b.random = rand.New(rand.NewPCG(1, 1)).Uint64
	have, packed := s.play(r, whole, func(calls []*Call) []Packed { return Pack(calls, false) })
	if have != want {
		t.Fatalf("%v\nin few calls:\n%sone by one:\n%s", s.state, have, want)
	}
	return packed
}

// A call of several keys does what the calls of each would do one after the other: all that is proved of these is true
// of it.
func TestSeveralKeysInACallAreAsOneAfterTheOther(t *testing.T) {
	both(t, func(r *rig) {
		r.b.entries = "5"
		whole := simulated(t)
		r.load(whole)
		shared, settled, mixed := 0, 0, 0
		rapid.Check(r.TB.(*testing.T), func(t *rapid.T) {
			s := newSeveral(rapid.Uint64().Draw(t, "seed"))
			for _, p := range s.isAsOneByOne(t, r, whole) {
				if len(p.Calls) < 2 {
					continue
				}
				written := 0
				for _, c := range p.Calls {
					if c.Reply == int64(replyWritten) {
						written++
					}
				}
				shared++
				if written == len(p.Calls) {
					settled++
				} else if written > 0 {
					mixed++
				}
			}
		})
		if shared == 0 || settled == 0 || mixed == 0 {
			r.Errorf("%d calls of several, %d of which wrote all and %d some", shared, settled, mixed)
		}
	})
}

// UNLINKs share a command, too, among other calls and about keys that these are about.
func TestUnlinksInACommandAreAsOneAfterTheOther(t *testing.T) {
	both(t, func(r *rig) {
		r.b.entries = "5"
		whole := simulated(t)
		r.load(whole)
		shared := 0
		rapid.Check(r.TB.(*testing.T), func(t *rapid.T) {
			s := newSeveral(rapid.Uint64().Draw(t, "seed"))
			share := one(s.rng, 0.3, 0.6, 1)
			for _, it := range s.items {
				if s.chance(share) {
					*it = Item{Key: it.Key, Action: event.ActionDelete, Intent: event.IntentForget, Source: "s", Version: it.Version}
				}
			}
			for _, p := range s.isAsOneByOne(t, r, whole) {
				if len(p.Calls) > 1 && p.Calls[0].Script == nil {
					shared++
				}
			}
		})
		if shared == 0 {
			r.Error("no two of them share a command")
		}
	})
}

// Without one of the rules a call of several keys does something else.
func TestEveryRuleOfSeveralKeysIsNeeded(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{Entries: 5})
	whole := simulated(t)
	r.load(whole)
	pack := func(calls []*Call) []Packed { return Pack(calls, false) }
	for _, c := range []struct {
		name, old, with string
		seed            uint64 // of the first round trip that shows it
	}{
		{
			"a value that may not be written ends it",
			"if not confirms(marks[at], version)\n", "if false\n",
			4,
		},
		{
			"a value of its own time",
			"if ttl == '' then ttl = ARGV[of + 2] end", "if ttl == '' then ttl = '1' end",
			60,
		},
		{
			"a value that lives for a time",
			"if ttl == '0' then\n", "if true then\n",
			60,
		},
		{
			"no value is written late",
			"if op == 'set' and now <= last then\n  local companions", "if op == 'set' then\n  local companions",
			120,
		},
		{
			"values only",
			"if op == 'set' and now <= last then\n  local companions", "if now <= last then\n  local companions",
			2,
		},
		{
			"a field that may not be written ends it",
			"if not confirms(have[i], ARGV[of]) then break end", "",
			7,
		},
		{
			"what is behind such a field comes after it",
			"if #noted < 2 * #fields then break end", "",
			164,
		},
		{
			"a hash is no other key",
			"redis.pcall('HSET', key, unpack(values))", "redis.call('DEL', key) * redis.pcall('HSET', key, unpack(values))",
			45,
		},
		{
			"no member below the floor",
			"if not confirms(whole, version) or", "if",
			95,
		},
		{
			"no member that is older",
			"or newer(mine, version) or not mine", "or not mine",
			1,
		},
		{
			"no member of a full generation",
			"or not mine and room < 0 then", "then",
			3226,
		},
		{
			"no member without a set",
			"or redis.call('EXISTS', key) == 0 then break end", "then break end",
			24,
		},
		{
			"the newest version stays",
			"if newer(version, noted[2]) then noted[2] = version end", "noted[2] = version",
			30,
		},
		{
			"the newest version rises",
			"if newer(version, noted[2]) then noted[2] = version end", "",
			57,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			without := replaced(t, whole, c.old, c.with)
			r.load(without)
			from := c.seed
			if os.Getenv("FRESHET_SOAK") != "" {
				from = 1
			}
			for seed := from; ; seed++ {
				if seed == from+5000 {
					t.Fatal("nothing shows that it is needed")
				}
				s := newSeveral(seed)
				r.b.random = rand.New(rand.NewPCG(1, 1)).Uint64
				want, _ := s.play(r, whole, pack)
				r.b.random = rand.New(rand.NewPCG(1, 1)).Uint64
				if have, _ := s.play(r, without, pack); have != want {
					if strings.Contains(have, "ERR") {
						t.Fatal(have) // the replaced script is no script
					}
					t.Logf("seed %d", seed)
					return
				}
			}
		})
	}
}

// What may share a call, and what not.
func TestCallsThatAreAlikeShareOne(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	another := func(edit func(*Item)) *Item {
		it := put("b", "v", at(2))
		edit(it)
		return it
	}
	ttl := func(d time.Duration, jitter float64) func(*Item) {
		return func(it *Item) { it.Effect = &event.Effect{As: event.FormString, TTL: d, Jitter: jitter} }
	}
	a, half := put("a", "v", at(1)), strings.Repeat("v", packBytes/2)
	jittered := put("a", "v", at(1))
	ttl(2*time.Hour, 0.1)(jittered)
	for name, c := range map[string]struct {
		items  []*Item
		slots  bool
		shared []int
	}{
		"two values":          {[]*Item{a, put("b", "v", at(2))}, false, []int{2}},
		"of several slots":    {[]*Item{a, put("b", "v", at(2))}, true, []int{1, 1}},
		"times of their own":  {[]*Item{jittered, another(ttl(2*time.Hour, 0.1))}, false, []int{2}},
		"other times":         {[]*Item{a, another(ttl(2*time.Hour, 0))}, false, []int{1, 1}},
		"one key":             {[]*Item{a, put("a", "v", at(2))}, false, []int{1, 1}},
		"one key, later":      {[]*Item{a, put("b", "v", at(2)), put("a", "w", at(3))}, false, []int{2, 1}},
		"another source":      {[]*Item{a, another(func(it *Item) { it.Source = "t" })}, false, []int{1, 1}},
		"another epoch":       {[]*Item{a, another(func(it *Item) { it.Version.Epoch = 2 })}, false, []int{1, 1}},
		"another D":           {[]*Item{a, another(func(it *Item) { it.D = time.Minute })}, false, []int{1, 1}},
		"another begin":       {[]*Item{a, another(func(it *Item) { it.Begun = 5 })}, false, []int{1, 1}},
		"another end":         {[]*Item{a, another(func(it *Item) { it.Until = 500 })}, false, []int{1, 1}},
		"nearly the same end": {[]*Item{a, another(func(it *Item) { it.Until-- })}, false, []int{2}},
		"something else":      {[]*Item{a, another(func(it *Item) { it.Intent = event.IntentForget })}, false, []int{1, 1}},
		"another script":      {[]*Item{a, field("h", "f", "v", event.IntentPut, at(2)), a}, false, []int{1, 1, 1}},
		"what has no guard": {
			[]*Item{{Key: "n", Action: event.ActionIncr}, {Key: "m", Action: event.ActionIncr}},
			false,
			[]int{1, 1},
		},
		"fields of one hash": {
			[]*Item{
				field("h", "f", "v", event.IntentPut, at(1)), field("h", "g", "v", event.IntentPut, at(2)),
				field("h", "f", "w", event.IntentPut, at(3)),
			},
			true,
			[]int{2, 1},
		},
		"members of several sets": {
			[]*Item{
				member("s", "m", event.IntentPut, at(1)), member("t", "m", event.IntentPut, at(2)),
				member("s", "n", event.IntentPut, at(3)),
			},
			false,
			[]int{3},
		},
		"large hashes": {
			[]*Item{large("h", inlineFields+1, 1, at(1)), large("i", inlineFields+1, 1, at(1))},
			false,
			[]int{1, 1, 1, 1, 1, 1},
		},
		"many bytes": {[]*Item{put("a", half, at(1)), put("b", half, at(1))}, false, []int{1, 1}},
		"many words": {[]*Item{large("h", inlineFields, 1, at(1)), large("i", inlineFields, 1, at(1))}, false, []int{1, 1}},
	} {
		b.Reset()
		b.random = func() uint64 { return 1 << 40 }
		var calls []*Call
		for _, it := range c.items {
			calls = b.Append(calls, it)
		}
		var shared []int
		for _, p := range Pack(calls, c.slots) {
			shared = append(shared, len(p.Calls))
		}
		if !slices.Equal(shared, c.shared) {
			t.Errorf("%s: %v, want %v", name, shared, c.shared)
		}
	}
	b.Reset()
	var calls []*Call
	for i := range 2*packKeys + 1 {
		calls = b.Append(calls, put(fmt.Sprint(i), "v", at(uint64(i))))
	}
	if p := Pack(calls, false); len(p) != 3 || len(p[0].Calls) != packKeys || len(p[2].Calls) != 1 {
		t.Errorf("%d calls", len(p))
	}
}

// A member that is older ends what is settled at once, and has its own answer, though members of another set follow.
func TestAMemberThatIsOlderHasItsOwnAnswer(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	items := []*Item{
		member("s", "a", event.IntentPut, at(5)), member("s", "b", event.IntentPut, at(5)),
		member("t", "a", event.IntentPut, at(5)), member("t", "b", event.IntentPut, at(5)),
	}
	play := func(s *scripts) string {
		r.redis("flushall")
		for _, k := range []string{"s", "t"} {
			r.redis("sadd", k, "x")
			r.redis("hset", "freshet:m:{"+k+"}", "<", inRedis(at(1))+" 0 s", ">", inRedis(at(1)))
		}
		r.redis("hset", "freshet:m:{s}", "=b", inRedis(at(9)))
		r.load(s)
		r.b.Reset()
		var calls []*Call
		for _, it := range items {
			calls = r.b.Append(calls, it)
		}
		s.run(calls)
		sendPacked(t.Context(), r.client, Pack(calls, false))
		var outcomes []string
		for i, it := range items {
			o, err := r.b.Outcome(it, calls[i:i+1])
			outcomes = append(outcomes, fmt.Sprint(o, err))
		}
		return strings.Join(outcomes, ", ")
	}
	const want = "written <nil>, older <nil>, written <nil>, written <nil>"
	if have := play(theScripts); have != want {
		t.Errorf("%s, want %s", have, want)
	}
	if have := play(replaced(t, theScripts, "if #noted / 2 + 2 < #asked then break end", "")); have == want {
		t.Error("without the rule it is the same")
	}
}
