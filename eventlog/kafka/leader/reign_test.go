package leader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/stash"
)

func to(pos uint64) event.End { return event.End{File: "binlog.000001", Pos: pos} }

func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

func stashed(names ...string) (out []stash.Key) {
	for _, n := range names {
		out = append(out, stash.Key{Key: n, Table: "shop.user", Action: event.ActionDelete})
	}
	return out
}

func (r *rig) recalled(c *Checkpoint, xid string) (out []string) {
	r.t.Helper()
	must(r.t, c.Stash().Recall(xid, at(1<<60), func(keys []stash.Key) error {
		for _, k := range keys {
			out = append(out, k.Key)
		}
		return nil
	}))
	return out
}

func (r *rig) snapshot() *snapshot {
	r.t.Helper()
	s, err := r.read(r.t.Context())
	must(r.t, err)
	return s
}

// keys returns the keys that the topic holds, with short names for their writers.
func (r *rig) keys() (out []string) {
	r.t.Helper()
	for key := range r.snapshot().live {
		kind, o, _ := parseKey(key)
		rest := strings.TrimPrefix(key, o.key(kind))
		out = append(out, fmt.Sprintf("%s/%d%s", kind, o.term, rest))
	}
	slices.Sort(out)
	return out
}

func (r *rig) produce(key string, value []byte) int64 {
	r.t.Helper()
	offset, err := r.client.Produce(r.t.Context(), r.name(), 0, broker.Record{Key: []byte(key), Value: value})
	must(r.t, err)
	return offset
}

func TestALateSaveOfAnOldLeaderIsNotReadAgain(t *testing.T) {
	r := newRig(t)
	old := r.open()
	must(t, old.Begin(place(4)))
	old.Advance(event.End{File: "binlog.000001", Pos: 5, State: []byte("old")})
	must(t, old.Save())
	cp := r.open()
	old.Advance(event.End{File: "binlog.000001", Pos: 100, State: []byte("late")})
	if err := old.Save(); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old leader saves: %v", err)
	}
	if p := old.Durable(); p.Pos != 5 {
		t.Errorf("the old leader takes %s for durable", p.String())
	}
	if p := r.open().Position(); p.Pos != 5 || string(p.State) != "old" {
		t.Errorf("after a term in which nothing was saved, the position is %s with state %q", p.String(), p.State)
	}
	if err := cp.Save(); err != nil { // nothing has changed
		t.Error(err)
	}
	cp.Advance(to(6))
	if err := cp.Save(); !errors.Is(err, ErrDeposed) {
		t.Errorf("the second leader saves: %v", err)
	}
}

func TestAnOldLeaderRemovesNothingThatItsSuccessorNeeds(t *testing.T) {
	r := newRig(t)
	old := r.open()
	must(t, old.Begin(place(4)))
	must(t, old.Stash().Begin("x", at(5)).Append(stashed("a", "b")))
	old.Advance(to(10)) // XA PREPARE
	must(t, old.Save())
	old.Stash().Resolve("x", at(15), to(20))
	cp := r.open()
	old.Advance(to(20))
	if err := old.Save(); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old leader saves: %v", err)
	}
	if err := old.Stash().Begin("y", at(30)).Append(stashed("c")); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old leader stashes: %v", err)
	}
	for _, c := range []*Checkpoint{cp, r.open()} {
		if got := r.recalled(c, "x"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the successor recalls %q", got)
		}
	}
}

func TestAStashLivesAcrossLeaders(t *testing.T) {
	r := newRig(t)
	one := r.open()
	must(t, one.Begin(place(4)))
	must(t, one.Stash().Begin("x", at(5)).Append(stashed("a")))
	must(t, one.Stash().Begin("y", at(6)).Append(stashed("partly"))) // stopped before its XA PREPARE
	one.Advance(to(10))
	must(t, one.Save())

	two := r.open()
	st := two.Stash().Begin("y", at(6)) // read again
	must(t, st.Append(stashed("b")))
	must(t, st.Append(stashed("c")))
	if got := r.recalled(two, "y"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("read again it holds %q", got)
	}
	two.Advance(to(20))
	must(t, two.Save())

	three := r.open()
	for xid, want := range map[string][]string{"x": {"a"}, "y": {"b", "c"}} {
		if got := r.recalled(three, xid); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", xid, got, want)
		}
	}
	three.Stash().Resolve("x", at(25), to(30))
	three.Stash().Resolve("y", at(35), to(40))
	three.Advance(to(40))
	must(t, three.Save())
	if got := r.keys(); len(got) != 2 || got[0] != "position/3/0" || got[1] != "position/3/1" {
		t.Errorf("the topic holds %q", got)
	}
}

// A leader that is killed between the two writes of a save leaves the keys of a transaction that is over. The next one
// with its XID must not bring them back, however many leaders come before anything is saved again.
func TestATransactionThatIsOverIsNotRecalledThoughItsKeysAreLeft(t *testing.T) {
	r := newRig(t)
	one := r.open()
	must(t, one.Begin(place(4)))
	must(t, one.Stash().Begin("x", at(5)).Append(stashed("a")))
	must(t, one.Stash().Begin("y", at(6)).Append(stashed("b")))
	one.Stash().Resolve("x", at(15), to(20))
	position := place(20)
	write := checkpoint.Write{Position: position}
	must(t, one.reign.save(write, one.Stash().Passed(&write)))
	for range 2 {
		next := r.open()
		if got := r.recalled(next, "x"); got != nil {
			t.Errorf("the transaction that is over holds %q", got)
		}
		if got := r.recalled(next, "y"); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the open one holds %q", got)
		}
	}
	last := r.open()
	for _, upTo := range []uint64{30, 40} {
		last.Advance(to(upTo))
		must(t, last.Save())
	}
	for _, key := range r.keys() {
		if strings.HasPrefix(key, "xa/1") && !strings.Contains(key, "/2/") {
			t.Errorf("%s is left", key)
		}
	}
	if p, err := r.snapshot().newest(); err != nil || len(p.Gone) > 0 {
		t.Errorf("%v are still named, %v", p.Gone, err)
	}
}

func TestALeaderTidiesUpAfterItsPredecessorsOnceItHasSaved(t *testing.T) {
	r := newRig(t)
	for n := range uint64(3) { // each dies after its first State
		cp := r.open()
		must(t, cp.Set(event.Position{File: "b.1", Pos: 4 + n, State: fmt.Appendf(nil, "state %d", n)}))
		r.open() // and one dies before its first save
	}
	last := r.open()
	if p := last.Position(); p.Pos != 6 || string(p.State) != "state 2" {
		t.Errorf("the position is %s with state %q", p.String(), p.State)
	}
	last.Advance(event.End{File: "b.1", Pos: 50})
	must(t, last.Save())
	if d := cmp.Diff([]string{"position/7/0", "position/7/1", "state/5/1/1"}, r.keys()); d != "" {
		t.Errorf("the topic holds: %s", d)
	}
	last.Advance(event.End{File: "b.1", Pos: 51, State: []byte("new")})
	must(t, last.Save())
	if d := cmp.Diff([]string{"position/7/0", "position/7/1", "position/7/2", "state/7/1/1"}, r.keys()); d != "" {
		t.Errorf("the topic holds: %s", d)
	}
}

func TestWhatAnOldLeaderLeavesLateIsRemoved(t *testing.T) {
	r := newRig(t)
	old := r.open()
	must(t, old.Begin(place(4)))
	must(t, old.Stash().Begin("x", at(5)).Append(stashed("a")))
	old.Advance(to(10))
	must(t, old.Save())
	cp := r.open()
	o := old.reign
	value := func(key string) []byte {
		value, err := o.fetch(t.Context(), key, 0)
		must(t, err)
		return value
	}
	inUse := o.key(kindXA, 1, 1)
	r.produce(inUse, value(inUse)) // the request of a chunk that was written twice
	r.produce(o.key(kindXA, 9, 1), value(inUse))
	r.produce(o.key(kindState, 9, 1), []byte(`{"format":1,"text":"late"}`))
	r.produce("something/else", []byte("of a newer version"))
	must(t, cp.reign.watch(t.Context()))
	cp.Advance(to(11))
	must(t, cp.Save())
	if d := cmp.Diff([]string{"position/2/0", "position/2/1", "xa/1/1/1"}, r.keys()); d != "" {
		t.Errorf("the topic holds: %s", d)
	}
	if got := r.recalled(cp, "x"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("x holds %q", got)
	}
}

func TestChainHeadsAreSavedWithThePosition(t *testing.T) {
	r := newRig(t)
	cp := r.open()
	if h := cp.Heads(); len(h) != 0 {
		t.Errorf("heads of a first start: %v", h)
	}
	heads := map[int]event.Version{0: at(10), 3: at(30)}
	cp.FollowHeads(func() map[int]event.Version { return heads })
	must(t, cp.Begin(place(4)))
	heads = map[int]event.Version{0: at(11), 3: at(29)}
	cp.Advance(to(5))
	must(t, cp.Save())
	cp = r.open()
	want := map[int]event.Version{0: at(11), 3: at(30)}
	if d := cmp.Diff(want, cp.Heads()); d != "" {
		t.Error(d)
	}
	cp.Advance(to(6)) // a leader that has produced nothing yet
	must(t, cp.Save())
	if d := cmp.Diff(want, r.open().Heads()); d != "" {
		t.Error(d)
	}
}

func TestADamagedOrNewerCheckpointIsNeverPassedOver(t *testing.T) {
	for name, x := range map[string]struct {
		value string
		newer bool
	}{
		"not json":       {value: "{"},
		"without format": {value: `{"source":"shop","term":9}`},
		"another source": {value: `{"format":1,"source":"other","term":9}`},
		"newer":          {value: `{"format":2,"source":"shop","term":9}`, newer: true},
		"gtids":          {value: `{"format":1,"source":"shop","term":9,"writer":"w","seq":1,"flavor":"mysql","gtids":"?"}`},
		"state": {value: `{"format":1,"source":"shop","term":9,"writer":"w","seq":1,"file":"b.1","pos":4,` +
			`"state":{"name":"state/9/w/1","chunks":1,"bytes":3}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			must(t, r.open().Begin(place(4)))
			r.produce("position/9/w/1", []byte(x.value))
			_, err := r.take(t.Context())
			if err == nil { // found only when it is loaded
				_, err = r.tryOpen(Options{})
			}
			var lost *LostError
			if x.newer != errors.Is(err, ErrNewer) || x.newer == errors.As(err, &lost) {
				t.Errorf("take: %v", err)
			}
			if x.newer {
				return
			}
			v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
			if err != nil || v.Lost == nil {
				t.Errorf("view: %+v, %v", v, err)
			}
			must(t, SetPosition(t.Context(), r.client, r.names, r.source, place(7)))
			if cp := r.open(); cp.Position().Pos != 7 || cp.Term() <= 9 {
				t.Errorf("term %d, position %d", cp.Term(), cp.Position().Pos)
			}
		})
	}
}

func TestATopicThatIsMadeAnewEndsTheReign(t *testing.T) {
	r := newRig(t)
	cp := r.open()
	must(t, cp.Begin(place(4)))
	r.cluster.DeleteTopic(t, r.name())
	r.cluster.Topic(t, r.name(), 1, "cleanup.policy=compact")
	cp.Advance(to(5))
	err := cp.Save()
	for transient(err) {
		err = cp.Save()
	}
	if !errors.Is(err, errRecreated) {
		t.Errorf("save: %v", err)
	}
}

func TestWhatIsWrittenIsReadable(t *testing.T) {
	r := newRig(t)
	cp := r.open()
	p := place(4)
	p.GTIDs, _ = event.ParseGTIDSet(event.MySQL, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
	p.State = []byte(`{"tables":["shop.user"]}`)
	must(t, cp.Begin(p))
	must(t, cp.SetMappings("4711"))
	must(t, cp.Stash().Begin("X'61'", at(5)).Append(stashed("user:1", "user:2", "\xff")))
	var all []string
	_, err := r.client.ReadAll(t.Context(), r.name(), 0, func(rec broker.Record) error {
		all = append(all, string(rec.Value))
		return nil
	})
	must(t, err)
	text := strings.Join(all, "\n")
	for _, want := range []string{
		`"claim":true`, `"server":"a","epoch":1,"file":"binlog.000001","pos":4,"gtids":"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"`,
		`"mappings":"4711"`, `{"format":1,"text":"{\"tables\":[\"shop.user\"]}"}`, `"xid":"X'61'"`, `"first":"1/1/5/1"`,
		`"keys":["user:1","user:2",{"base64":"/w=="}]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

func TestAStateIsSplitIntoRecordsThatTheTopicTakes(t *testing.T) {
	r := newRig(t, "max.message.bytes=10000")
	cp := r.open()
	p := place(4)
	p.State = []byte(strings.Repeat("a table and its columns ", 20_000))
	must(t, cp.Begin(p))
	if got := r.open().Position(); !slices.Equal(got.State, p.State) {
		t.Errorf("%d bytes are %d", len(p.State), len(got.State))
	}
}
