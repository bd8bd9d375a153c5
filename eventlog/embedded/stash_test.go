package embedded

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
)

const xid = "X'676c6f62616c',X'6272616e6368',1"

func recalled(t testing.TB, s *Store, xid string, v event.Version) (out []Stashed) {
	t.Helper()
	must(t, s.Recall(xid, v, func(keys []Stashed) error {
		out = append(out, keys...)
		return nil
	}))
	return out
}

func names(keys []Stashed) (out []string) {
	for _, k := range keys {
		out = append(out, k.Key)
	}
	return out
}

// counted fails the test unless the usage is that of the stashes.
func counted(t testing.TB, s *Store) {
	t.Helper()
	prepared, err := s.Prepared()
	must(t, err)
	var keys int
	var bytes int64
	for _, p := range prepared {
		keys += p.Keys
		bytes += p.Bytes
		n := len(recalled(t, s, p.XID, lastVersion()))
		if n < p.Keys {
			t.Errorf("%s counts %d keys and holds %d", p.XID, p.Keys, n)
		}
	}
	u, err := s.Usage()
	must(t, err)
	if u.StashedKeys != keys || u.StashedBytes != bytes {
		t.Errorf("usage is %d keys, %d bytes; the stashes hold %d, %d", u.StashedKeys, u.StashedBytes, keys, bytes)
	}
}

func TestStashedKeysComeBackAsTheyWereAndInTheirOrder(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	all := []Stashed{
		{Key: "user:1", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "\x00\xff\x80", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "", Table: "shop.user", Mapping: 1, D: 0, Action: event.ActionDelete},
		{Key: "user:1", Table: "shop.cart", Mapping: 2, D: time.Hour, Action: event.ActionDelete},
		{Key: "ключ", Table: "shop.user", Mapping: 0, D: 2 * time.Second, Action: event.ActionDelete},
	}
	st := s.Stash(xid, at(10))
	must(t, st.Append(nil))
	must(t, st.Append(all[:2]))
	must(t, st.Append(all[2:3]))
	must(t, st.Append(all[3:]))
	s = reopen(t, s)
	if d := cmp.Diff(all, recalled(t, s, xid, at(11))); d != "" {
		t.Error(d)
	}
	prepared, err := s.Prepared()
	must(t, err)
	if len(prepared) != 1 || prepared[0].XID != xid || prepared[0].Keys != 5 || prepared[0].First != at(10) ||
		prepared[0].Chunks != 3 || time.Since(prepared[0].Since) > time.Minute {
		t.Errorf("prepared: %+v", prepared)
	}
	stop := errors.New("stop")
	if err := s.Recall(xid, at(11), func([]Stashed) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("recall: %v, want the error of the one that takes the keys", err)
	}
	counted(t, s)
}

func TestATransactionThatIsReadAgainIsStashedOnce(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	st := s.Stash(xid, at(10))
	for _, k := range []string{"a", "b", "c"} {
		must(t, st.Append(stashed(k)))
	}
	s = reopen(t, s) // a crash before the checkpoint passed XA PREPARE
	st = s.Stash(xid, at(10))
	if got := names(recalled(t, s, xid, at(11))); len(got) != 3 {
		t.Errorf("beginning alone removed something: %v", got)
	}
	must(t, st.Append(stashed("a", "b")))
	must(t, st.Append(stashed("c")))
	if d := cmp.Diff([]string{"a", "b", "c"}, names(recalled(t, s, xid, at(11)))); d != "" {
		t.Error(d)
	}
	counted(t, s)
}

func TestAChunkWhoseReplyIsLostIsStoredOnce(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, effect := range []bool{true, false} {
			t.Run(fmt.Sprintf("chunk %d, took effect %v", n, effect), func(t *testing.T) {
				var f faults
				s := open(t, t.TempDir(), Options{Write: f.write})
				st := s.Stash(xid, at(10))
				for i, k := range []string{"a", "b", "c"} {
					if i+1 == n {
						if f.before = failing; effect {
							f.before, f.after = nil, failing
						}
						if err := st.Append(stashed(k)); !errors.Is(err, errDisk) {
							t.Fatalf("append: %v", err)
						}
						f.before, f.after = nil, nil
					}
					must(t, st.Append(stashed(k)))
				}
				if d := cmp.Diff([]string{"a", "b", "c"}, names(recalled(t, s, xid, at(11)))); d != "" {
					t.Error(d)
				}
				counted(t, s)
			})
		}
	}
}

// resolve lets the checkpoint pass a transaction of canal's: it commits xid and ends at pos.
func resolve(c *Checkpoint, xid string, v event.Version, pos uint64) event.End {
	e := event.End{File: "binlog.000001", Pos: pos}
	c.Resolve(xid, v, e)
	return e
}

func TestAStashIsKeptUntilTheCheckpointHasPassedItsCommit(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 100)))
	must(t, s.Stash(xid, at(200)).Append(stashed("a")))
	must(t, s.Stash("other", at(210)).Append(stashed("b")))
	c.Advance(event.End{File: "binlog.000001", Pos: 300}) // XA PREPARE
	must(t, c.Save())

	e := resolve(c, xid, at(400), 500)
	c.Advance(event.End{File: "binlog.000001", Pos: 450})
	must(t, c.Save())
	if got := recalled(t, s, xid, at(400)); len(got) != 1 {
		t.Fatalf("before the checkpoint has passed XA COMMIT the stash holds %v", names(got))
	}
	// A crash here reads XA COMMIT again: the stash is there, and is resolved again.
	s = reopen(t, s)
	c = s.Checkpoint()
	if got := recalled(t, s, xid, at(400)); len(got) != 1 {
		t.Fatalf("after a crash the stash holds %v", names(got))
	}
	resolve(c, xid, at(400), 500)
	c.Advance(e)
	must(t, c.Save())
	s = reopen(t, s)
	if got := recalled(t, s, xid, at(400)); len(got) != 0 {
		t.Errorf("behind XA COMMIT the stash holds %v", names(got))
	}
	if got := recalled(t, s, "other", at(400)); len(got) != 1 {
		t.Errorf("the stash of another transaction holds %v", names(got))
	}
	counted(t, s)
}

func TestAnXIDMayBeUsedAgainBeforeItsFirstStashIsDropped(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 100)))
	must(t, s.Stash(xid, at(200)).Append(stashed("first")))
	e1 := resolve(c, xid, at(300), 350)
	must(t, s.Stash(xid, at(400)).Append(stashed("second")))
	if d := cmp.Diff([]string{"first"}, names(recalled(t, s, xid, at(300)))); d != "" {
		t.Errorf("the first commit recalls: %s", d)
	}
	c.Advance(e1)
	must(t, c.Save())
	if d := cmp.Diff([]string{"second"}, names(recalled(t, s, xid, at(500)))); d != "" {
		t.Errorf("behind the first commit: %s", d)
	}
	c.Advance(resolve(c, xid, at(500), 600))
	must(t, c.Save())
	if got := recalled(t, s, xid, lastVersion()); len(got) != 0 {
		t.Errorf("behind the second commit: %v", names(got))
	}
	counted(t, s)
}

func TestWithGTIDsTheSetSaysWhatHasBeenPassed(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	p := position(t, 100)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1")
	must(t, c.Begin(p))
	must(t, s.Stash(xid, at(1)).Append(stashed("a")))
	c.Resolve(xid, at(300), end(t, 3))
	c.Advance(end(t, 2))
	// The file of another server, far behind: only the set counts.
	c.Advance(event.End{File: "other.000099", Pos: 9999, GTIDs: []event.GTIDRange{}})
	must(t, c.Save())
	if got := recalled(t, s, xid, at(300)); len(got) != 1 {
		t.Errorf("the stash holds %v before its commit was passed", names(got))
	}
	c.Advance(end(t, 3))
	must(t, c.Save())
	if got := recalled(t, s, xid, at(300)); len(got) != 0 {
		t.Errorf("the stash holds %v", names(got))
	}
}

func TestADropWhoseReplyIsLostIsRepeated(t *testing.T) {
	var f faults
	s := open(t, t.TempDir(), Options{Write: f.write})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 100)))
	must(t, s.Stash(xid, at(200)).Append(stashed("a")))
	c.Advance(resolve(c, xid, at(300), 350))
	f.after = failing
	if err := c.Save(); !errors.Is(err, errDisk) {
		t.Fatalf("save: %v", err)
	}
	f.after = nil
	must(t, c.Save())
	if p := c.Durable(); p.Pos != 350 {
		t.Errorf("the durable position is %s", p.String())
	}
	counted(t, s)
}

func TestTheStashIsBounded(t *testing.T) {
	for name, o := range map[string]Options{"keys": {MaxStashKeys: 2}, "bytes": {MaxStashBytes: 250}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), o)
			must(t, s.Stash("one", at(1)).Append(stashed("a")))
			st := s.Stash("two", at(2))
			must(t, st.Append(stashed("b")))
			if err := st.Append(stashed("c")); !errors.Is(err, ErrStashFull) {
				t.Fatalf("append: %v, want %v", err, ErrStashFull)
			}
			counted(t, s)
			must(t, s.DropStash("one"))
			must(t, s.DropStash("none")) // nothing to drop
			must(t, st.Append(stashed("c")))
			if d := cmp.Diff([]string{"b", "c"}, names(recalled(t, s, "two", at(3)))); d != "" {
				t.Error(d)
			}
			counted(t, s)
		})
	}
}

func TestManyKeysAreStashedAndRecalledInChunks(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	s.db.NoSync = true
	st := s.Stash(xid, at(1))
	const chunks, each = 50, 2000
	for n := range chunks {
		var keys []string
		for i := range each {
			keys = append(keys, fmt.Sprintf("product:%d", n*each+i))
		}
		must(t, st.Append(stashed(keys...)))
	}
	n := 0
	must(t, s.Recall(xid, at(2), func(keys []Stashed) error {
		if len(keys) != each {
			t.Errorf("a chunk of %d keys", len(keys))
		}
		for _, k := range keys {
			if want := fmt.Sprintf("product:%d", n); k.Key != want {
				t.Fatalf("key %s, want %s", k.Key, want)
			}
			n++
		}
		// Writes go on while keys are taken: nothing is held.
		_, err := s.Checkpoint().NextTerm()
		return err
	}))
	if n != chunks*each {
		t.Errorf("%d keys", n)
	}
	counted(t, s)
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 100)))
	c.Advance(resolve(c, xid, at(2), 200))
	must(t, c.Save())
	u, err := s.Usage()
	if err != nil || u.StashedKeys != 0 || u.StashedBytes != 0 {
		t.Errorf("usage: %+v, %v", u, err)
	}
}
