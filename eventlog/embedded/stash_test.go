package embedded

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/stash"
)

func names(t testing.TB, s *Store, xid string) (out []string) {
	t.Helper()
	must(t, s.Stash().Recall(xid, at(1000), func(keys []stash.Key) error {
		for _, k := range keys {
			out = append(out, k.Key)
		}
		return nil
	}))
	return out
}

// A store may be older than the program: what its transactions have prepared is there, in this form.
func TestAStashIsReadAsItWasAlwaysWritten(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	must(t, s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket([]byte("xa")).CreateBucket([]byte("X'61',X'',1\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x01"))
		must(t, err)
		for key, body := range map[string]string{
			"\x00\x00\x00\x00": `{"xid":"X'61',X'',1","since":"2026-01-02T03:04:05Z","keys":3,"bytes":180,"chunks":2}`,
			"\x00\x00\x00\x01": `[{"table":"shop.user","mapping":1,"d":"1s","action":"delete","keys":["a",{"base64":"/w=="}]}]`,
			"\x00\x00\x00\x02": `[{"table":"shop.user","mapping":1,"d":"1s","action":"delete","keys":["b"]}]`,
		} {
			must(t, b.Put([]byte(key), seal([]byte(body))))
		}
		return tx.Bucket([]byte("meta")).Put([]byte("usage"),
			seal([]byte(`{"parked":0,"dead":0,"bytes":0,"stash_keys":3,"stash_bytes":180}`)))
	}))
	s = reopen(t, s)
	if d := cmp.Diff([]string{"a", "\xff", "b"}, names(t, s, "X'61',X'',1")); d != "" {
		t.Error(d)
	}
	all := s.Stash().List()
	if len(all) != 1 || all[0].First != at(9) || all[0].Keys != 3 || all[0].Bytes != 180 || len(all[0].Chunks) != 2 ||
		all[0].Since.Year() != 2026 {
		t.Errorf("%+v", all)
	}
}

func TestWhatIsStashedIsWrittenAsAlways(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	must(t, s.Stash().Begin("x", at(9)).Append(stashed("a", "b")))
	must(t, s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("xa")).Bucket([]byte("x\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x01"))
		for key, want := range map[string]string{
			"\x00\x00\x00\x00": `{"xid":"x","since":"`,
			"\x00\x00\x00\x01": `[{"table":"shop.user","mapping":1,`,
		} {
			body, err := unseal(b.Get([]byte(key)))
			if err != nil || !strings.HasPrefix(string(body), want) {
				t.Errorf("%q is %q, %v", key, body, err)
			}
		}
		return nil
	}))
}

// A position may pass the outcome of a transaction while its rows are read once more.
func TestAStashThatIsRemovedWhileItIsWrittenIsEmpty(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 100)))
	must(t, s.Stash().Begin("x", at(200)).Append(stashed("a")))
	s.Stash().Resolve("x", at(300), event.End{File: "binlog.000001", Pos: 350})
	passed := s.Stash().Passed(&checkpoint.Write{Position: event.Position{File: "binlog.000001", Pos: 350}})
	again := s.Stash().Begin("x", at(200))
	must(t, again.Append(stashed("a")))
	must(t, s.db.Update(func(tx *bolt.Tx) error { return dropPrepared(tx, passed) }))
	must(t, again.Append(stashed("b")))
	for range 2 {
		if d := cmp.Diff([]string{"b"}, names(t, s, "x")); d != "" {
			t.Error(d)
		}
		s = reopen(t, s)
	}
}
