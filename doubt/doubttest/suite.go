// Package doubttest is what every keeper of doubts passes, and a keeper in memory for the tests of who uses one.
package doubttest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
)

// Keeper is all that a keeper does.
type Keeper interface {
	doubt.Keeper
	doubt.SharedFacts
}

// Rig opens the place that a test keeps its doubts in.
type Rig struct {
	// Open opens it, as a process does at its start; it is closed by the test's end.
	Open func(t *testing.T) Keeper
	// Crash ends the process that opened the keeper without a word, as kill -9 does.
	Crash func(t *testing.T, k Keeper)
}

// Run runs the suite; rig is called once for each test of it.
func Run(t *testing.T, rig func(t *testing.T) Rig) {
	for name, test := range map[string]func(*testing.T, Rig){
		"WhatIsPutIsThereAfterACrash":          durable,
		"PuttingAgainReplaces":                 replaces,
		"WhatIsDroppedIsGoneAfterACrash":       dropped,
		"DroppingWhatIsNotThereIsNoError":      unknown,
		"FactsAreThereAfterACrash":             facts,
		"FactsAndDoubtsDoNotMeet":              apart,
		"AFactThatIsTooLargeIsRefused":         tooLarge,
		"ManyDoubtsAreAllKept":                 many,
		"NamesAndSentencesAreKeptAsTheyAre":    words,
		"AContextThatHasEndedEndsTheWriting":   ended,
		"NobodyElseSeesAChangeToWhatWasListed": copies,
	} {
		t.Run(name, func(t *testing.T) { test(t, rig(t)) })
	}
}

// Sample returns the n-th of doubts that are all different.
func Sample(n int) doubt.Doubt {
	at := time.Unix(int64(1_700_000_000+n), 123456789).UTC()
	return doubt.Doubt{
		ID: fmt.Sprintf("%012x", n), Cause: "table_truncated", Source: "shop", Tables: []string{fmt.Sprintf("shop.t%d", n)},
		Message: fmt.Sprintf("TRUNCATE of table shop.t%d", n), Since: at, Last: at.Add(time.Hour), Count: n + 1,
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, k doubt.Keeper, want ...doubt.Doubt) {
	t.Helper()
	got, err := k.Doubts(t.Context())
	must(t, err)
	slices.SortFunc(got, func(a, b doubt.Doubt) int { return a.Since.Compare(b.Since) })
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("kept %+v\nwant %+v", got, want)
	}
}

func (r Rig) restart(t *testing.T, k Keeper) Keeper {
	t.Helper()
	r.Crash(t, k)
	return r.Open(t)
}

func durable(t *testing.T, r Rig) {
	k := r.Open(t)
	want(t, k)
	must(t, k.PutDoubt(t.Context(), Sample(0)))
	must(t, k.PutDoubt(t.Context(), Sample(1)))
	want(t, k, Sample(0), Sample(1))
	want(t, r.restart(t, k), Sample(0), Sample(1))
}

func replaces(t *testing.T, r Rig) {
	k := r.Open(t)
	d := Sample(0)
	must(t, k.PutDoubt(t.Context(), d))
	d.Count, d.Message = 7, "again"
	must(t, k.PutDoubt(t.Context(), d))
	want(t, k, d)
	must(t, k.PutDoubt(t.Context(), d)) // as after a reply that was lost
	want(t, r.restart(t, k), d)
}

func dropped(t *testing.T, r Rig) {
	k := r.Open(t)
	must(t, k.PutDoubt(t.Context(), Sample(0)))
	must(t, k.PutDoubt(t.Context(), Sample(1)))
	must(t, k.DropDoubt(t.Context(), Sample(0).ID))
	want(t, k, Sample(1))
	k = r.restart(t, k)
	want(t, k, Sample(1))
	must(t, k.PutDoubt(t.Context(), Sample(0)))
	want(t, k, Sample(0), Sample(1))
	want(t, r.restart(t, k), Sample(0), Sample(1))
}

func unknown(t *testing.T, r Rig) {
	k := r.Open(t)
	must(t, k.DropDoubt(t.Context(), "nothing"))
	must(t, k.PutDoubt(t.Context(), Sample(0)))
	must(t, k.DropDoubt(t.Context(), "nothing"))
	want(t, r.restart(t, k), Sample(0))
}

func wantFact(t *testing.T, k doubt.Facts, name string, want []byte) {
	t.Helper()
	got, err := k.Fact(t.Context(), name)
	if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Fatalf("fact %s is %q, %v, want %q", name, got, err, want)
	}
}

func facts(t *testing.T, r Rig) {
	k := r.Open(t)
	wantFact(t, k, "redis/a", nil)
	must(t, k.SetFact(t.Context(), "redis/a", []byte("one")))
	must(t, k.SetFact(t.Context(), "redis/b", []byte("\x00two\xff")))
	must(t, k.SetFact(t.Context(), "redis/a", []byte("three")))
	wantFact(t, k, "redis/a", []byte("three"))
	k = r.restart(t, k)
	wantFact(t, k, "redis/a", []byte("three"))
	wantFact(t, k, "redis/b", []byte("\x00two\xff"))
	wantFact(t, k, "redis", nil)
	must(t, k.SetFact(t.Context(), "redit", []byte("other")))
	must(t, k.SetFact(t.Context(), "redis/c", []byte("four")))
	must(t, k.DropFact(t.Context(), "redis/c"))
	for prefix, want := range map[string]string{
		"redis/": `map[redis/a:"three" redis/b:"\x00two\xff"]`, "redit": `map[redit:"other"]`, "s": `map[]`,
	} {
		got, err := k.FactsUnder(t.Context(), prefix)
		must(t, err)
		said := map[string]string{}
		for name, value := range got {
			said[name] = fmt.Sprintf("%q", value)
		}
		if fmt.Sprint(said) != want {
			t.Errorf("under %s: %v, want %s", prefix, said, want)
		}
	}
}

func apart(t *testing.T, r Rig) {
	k := r.Open(t)
	d := Sample(0)
	must(t, k.PutDoubt(t.Context(), d))
	must(t, k.SetFact(t.Context(), d.ID, []byte("a fact of the same name")))
	want(t, k, d)
	must(t, k.DropDoubt(t.Context(), d.ID))
	k = r.restart(t, k)
	want(t, k)
	wantFact(t, k, d.ID, []byte("a fact of the same name"))
}

func tooLarge(t *testing.T, r Rig) {
	k := r.Open(t)
	must(t, k.SetFact(t.Context(), "f", make([]byte, doubt.MaxFact)))
	if err := k.SetFact(t.Context(), "f", make([]byte, doubt.MaxFact+1)); err == nil {
		t.Fatal("a fact beyond the bound was taken")
	}
	wantFact(t, r.restart(t, k), "f", make([]byte, doubt.MaxFact))
}

func many(t *testing.T, r Rig) {
	k := r.Open(t)
	var all []doubt.Doubt
	for i := range 50 {
		all = append(all, Sample(i))
		must(t, k.PutDoubt(t.Context(), Sample(i)))
	}
	want(t, r.restart(t, k), all...)
}

func words(t *testing.T, r Rig) {
	k := r.Open(t)
	d := Sample(0)
	d.Group, d.Subject, d.Message = "cache-eu", "10.0.0.3:6379/0", "„Größe“ <b>&\n\u2028 'x'"
	d.Tables, d.Schemas = []string{"a.b", `sch"ema.ta ble`, "商店.产品"}, []string{"商店", "a.b"}
	must(t, k.PutDoubt(t.Context(), d))
	want(t, r.restart(t, k), d)
}

func ended(t *testing.T, r Rig) {
	k := r.Open(t)
	ctx, cancel := newEnded(t)
	defer cancel()
	if err := k.PutDoubt(ctx, Sample(0)); err == nil {
		t.Fatal("it was put")
	}
	if err := k.DropDoubt(ctx, Sample(0).ID); err == nil {
		t.Fatal("it was dropped")
	}
	want(t, k)
}

func copies(t *testing.T, r Rig) {
	k := r.Open(t)
	must(t, k.PutDoubt(t.Context(), Sample(0)))
	got, err := k.Doubts(t.Context())
	must(t, err)
	got[0].Tables[0], got[0].Message = "x", "y"
	want(t, k, Sample(0))
}
