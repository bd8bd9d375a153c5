package write

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/mutant"
)

func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t) }

// Every rule of the guard is needed: without it some world ends with a value that is older than its row.
func TestEveryRuleOfTheGuardIsNeeded(t *testing.T) {
	client := testbed.Redis(t).Client()
	whole := simulated(t)
	for _, c := range []struct {
		name      string
		old, with string
		kind      string
		hazards   hazards
		seed      uint64 // of the first world that shows it
	}{
		{
			"a key without a companion is not written", "if o == 'none' or o == 'later' then\n    if single",
			"if o == 'none' then return true, text(version, 0) end\n  if o == 'later' then\n    if single",
			"string",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9, slow: 0.2},
			10,
		},
		{
			"a key without a companion is not written, even if it is absent", "single and o == 'none'", "o == 'none'",
			"string",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9},
			22,
		},
		{
			"a change confirms only a companion that was there before anything newer was finished", "since = confirm(since)\n",
			"since = o == 0 and 0 or confirm(since)\n",
			"string",
			hazards{evict: 0.9, handover: 0.9, zombie: 0.9, stuck: 0.5},
			135,
		},
		{
			"what takes effect late is forgotten", "(op == 'yield' or now > last)", "op == 'yield'",
			"string",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9, stuck: 0.5},
			61,
		},
		{
			"a companion confirms after a while only", "if now - since >= window then return 0 end", "if true then return 0 end",
			"string",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9},
			18,
		},
		{
			"a companion of another source says nothing", "if s ~= source then return 'none' end", "",
			"string",
			hazards{handover: 0.9, rename: 0.9},
			1,
		},
		{
			"versions of different epochs are not compared", "if string.sub(v, 1, #epoch) ~= epoch then return v < version and 'later' or 'former' end",
			"v = epoch .. string.sub(v, string.byte(v) - 45)",
			"string",
			hazards{handover: 0.9, rewind: 0.9},
			1,
		},
		{
			"a former epoch writes nothing", "if o == 'former' then return false end",
			"if o == 'former' then return true, mark end",
			"string",
			hazards{handover: 0.9, rewind: 0.9, zombie: 0.9},
			1,
		},
		{
			"an older change is not written", "if o == 1 then return nil end", "if o == 1 then return true, mark end",
			"string",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"forgetting raises the companion", "  return text(version, since)\nend", "  return nil\nend",
			"string",
			hazards{refused: 0.5, handover: 0.9, zombie: 0.9},
			90,
		},
		{
			"what is done again removes an older value", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == -1 then return OLDER end\nif forgets(mark) then\n",
			"string",
			hazards{goBack: 0.9, late: 0.3},
			109,
		},
		{
			"what is done again removes its own value", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == 0 then return OLDER end\nif forgets(mark) then\n",
			"string",
			hazards{goBack: 0.9, late: 0.3},
			1,
		},
		{
			"what is done again removes an older hash", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == -1 then return OLDER end\nif forgets(mark) then\n",
			"hash",
			hazards{goBack: 0.9, late: 0.3},
			109,
		},
		{
			"what is done again removes an older field", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == -1 then return OLDER end\nif forgets(mark) then\n",
			"fields",
			hazards{goBack: 0.9, late: 0.3},
			4,
		},
		{
			"what is done again removes its own field", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == 0 then return OLDER end\nif forgets(mark) then\n",
			"fields",
			hazards{goBack: 0.9, late: 0.3},
			1,
		},
		{
			"a scope removes an older field", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == -1 then return OLDER end\nif forgets(mark) then\n",
			"fields",
			hazards{scope: 0.9},
			3,
		},
		{
			"a member is left for a newer change only", "local overtaken = ",
			"if op == 'yield' and mine == version then return OLDER end\nlocal overtaken = ",
			"sorted set",
			hazards{goBack: 0.9, late: 0.3},
			1,
		},
		{
			"a row that was read replaces no newer value", "if o == 1 then return nil end",
			"if o == 1 and op == 'yield' then return nil end\n  if o == 1 then return true, mark end",
			"string",
			hazards{walk: 0.9, waits: 0.9},
			3,
		},
		{
			"what a killed answer sent removes an older value", "if forgets(mark) then\n",
			"if op == 'yield' and relate(mark) == -1 then return OLDER end\nif forgets(mark) then\n",
			"fields",
			hazards{scope: 0.9, killed: 0.9},
			11,
		},
		{
			"half a hash is not swapped in",
			"if redis.pcall('HLEN', temporary) ~= tonumber(value) then return {err = 'incomplete'} end",
			"if redis.call('EXISTS', temporary) == 0 then return {err = 'incomplete'} end",
			"hash",
			hazards{torn: 0.5},
			3,
		},
		{
			"an older field is not written", "if o == 1 then return nil end", "if o == 1 then return true, mark end",
			"fields",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"a field without a mark is removed", "if o == 'none' or o == 'later' then\n    if single",
			"if o == 'none' then return true, text(version, 0) end\n  if o == 'later' then\n    if single",
			"fields",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9, fewMarks: 0.9},
			1,
		},
		{
			"a field has its mark in one generation", "if moved then redis.call('HDEL', before, field) end", "",
			"fields",
			hazards{evict: 0.9, handover: 0.9, zombie: 0.9, fewMarks: 0.9},
			983,
		},
		{
			"an older member is not put back", "if newer(mine, version) then return OLDER end", "",
			"set",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"members without marks are in doubt", "begin(pending)\n  return doubt()", "begin(0)\n  return apply()",
			"set",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9},
			9,
		},
		{
			"what is below the floor is in doubt", "if newer(floor, version) then return doubt() end", "",
			"set",
			hazards{leftover: 0.5, handover: 0.9, zombie: 0.9, fewMarks: 0.9, evict: 0.1},
			25,
		},
		{
			"forgetting raises the floor", "set('<', text(version, since))\n  end\n  return FORGOTTEN",
			"end\n  return FORGOTTEN",
			"set",
			hazards{refused: 0.3, handover: 0.9, zombie: 0.9},
			1563,
		},
		{
			"the floor rises over a generation that is dropped",
			"if newer(oldtop, floor) then floor = oldtop end\n  redis.call('UNLINK', before)", "redis.call('UNLINK', before)",
			"set",
			hazards{fewMarks: 1, handover: 0.9, zombie: 0.9},
			73,
		},
		{
			"a member is added only to a set that is there", "if redis.call('EXISTS', key) == 0 then return ABSENT end", "",
			"set",
			hazards{evict: 0.3},
			743,
		},
		{
			"a former epoch touches no set", "if o == 'former' then return doubt() end",
			"if o == 'former' then return apply() end",
			"sorted set",
			hazards{handover: 0.9, rewind: 0.9, zombie: 0.9},
			4,
		},
		{
			"at once: only over a mark that confirms", "'^(%d+) 0 (.*)$'", "'^(%d+) %d+ (.*)$'",
			"string",
			hazards{evict: 0.5, handover: 0.9, zombie: 0.9},
			18,
		},
		{
			"at once: only what is no older", "s == source and v <= version", "s == source",
			"string",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"at once: only a field that is no older", "s == source and v <= version", "s == source",
			"fields",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"at once: only a member that is no older", "confirms(whole, version) and not newer(mine, version)", "confirms(whole, version)",
			"set",
			hazards{handover: 0.9, zombie: 0.9},
			1,
		},
		{
			"at once: only what is not below the floor", "s == source and v <= version", "s == source",
			"set",
			hazards{leftover: 0.5, handover: 0.9, zombie: 0.9, fewMarks: 0.9, evict: 0.1},
			454,
		},
		{
			"at once: no member that the generation before may have", "(mine or not oldtop and", "(mine or",
			"set",
			hazards{fewMarks: 1, handover: 0.9, zombie: 0.9},
			542,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := replaced(t, whole, c.old, c.with)
			k := kinds()[c.kind]
			counterexample(t, c.seed, func(seed uint64) *world { return play(t, client, s, k, c.hazards, seed) },
				func(seed uint64) *world { return play(t, client, whole, k, c.hazards, seed) })
		})
	}
}

// counterexample looks for a world that shows that a rule is needed, from the one that is known to show it on. The same
// world with the rule must end well.
func counterexample(t *testing.T, from uint64, without, with func(seed uint64) *world) {
	t.Helper()
	const most = 2000
	if os.Getenv("FRESHET_SOAK") != "" {
		from = 1
	}
	for seed := from; seed < from+most; seed++ {
		w := without(seed)
		if w.fault == "" {
			continue
		}
		if strings.Contains(w.fault, "ERR") {
			t.Fatal(w.fault) // the replaced script is no script
		}
		if again := with(seed); again.fault != "" {
			t.Fatalf("seed %d: the whole guard does not hold either: %s\n%s", seed, again.fault,
				strings.Join(again.trace, "\n"))
		}
		t.Logf("seed %d: %s", seed, w.fault)
		return
	}
	t.Errorf("no counterexample in %d worlds: is this rule of no use, or the world too kind?", most)
}

// A change that only removes the key, since its companion does not confirm yet, raises the companion nevertheless: else
// an older value would be written over it as soon as the companion is old enough. Random worlds come to this too
// seldom.
func TestADoubtRaisesTheCompanion(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	play := func() Outcome {
		r.redis("flushall")
		begins := int64(worldBegins)
		r.redis("hset", "clock", "s", begins, "u", 0)
		first, overtaken, newest := put("k", "1", at(1)), put("k", "2", at(2)), put("k", "3", at(3))
		r.do(first) // begins the companion
		for range 2 {
			clear(r.begun) // the first action's reply was lost, so that the final one confirms nothing
			if o := r.do(newest); o != Forgotten {
				t.Fatalf("the newest change: %s", o)
			}
		}
		r.redis("hset", "clock", "s", begins+int64(ConfirmsAfter(testD)/time.Second))
		return r.do(overtaken)
	}
	whole := simulated(t)
	r.scripts = whole
	if o := play(); o != Older || r.redis("exists", "k") != int64(0) {
		t.Errorf("a value that was overtaken: %s", o)
	}
	r.scripts = replaced(t, whole, "  return since == 0, text(version, since)\n",
		"  if since ~= 0 then return false end\n  return true, text(version, 0)\n")
	if o := play(); o != Written {
		t.Errorf("without the rule: %s, want written", o)
	}
}
