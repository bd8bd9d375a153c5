package invalidator

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestASilenceIsWhatLastsLongerThanAQuarterOfD(t *testing.T) {
	const d = 400 // a quarter is 100
	for _, c := range []struct {
		name    string
		replies []reply // after one that was sent and answered at 1000
		want    instant
	}{
		{"no gap", []reply{{1010, 1020}}, 1000},
		{"a quarter", []reply{{1000, 1100}}, 1000},
		{"just longer", []reply{{1000, 1101}}, 1101},
		{"nothing was asked", []reply{{1200, 1201}}, 1201},
		{"an answer is proof from when it was asked for", []reply{{1050, 1100}, {1100, 1150}}, 1000},
		{"and not from when it came", []reply{{1001, 1100}, {1001, 1102}}, 1102},
		{"others are answered while one hangs", []reply{{1050, 1060}, {1140, 1145}, {1010, 1200}}, 1000},
		{"the last silence counts", []reply{{1200, 1201}, {1250, 1260}, {1500, 1501}}, 1501},
		{"a longer one before it does not hide it", []reply{{5000, 5001}, {5200, 5201}}, 5201},
		{"a shorter one after it does not either", []reply{{1200, 1201}, {1250, 1251}}, 1201},
	} {
		w := newWatch()
		w.answered(reply{1000, 1000})
		for _, a := range c.replies {
			w.answered(a)
		}
		if got := w.dark(d); got != c.want {
			t.Errorf("%s: dark until %d, want %d", c.name, got, c.want)
		}
	}
}

func TestWhatFailsIsASilenceHoweverShort(t *testing.T) {
	const huge = time.Hour
	w := newWatch()
	if got := w.dark(huge); got != never {
		t.Errorf("before the first answer: dark until %d", got)
	}
	w.answered(reply{10, 11})
	w.answered(reply{12, 13})
	if got := w.dark(huge); got != 11 {
		t.Errorf("dark until %d, want the first answer", got)
	}
	w.failed()
	w.answered(reply{14, 15})
	w.answered(reply{16, 17})
	if got := w.dark(huge); got != 15 {
		t.Errorf("dark until %d, want the answer after the failure", got)
	}
}

// The watch forgets lengths that differ little, and may only err to the safe side by that.
func TestTheWatchKnowsEverySilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWatch()
		w.answered(reply{0, 0})
		type gap struct {
			length time.Duration
			end    instant
		}
		gaps := []gap{{endless, 0}}
		now, seen := instant(0), instant(0)
		for range rapid.IntRange(1, 200).Draw(t, "replies") {
			now += instant(rapid.Int64Range(0, 1000).Draw(t, "step"))
			sent := now - instant(rapid.Int64Range(0, 1500).Draw(t, "took"))
			gaps = append(gaps, gap{now.sub(seen), now})
			seen = max(seen, sent)
			w.answered(reply{sent, now})
		}
		for range 10 {
			d := time.Duration(rapid.Int64Range(1, 12000).Draw(t, "d"))
			exact, least := always, always // least: of the silences that are longer by more than a tenth
			for _, g := range gaps {
				if g.length > d/late {
					exact = max(exact, g.end)
				}
				if g.length > d/late-d/late/9 {
					least = max(least, g.end)
				}
			}
			if got := w.dark(d); got < exact || got > least {
				t.Fatalf("D %d: dark until %d, want %d to %d", d, got, exact, least)
			}
		}
		if len(w.silences) > 120 {
			t.Fatalf("%d silences are kept", len(w.silences))
		}
	})
}
