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
	"github.com/freshet/freshet/eventlog/stash"
	"github.com/freshet/freshet/router/routertest"
)

const xid = "X'676c6f62616c',X'6272616e6368',1"

func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

func last() event.Version {
	return event.Version{Epoch: 1<<32 - 1, File: 1<<32 - 1, Pos: 1<<64 - 1, Row: 1<<32 - 1}
}

func keys(names ...string) (out []stash.Key) {
	for _, n := range names {
		out = append(out, stash.Key{Key: n, Table: "shop.user", D: time.Second, Action: event.ActionDelete})
	}
	return out
}

func recalled(t testing.TB, c Checkpoint, xid string, v event.Version) (out []stash.Key) {
	t.Helper()
	must(t, c.Stash().Recall(xid, v, func(keys []stash.Key) error {
		out = append(out, keys...)
		return nil
	}))
	return out
}

// holds fails the test unless just these keys are recalled.
func holds(t testing.TB, c Checkpoint, xid string, v event.Version, want ...string) {
	t.Helper()
	var names []string
	for _, k := range recalled(t, c, xid, v) {
		names = append(names, k.Key)
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s holds %q before %s, want %q", xid, names, v, want)
	}
}

// counts fails the test unless so many keys are kept, of all transactions.
func counts(t testing.TB, c Checkpoint, want int) {
	t.Helper()
	n := 0
	for _, p := range c.Stash().List() {
		n += p.Keys
	}
	if n != want {
		t.Errorf("%d keys are kept, want %d", n, want)
	}
}

// resolve commits the transaction xid at a position, and saves a position after it.
func resolve(t testing.TB, c Checkpoint, xid string, pos uint64) {
	t.Helper()
	c.Stash().Resolve(xid, at(pos), end(pos+50))
	c.Advance(end(pos + 50))
	must(t, c.Save())
}

// everyAction is one key of each action, with all that it can have.
func everyAction() []stash.Key {
	whole := &event.Effect{
		Publish: true, Stream: true, MaxLen: 1000, As: event.FormHash, Query: "0123456789abcdef", TTL: time.Hour + 1,
		Jitter:   0.25,
		ExpireAt: time.Minute, Missing: true, MissingValue: "\xff", MissingTTL: time.Second, In: time.Millisecond,
	}
	fields := func(all ...string) (f event.Fields) {
		for _, v := range all {
			f = event.AppendField(f, v)
		}
		return f
	}
	var out []stash.Key
	for a := event.ActionDelete; a <= event.ActionIncr; a++ {
		for _, s := range []stash.Key{
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
	all := []stash.Key{
		{Key: "user:1", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "\x00\xff\x80", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "", Table: "shop.user", Mapping: 1, D: 0, Action: event.ActionDelete},
		{Key: "user:1", Table: "shop.cart", Mapping: 2, D: time.Hour, Action: event.ActionDelete},
		{Key: "ключ", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
	}
	all = append(all, everyAction()...)
	add := c.Stash().Begin(xid, at(10)).Append
	must(t, add(nil))
	must(t, add(all[:2]))
	must(t, add(all[2:3]))
	must(t, add(all[3:]))
	for _, when := range []string{"written", "read again"} {
		if d := cmp.Diff(all, recalled(t, c, xid, at(11))); d != "" {
			t.Errorf("%s: %s", when, d)
		}
		prepared := c.Stash().List()
		if len(prepared) != 1 || prepared[0].XID != xid || prepared[0].Keys != len(all) || prepared[0].First != at(10) ||
			len(prepared[0].Chunks) != 3 || time.Since(prepared[0].Since).Abs() > time.Minute {
			t.Errorf("%s: prepared: %+v", when, prepared)
		}
		c = s.Open()
	}
	stop := errors.New("stop")
	if err := c.Stash().Recall(xid, at(11), func([]stash.Key) error { return stop }); !errors.Is(err, stop) {
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
		add := c.Stash().Begin(xid, at(pos)).Append
		var want []stash.Key
		for _, b := range routertest.Batches(r) {
			from := len(want)
			for i := range b.Invalidations {
				inv, o := &b.Invalidations[i], b.Of(i)
				want = append(want, stash.Key{
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
	add := c.Stash().Begin(xid, at(10)).Append
	for _, k := range []string{"a", "b", "c"} {
		must(t, add(keys(k)))
	}
	for range 2 { // a crash before the checkpoint passed XA PREPARE, and a new connection
		add = c.Stash().Begin(xid, at(10)).Append
		holds(t, c, xid, at(11), "a", "b", "c") // beginning alone removes nothing
		must(t, add(keys("a", "b")))
		must(t, add(keys("c")))
		for range 2 {
			holds(t, c, xid, at(11), "a", "b", "c")
			counts(t, c, 3)
			c = s.Open()
		}
	}
}

func lostChunk(t *testing.T, s Storage) {
	c := s.Open()
	add := c.Stash().Begin(xid, at(10)).Append
	for _, k := range []string{"a", "b", "c"} {
		s.LoseReply()
		repeat(t, func() error { return add(keys(k)) })
	}
	for range 2 {
		holds(t, c, xid, at(11), "a", "b", "c")
		counts(t, c, 3)
		c = s.Open()
	}
}

func passed(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash().Begin(xid, at(200)).Append(keys("a")))
	must(t, c.Stash().Begin("other", at(210)).Append(keys("b")))
	c.Advance(end(300)) // XA PREPARE
	must(t, c.Save())

	c.Stash().Resolve(xid, at(400), end(500))
	c.Advance(end(450))
	must(t, c.Save())
	holds(t, c, xid, at(400), "a")
	// A crash here reads XA COMMIT again: the stash is there, and is resolved again.
	c = s.Open()
	holds(t, c, xid, at(400), "a")
	c.Stash().Resolve(xid, at(400), end(500))
	c.Advance(end(500))
	must(t, c.Save())
	for range 2 {
		holds(t, c, xid, at(400))
		holds(t, c, "other", at(400), "b")
		counts(t, c, 1)
		c = s.Open()
	}
}

// usedAgain: other transactions may have changed the rows of the first since, so its values must not be written again.
func usedAgain(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash().Begin(xid, at(200)).Append(keys("first")))
	c.Stash().Resolve(xid, at(300), end(350))
	holds(t, c, xid, at(500)) // the second has changed no mapped row
	must(t, c.Stash().Begin(xid, at(400)).Append(keys("second")))
	for range 2 { // both outcomes are read again after a crash
		holds(t, c, xid, at(300), "first")
		c.Stash().Resolve(xid, at(300), end(350))
		holds(t, c, xid, at(300), "first") // and over a new connection
		holds(t, c, xid, at(500), "second")
		counts(t, c, 2)
		c = s.Open()
	}
	c.Stash().Resolve(xid, at(300), end(350))
	c.Advance(end(350))
	must(t, c.Save())
	counts(t, c, 1)
	holds(t, c, xid, at(500), "second")
	resolve(t, c, xid, 550)
	for range 2 {
		holds(t, c, xid, last())
		counts(t, c, 0)
		c = s.Open()
	}
}

// resolvedInAnotherEpoch: the same outcome has another version where it is read from another server.
func resolvedInAnotherEpoch(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash().Begin(xid, at(200)).Append(keys("a")))
	c.Stash().Resolve(xid, at(300), end(350))
	again := at(100)
	again.Epoch++
	holds(t, c, xid, again, "a")
	c.Stash().Resolve(xid, again, end(150))
	c.Advance(end(150))
	must(t, c.Save())
	counts(t, c, 0)
}

func passedByGTID(t *testing.T, s Storage) {
	c := s.Open()
	p := place(100)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1")
	must(t, c.Begin(p))
	must(t, c.Stash().Begin(xid, at(1)).Append(keys("a")))
	resolved := numbered(t, 3)
	c.Stash().Resolve(xid, at(300), resolved)
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
	must(t, c.Stash().Begin(xid, at(200)).Append(keys("a")))
	must(t, c.Stash().Begin("other", at(200)).Append(keys("b")))
	c.Stash().Resolve(xid, at(300), end(350))
	c.Advance(end(350))
	s.LoseReply()
	repeat(t, c.Save)
	counts(t, c, 1)
	c = s.Open()
	if p := c.Position(); p.Pos != 350 {
		t.Errorf("the durable position is %s", p.String())
	}
	holds(t, c, xid, last())
	holds(t, c, "other", last(), "b")
}
