package invalidator

import "testing"

// Every part of the rule is needed: without it, some world ends with a cached value that is older than its row.
func TestEveryPartOfTheRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name    string
		without without
		hazards hazards
	}{
		{"D counts from a mark, not from the first delete", without{marks: true}, hazards{ahead: 0.5}},
		{"the final delete comes D after the mark, not at once", without{delay: true}, hazards{precise: 0.5}},
		{"where no reader is slow, what was deleted before the mark is deleted once more", without{instant: true}, hazards{ahead: 0.5, none: 1}},
		{"one delete is enough for old news of D, not of less", without{age: true}, hazards{crash: 0.5}},
		{"a late reply does not count", without{late: true}, hazards{stall: 0.9, precise: 0.9}},
		{"a silence before the delete matters, not only its own reply", without{dark: true}, hazards{stall: 0.9, short: 0.3, precise: 0.9}},
		{"a silence before freshet started matters", without{start: true}, hazards{kafka: 1, crash: 0.9, stall: 0.9, precise: 0.9}},
		{"a delete is repeated D after a silence, not at once", without{again: true}, hazards{stall: 0.9, precise: 0.9}},
		{"a mark covers no later term", without{term: true}, hazards{kafka: 1, liar: 1, lag: 0.9}},
		{"a mark covers no later version", without{version: true}, hazards{ahead: 0.9}},
		{"finished is what was deleted finally, not once", without{final: true}, hazards{crash: 0.9}},
		{"only the contiguous low watermark is committed", without{contiguous: true}, hazards{crash: 0.9, quicks: 0.5}},
		{"of duplicates the largest D counts", without{largest: true}, hazards{bothDs: 1}},
		{"a lost reply is not an acknowledgement", without{acked: true}, hazards{lose: 0.3}},
		{"a key is parked no earlier than D after its mark", without{parkDelay: true}, hazards{refuse: 0.9, ahead: 0.5}},
		{"a parked key is finished once it is stored durably", without{durable: true}, hazards{refuse: 0.9, crash: 0.9, full: 1}},
		{"a parked key's delete is repeated after a silence", without{parked: true}, hazards{refuse: 0.9, stall: 0.9, precise: 0.9}},
		{"old news is forgotten, not written", without{oldNews: true}, hazards{kafka: 1, values: 1, none: 0.9, evict: 0.9, again: 0.9}},
		{"an older leader's leftovers are forgotten, not written", without{leftover: true},
			hazards{kafka: 1, liar: 1, values: 1, none: 0.5, evict: 0.9, behind: 0.9, crash: 0.9}},
		{"a run serves only who waited when it began", without{joined: true}, hazards{values: 1, queried: 1, precise: 0.5, limited: 0.5}},
		{"a run that is under way forgets where a later change forwent its query", without{spoiled: true},
			hazards{values: 1, queried: 1, tight: 1, none: 1}},
		{"what was written once is written again", without{finalPut: true}, hazards{values: 1, precise: 0.5}},
		{"others are told after the deed, not before", without{notices: true}, hazards{told: 1, precise: 0.9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const most = 3000
			seed := firstSeed(t)
			for i := range uint64(most) {
				v := play(t, c.hazards, c.without, seed+i)
				if v.fault != "" {
					t.Fatalf("seed %d: %s", seed+i, v)
				}
				if len(v.stale) > 0 {
					if whole := play(t, c.hazards, without{}, seed+i); !whole.ok() {
						t.Fatalf("seed %d: the whole rule does not hold either: %s", seed+i, whole)
					}
					t.Logf("seed %d after %d worlds: %v", seed+i, i+1, v.stale)
					return
				}
			}
			t.Errorf("no counterexample in %d worlds from seed %d: is this part of the rule of no use, or the world too kind?", most, seed)
		})
	}
}
