package checkpointtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/router/routertest"
)

const xid = "X'676c6f62616c',X'6272616e6368',1"

func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

func last() event.Version {
	return event.Version{Epoch: 1<<32 - 1, File: 1<<32 - 1, Pos: 1<<64 - 1, Row: 1<<32 - 1}
}

func keys(names ...string) (out []checkpoint.Stashed) {
	for _, n := range names {
		out = append(out, checkpoint.Stashed{Key: n, Table: "shop.user", D: time.Second, Action: event.ActionDelete})
	}
	return out
}

func recalled(t testing.TB, c Checkpoint, xid string, v event.Version) (out []checkpoint.Stashed) {
	t.Helper()
	must(t, c.Recall(xid, v, func(keys []checkpoint.Stashed) error {
		out = append(out, keys...)
		return nil
	}))
	return out
}

// holds fails the test unless just these keys are recalled, and counted.
func holds(t testing.TB, c Checkpoint, xid string, v event.Version, want ...string) {
	t.Helper()
	var names []string
	for _, k := range recalled(t, c, xid, v) {
		names = append(names, k.Key)
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s holds %q before %s, want %q", xid, names, v, want)
	}
	prepared, err := c.Prepared()
	must(t, err)
	n := 0
	for _, p := range prepared {
		if p.XID == xid && p.First.Compare(v) < 0 {
			n += p.Keys
		}
	}
	if n != len(want) {
		t.Errorf("%s counts %d keys before %s, want %d", xid, n, v, len(want))
	}
}

// everyAction is one key of each action, with all that it can have.
func everyAction() []checkpoint.Stashed {
	whole := &event.Effect{
		Publish: true, Stream: true, MaxLen: 1000, As: event.FormHash, Query: "0123456789abcdef", TTL: time.Hour + 1, Jitter: 0.25,
		ExpireAt: time.Minute, Missing: true, MissingValue: "\xff", MissingTTL: time.Second, In: time.Millisecond,
	}
	fields := func(all ...string) (f event.Fields) {
		for _, v := range all {
			f = event.AppendField(f, v)
		}
		return f
	}
	var out []checkpoint.Stashed
	for a := event.ActionDelete; a <= event.ActionIncr; a++ {
		for _, s := range []checkpoint.Stashed{
			{Intent: event.IntentPut, Effect: whole, Fields: fields("channel", "", "stream", `{"a":"<b>&"}`, "\x00\xff")},
			{Intent: event.IntentRemove, Effect: whole, Fields: event.AppendNull(fields("x"))},
			{Intent: event.IntentForget, Effect: whole},
			{Intent: event.IntentForget, Effect: &event.Effect{}},
			{RateLimit: 100, Fields: fields(strings.Repeat("\x01", 1000))},
		} {
			s.Key, s.Table, s.Action = a.String(), "shop.user", a
			out = append(out, s)
		}
	}
	return out
}

func order(t *testing.T, s Storage) {
	c := s.Open()
	all := []checkpoint.Stashed{
		{Key: "user:1", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "\x00\xff\x80", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "", Table: "shop.user", Mapping: 1, D: 0, Action: event.ActionDelete},
		{Key: "user:1", Table: "shop.cart", Mapping: 2, D: time.Hour, Action: event.ActionDelete},
		{Key: "ключ", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
	}
	all = append(all, everyAction()...)
	add := c.Stash(xid, at(10))
	must(t, add(nil))
	must(t, add(all[:2]))
	must(t, add(all[2:3]))
	must(t, add(all[3:]))
	for _, when := range []string{"written", "read again"} {
		if d := cmp.Diff(all, recalled(t, c, xid, at(11))); d != "" {
			t.Errorf("%s: %s", when, d)
		}
		prepared, err := c.Prepared()
		must(t, err)
		if len(prepared) != 1 || prepared[0].XID != xid || prepared[0].Keys != len(all) || prepared[0].First != at(10) ||
			prepared[0].Chunks != 3 || time.Since(prepared[0].Since).Abs() > time.Minute {
			t.Errorf("%s: prepared: %+v", when, prepared)
		}
		c = s.Open()
	}
	stop := errors.New("stop")
	if err := c.Recall(xid, at(11), func([]checkpoint.Stashed) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("recall: %v, want the error of the one that takes the keys", err)
	}
}

// routed stashes the invalidations that the router makes from random rows under random mappings.
func routed(t *testing.T, s Storage) {
	c := s.Open()
	pos := uint64(10)
	rapid.Check(t, func(r *rapid.T) {
		pos++
		xid := fmt.Sprintf("X'%x',X'',1", pos)
		add := c.Stash(xid, at(pos))
		var want []checkpoint.Stashed
		for _, b := range routertest.Batches(r) {
			from := len(want)
			for i := range b.Invalidations {
				inv, o := &b.Invalidations[i], b.Of(i)
				want = append(want, checkpoint.Stashed{
					Key: b.Key(i), Table: o.Table, Mapping: o.Mapping, D: o.D, RateLimit: o.RateLimit,
					Action: inv.Action, Intent: inv.Intent, Effect: b.EffectOf(i), Fields: b.Fields(i),
				})
			}
			must(t, add(want[from:]))
		}
		if d := cmp.Diff(want, recalled(t, c, xid, at(pos+1)), cmpopts.EquateEmpty()); d != "" {
			r.Fatal(d)
		}
	})
}

func readAgain(t *testing.T, s Storage) {
	c := s.Open()
	add := c.Stash(xid, at(10))
	for _, k := range []string{"a", "b", "c"} {
		must(t, add(keys(k)))
	}
	for range 2 { // a crash before the checkpoint passed XA PREPARE, and a new connection
		add = c.Stash(xid, at(10))
		holds(t, c, xid, at(11), "a", "b", "c") // beginning alone removes nothing
		must(t, add(keys("a", "b")))
		must(t, add(keys("c")))
		holds(t, c, xid, at(11), "a", "b", "c")
		c = s.Open()
		holds(t, c, xid, at(11), "a", "b", "c")
	}
}

func lostChunk(t *testing.T, s Storage) {
	c := s.Open()
	add := c.Stash(xid, at(10))
	for _, k := range []string{"a", "b", "c"} {
		s.LoseReply()
		repeat(t, func() error { return add(keys(k)) })
	}
	holds(t, c, xid, at(11), "a", "b", "c")
	holds(t, s.Open(), xid, at(11), "a", "b", "c")
}

func passed(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash(xid, at(200))(keys("a")))
	must(t, c.Stash("other", at(210))(keys("b")))
	c.Advance(end(300)) // XA PREPARE
	must(t, c.Save())

	c.Resolve(xid, at(400), end(500))
	c.Advance(end(450))
	must(t, c.Save())
	holds(t, c, xid, at(400), "a")
	// A crash here reads XA COMMIT again: the stash is there, and is resolved again.
	c = s.Open()
	holds(t, c, xid, at(400), "a")
	c.Resolve(xid, at(400), end(500))
	c.Advance(end(500))
	must(t, c.Save())
	for range 2 {
		holds(t, c, xid, at(400))
		holds(t, c, "other", at(400), "b")
		c = s.Open()
	}
}

func usedAgain(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash(xid, at(200))(keys("first")))
	c.Resolve(xid, at(300), end(350))
	must(t, c.Stash(xid, at(400))(keys("second")))
	holds(t, c, xid, at(300), "first")
	c.Advance(end(350))
	must(t, c.Save())
	holds(t, c, xid, at(500), "second")
	c.Resolve(xid, at(500), end(600))
	c.Advance(end(600))
	must(t, c.Save())
	holds(t, c, xid, last())
	holds(t, s.Open(), xid, last())
}

func passedByGTID(t *testing.T, s Storage) {
	c := s.Open()
	p := place(100)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1")
	must(t, c.Begin(p))
	must(t, c.Stash(xid, at(1))(keys("a")))
	resolved := numbered(t, 3)
	c.Resolve(xid, at(300), resolved)
	resolved.GTIDs[0] = numbered(t, 1).GTIDs[0] // its memory is the caller's, who uses it again
	c.Advance(numbered(t, 2))
	// The file of another server, with a much lower number: only the set counts.
	c.Advance(event.End{File: "other.000099", Pos: 9999})
	must(t, c.Save())
	holds(t, c, xid, at(300), "a")
	c.Advance(numbered(t, 3))
	must(t, c.Save())
	holds(t, s.Open(), xid, at(300))
}

func lostDrop(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash(xid, at(200))(keys("a")))
	must(t, c.Stash("other", at(200))(keys("b")))
	c.Resolve(xid, at(300), end(350))
	c.Advance(end(350))
	s.LoseReply()
	repeat(t, c.Save)
	s.LoseReply()
	repeat(t, func() error { return c.DropStash("other") })
	must(t, c.DropStash("other")) // there is none any more
	c = s.Open()
	if p := c.Position(); p.Pos != 350 {
		t.Errorf("the durable position is %s", p.String())
	}
	holds(t, c, xid, last())
	holds(t, c, "other", last())
}

func bounded(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Stash("one", at(1))(keys("a")))
	add := c.Stash("two", at(2))
	must(t, add(keys("b")))
	if err := add(keys("c", "d")); !errors.Is(err, checkpoint.ErrStashFull) {
		t.Fatalf("append: %v, want %v", err, checkpoint.ErrStashFull)
	}
	must(t, add(checkpoint.Unknown([]string{"shop.user", "shop.order"}))) // always fit
	for _, when := range []string{"written", "read again"} {
		want := append(keys("b"), checkpoint.Stashed{Table: "shop.user", Action: event.ActionDelete, Unknown: true},
			checkpoint.Stashed{Table: "shop.order", Action: event.ActionDelete, Unknown: true})
		if d := cmp.Diff(want, recalled(t, c, "two", at(3))); d != "" {
			t.Errorf("%s: %s", when, d)
		}
		c = s.Open()
	}
	must(t, c.Stash("two", at(2))(keys("b", "c"))) // in the place of one
	c = s.Open()
	if err := c.Stash("three", at(3))(keys("d")); !errors.Is(err, checkpoint.ErrStashFull) {
		t.Errorf("in the next life: %v, want %v", err, checkpoint.ErrStashFull)
	}
	must(t, c.DropStash("one"))
	must(t, c.DropStash("none")) // nothing to drop
	must(t, c.Stash("three", at(3))(keys("d")))
	holds(t, c, "two", at(3), "b", "c")
}

func many(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	const chunks, each = 3, 10_000
	var want []string
	add := c.Stash(xid, at(1))
	for range chunks {
		from := len(want)
		for range each {
			want = append(want, fmt.Sprintf("a name for the key of a product that is so long that not all fit into half a mebibyte: %d", len(want)))
		}
		must(t, add(keys(want[from:]...)))
	}
	for range 2 {
		n := 0
		must(t, c.Recall(xid, at(2), func(keys []checkpoint.Stashed) error {
			if len(keys) > each {
				t.Errorf("a chunk of %d keys", len(keys))
			}
			for _, k := range keys {
				if k.Key != want[n] {
					t.Fatalf("key %s, want %s", k.Key, want[n])
				}
				n++
			}
			return nil
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
	var all []checkpoint.Stashed
	for _, value := range []string{
		strings.Repeat("x", 256<<10), strings.Repeat("\x01", 256<<10), strings.Repeat("\xff", 256<<10), strings.Repeat("<", 256<<10), strings.Repeat("y", 3<<20),
	} {
		all = append(all, checkpoint.Stashed{
			Key: fmt.Sprint(len(all)), Table: "shop.user", Action: event.ActionRebuild, Intent: event.IntentPut, Effect: effect,
			Fields: event.AppendField(nil, value),
		})
	}
	must(t, c.Stash(xid, at(1))(all))
	for range 2 {
		got := recalled(t, c, xid, at(2))
		if len(got) != len(all) {
			t.Fatalf("%d keys of %d", len(got), len(all))
		}
		for i, want := range all {
			if i == len(all)-1 && got[i].Intent == event.IntentForget {
				want.Intent, want.Fields = event.IntentForget, nil
			}
			if got[i].Key != want.Key || got[i].Intent != want.Intent || string(got[i].Fields) != string(want.Fields) || got[i].Effect.TTL != want.Effect.TTL {
				t.Errorf("%s: came back as %s with %d bytes", want.Key, got[i].Intent, len(got[i].Fields))
			}
		}
		c = s.Open()
	}
}
