package checkpointtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
)

func bounded(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Stash().Begin("one", at(1)).Append(keys("a")))
	add := c.Stash().Begin("two", at(2)).Append
	must(t, add(keys("b")))
	if err := add(keys("c", "d")); !errors.Is(err, stash.ErrFull) {
		t.Fatalf("append: %v, want %v", err, stash.ErrFull)
	}
	must(t, add(stash.Unknown([]string{"shop.user", "shop.order"}))) // always fit
	for _, when := range []string{"written", "read again"} {
		want := append(keys("b"), stash.Key{Table: "shop.user", Action: event.ActionDelete, Unknown: true},
			stash.Key{Table: "shop.order", Action: event.ActionDelete, Unknown: true})
		if d := cmp.Diff(want, recalled(t, c, "two", at(3))); d != "" {
			t.Errorf("%s: %s", when, d)
		}
		c = s.Open()
	}
	must(t, c.Stash().Begin("two", at(2)).Append(keys("b", "c"))) // in the place of one
	c = s.Open()
	if err := c.Stash().Begin("three", at(3)).Append(keys("d")); !errors.Is(err, stash.ErrFull) {
		t.Errorf("in the next life: %v, want %v", err, stash.ErrFull)
	}
	must(t, c.Begin(place(4)))
	resolve(t, c, "one", 10)
	must(t, c.Stash().Begin("three", at(3)).Append(keys("d")))
	holds(t, c, "two", at(3), "b", "c")
	counts(t, c, 3)
}

func boundedInBytes(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(4)))
	must(t, c.Stash().Begin("one", at(1)).Append(keys("a")))
	two, n := c.Stash().Begin("two", at(2)), 0
	for ; n < 100; n++ {
		if err := two.Append(keys("b")); err != nil {
			if !errors.Is(err, stash.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 2 || n == 100 {
		t.Errorf("%d chunks fit", n)
	}
	counts(t, c, n+1)
	resolve(t, c, "one", 10)
	must(t, two.Append(keys("b")))
	counts(t, s.Open(), n+1)
}

func many(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	const chunks, each = 3, 10_000
	var want []string
	add := c.Stash().Begin(xid, at(1)).Append
	for range chunks {
		from := len(want)
		for range each {
			want = append(want, fmt.Sprintf("a name for the key of a product that is so long that not all fit into half a "+
				"mebibyte: %d", len(want)))
		}
		must(t, add(keys(want[from:]...)))
	}
	for range 2 {
		n := 0
		must(t, c.Stash().Recall(xid, at(2), func(keys []stash.Key) error {
			if len(keys) > each {
				t.Errorf("a chunk of %d keys", len(keys))
			}
			for _, k := range keys {
				if k.Key != want[n] {
					t.Fatalf("key %s, want %s", k.Key, want[n])
				}
				n++
			}
			// Writes go on while keys are taken: nothing is held.
			c.Advance(end(uint64(100 + n)))
			return c.Save()
		}))
		if n != len(want) {
			t.Errorf("%d keys", n)
		}
		c = s.Open()
	}
}

// large: what a value may have comes back; what is larger than any record comes back as what forgets, and holds up
// nothing.
func large(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	effect := &event.Effect{TTL: time.Hour}
	var all []stash.Key
	for _, value := range []string{
		strings.Repeat("x", 256<<10), strings.Repeat("\x01", 256<<10), strings.Repeat("\xff", 256<<10),
		strings.Repeat("<", 256<<10), strings.Repeat("y", 3<<20),
	} {
		all = append(all, stash.Key{
			Key: fmt.Sprint(len(all)), Table: "shop.user", Action: event.ActionRebuild, Intent: event.IntentPut, Effect: effect,
			Fields: event.AppendField(nil, value),
		})
	}
	must(t, c.Stash().Begin(xid, at(1)).Append(all))
	for range 2 {
		got := recalled(t, c, xid, at(2))
		if len(got) != len(all) {
			t.Fatalf("%d keys of %d", len(got), len(all))
		}
		for i, want := range all {
			if i == len(all)-1 && got[i].Intent == event.IntentForget {
				want.Intent, want.Fields = event.IntentForget, nil
			}
			if got[i].Key != want.Key || got[i].Intent != want.Intent || string(got[i].Fields) != string(want.Fields) ||
				got[i].Effect.TTL != want.Effect.TTL {
				t.Errorf("%s: came back as %s with %d bytes", want.Key, got[i].Intent, len(got[i].Fields))
			}
		}
		c = s.Open()
	}
}
