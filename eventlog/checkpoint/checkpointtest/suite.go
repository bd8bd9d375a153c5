package checkpointtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
)

// Checkpoint is what is tested: the checkpoint of one life, as its users see it.
type Checkpoint interface {
	Position() event.Position
	Current() event.Position
	Begin(p event.Position) error
	Set(p event.Position) error
	Move(p event.Position) error
	Finished() event.Version
	Raise(server string, epoch uint32) error
	Advance(e event.End)
	Save() error
	Mappings() string
	SetMappings(hash string) error
	// Term is that of this life.
	Term() uint64
	Stash() *stash.Stash
}

// Storage is one place that a checkpoint is kept in, empty at first.
type Storage interface {
	// Open begins a new life on what the last one has left, as after a crash.
	Open() Checkpoint
	// LoseReply lets the next write take effect and fail all the same.
	LoseReply()
}

// Options say which storage is wanted.
type Options struct {
	// MaxStashKeys and MaxStashBytes bound its stash; 0: the default.
	MaxStashKeys  int
	MaxStashBytes int64
}

// Run runs the suite. make makes a storage that lives as long as the test.
func Run(t *testing.T, make func(t *testing.T, o Options) Storage) {
	for name, test := range map[string]func(t *testing.T, s Storage){
		"a position is read as it was written":             positions,
		"only what was saved is durable":                   durable,
		"a position begins once":                           begins,
		"a new identity keeps the position":                identity,
		"a position moves over a gap":                      moves,
		"a move whose reply is lost is repeated":           lostMove,
		"the mappings' hash stays next to the position":    mappings,
		"every life has a higher term":                     terms,
		"a state is replaced and removed":                  states,
		"a save whose reply is lost is repeated":           lostSave,
		"keys come back as they were and in their order":   order,
		"a transaction that is read again is stashed once": readAgain,
		"a chunk whose reply is lost is stored once":       lostChunk,
		"a stash is kept until its commit was passed":      passed,
		"an xid may be used again":                         usedAgain,
		"an outcome may be read again in another epoch":    resolvedInAnotherEpoch,
		"with gtids the set says what was passed":          passedByGTID,
		"a drop whose reply is lost is repeated":           lostDrop,
		"many keys are stashed and recalled in chunks":     many,
		"large values are stashed whole, or forgotten":     large,
	} {
		t.Run(name, func(t *testing.T) { test(t, make(t, Options{})) })
	}
	t.Run("what the router makes comes back", func(t *testing.T) { routed(t, make(t, Options{})) })
	t.Run("the stash is bounded in keys", func(t *testing.T) { bounded(t, make(t, Options{MaxStashKeys: 3})) })
	t.Run("the stash is bounded in bytes", func(t *testing.T) { boundedInBytes(t, make(t, Options{MaxStashBytes: 2000})) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// repeat calls a write until it succeeds.
func repeat(t testing.TB, write func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = write(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

const uuid = "6ed9855c-e58f-11f1-8af5-02fc00000001"

func gtids(t testing.TB, f event.Flavor, text string) event.GTIDSet {
	t.Helper()
	s, err := event.ParseGTIDSet(f, text)
	must(t, err)
	return s
}

func place(pos uint64) event.Position {
	return event.Position{Flavor: event.MySQL, Server: "a", Epoch: 1, File: "binlog.000001", Pos: pos}
}

func end(pos uint64) event.End { return event.End{File: "binlog.000001", Pos: pos} }

// numbered is the end of transaction n of a source with GTIDs.
func numbered(t testing.TB, n uint64) event.End {
	t.Helper()
	u, err := event.ParseUUID(uuid)
	must(t, err)
	var e event.End
	e.AddTx("binlog.000001", 100*n, event.GTID{UUID: u, Number: n}, time.Unix(int64(n), 0))
	return e
}

// same fails the test unless two positions are the same.
func same(t testing.TB, what string, want, got event.Position) {
	t.Helper()
	print := func(p event.Position) string {
		return fmt.Sprintf("%s %s %d %s:%d %q %s state %v %q", p.Flavor, p.Server, p.Epoch, p.File, p.Pos, p.GTIDs.String(),
			p.Committed.UTC().Format(time.RFC3339Nano), p.State != nil, p.State)
	}
	if d := cmp.Diff(print(want), print(got)); d != "" {
		t.Errorf("%s: %.2000s", what, d)
	}
}

func positions(t *testing.T, s Storage) {
	c := s.Open()
	if p := c.Position(); !p.IsZero() {
		t.Fatalf("an empty storage has the position %s", p.String())
	}
	for name, p := range map[string]event.Position{
		"mysql": {
			Flavor: event.MySQL, Server: uuid, Epoch: 3, File: "binlog.000112", Pos: 1 << 40,
			GTIDs:     gtids(t, event.MySQL, uuid+":1-5:7-9,"+uuid+":blue:1-3"),
			Committed: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), State: []byte("\x00\xff tables"),
		},
		"mariadb": {
			Flavor: event.MariaDB, Server: "x/1", Epoch: 1, File: "mariadb-bin.000001", Pos: 4,
			GTIDs: gtids(t, event.MariaDB, "0-1-100,7-2-3"),
		},
		"no gtids":    place(4711),
		"no file":     {Flavor: event.MySQL, GTIDs: gtids(t, event.MySQL, uuid+":1")},
		"empty state": {Flavor: event.MySQL, File: "b.1", Pos: 4, State: []byte{}},
		"large state": {Flavor: event.MySQL, File: "b.1", Pos: 5, State: []byte(strings.Repeat("таблица \"x\"\n", 30_000))},
		"state not utf": {
			Flavor: event.MySQL, File: "b.1", Pos: 6,
			State: []byte(strings.Repeat("\xf0\x9f\xff\x00", 50_000)),
		},
	} {
		must(t, c.Set(p))
		same(t, name+", in memory", p, c.Position())
		c = s.Open()
		same(t, name+", read again", p, c.Position())
		same(t, name+", current", p, c.Current())
	}
}

func durable(t *testing.T, s Storage) {
	c := s.Open()
	p := place(4)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1-4")
	must(t, c.Begin(p))
	c.Advance(numbered(t, 5))
	must(t, c.Save())
	c.Advance(numbered(t, 6))
	if got := c.Current(); got.GTIDs.String() != uuid+":1-6" || got.Pos != 600 {
		t.Errorf("the current position is %s at %d", got.String(), got.Pos)
	}
	for _, when := range []string{"in memory", "after a crash"} {
		if got := c.Position(); got.GTIDs.String() != uuid+":1-5" || got.Pos != 500 {
			t.Errorf("the durable position %s is %s at %d", when, got.String(), got.Pos)
		}
		c = s.Open()
	}
}

func begins(t *testing.T, s Storage) {
	c := s.Open()
	if err := c.Begin(event.Position{}); err == nil {
		t.Error("an empty position is taken")
	}
	must(t, c.Begin(place(4)))
	if err := c.Begin(place(5)); err == nil {
		t.Error("a second first start is taken")
	}
	must(t, c.Set(place(3))) // by hand: back as well
	c = s.Open()
	if got := c.Position(); got.Pos != 3 {
		t.Errorf("the position is %s", got.String())
	}
	if err := c.Begin(place(5)); err == nil {
		t.Error("a first start is taken although there is a position")
	}
	byGTID := place(3) // the same place in other words
	byGTID.GTIDs = gtids(t, event.MySQL, uuid+":1")
	must(t, c.Begin(byGTID))
	same(t, "by gtid", byGTID, s.Open().Position())
}

func identity(t *testing.T, s Storage) {
	c := s.Open()
	p := place(4)
	p.State = []byte("tables")
	must(t, c.Begin(p))
	must(t, c.Raise("b", 2))
	if err := c.Raise("c", 1); err == nil {
		t.Error("the epoch falls")
	}
	must(t, c.Raise("b", 2)) // again, as after a lost reply
	p.Server, p.Epoch = "b", 2
	same(t, "raised", p, s.Open().Position())
}

func mappings(t *testing.T, s Storage) {
	c := s.Open()
	if h := c.Mappings(); h != "" {
		t.Errorf("a new storage has the hash %q", h)
	}
	must(t, c.SetMappings("abc"))
	c = s.Open()
	if p := c.Position(); c.Mappings() != "abc" || !p.IsZero() {
		t.Errorf("before a position: the hash is %q, the position %s", c.Mappings(), p.String())
	}
	must(t, c.Begin(place(4)))
	must(t, c.SetMappings("def"))
	c.Advance(end(5))
	must(t, c.Save())
	c = s.Open()
	if p := c.Position(); c.Mappings() != "def" || p.Pos != 5 {
		t.Errorf("the hash is %q, the position %s", c.Mappings(), p.String())
	}
}

func terms(t *testing.T, s Storage) {
	last := uint64(0)
	for range 4 {
		c := s.Open()
		if c.Term() <= last {
			t.Errorf("term %d after %d", c.Term(), last)
		}
		last = c.Term()
		must(t, c.Set(place(4)))
	}
}

func states(t *testing.T, s Storage) {
	c := s.Open()
	p := place(4)
	must(t, c.Begin(p))
	for n, state := range []string{"one", strings.Repeat("two ", 60_000), "three"} {
		e := end(uint64(10*n + 5))
		e.State = []byte(state)
		c.Advance(e)
		must(t, c.Save())
		c.Advance(end(uint64(10*n + 6))) // the state stays
		must(t, c.Save())
		p.Pos, p.State = uint64(10*n+6), []byte(state)
		c = s.Open()
		same(t, "state "+fmt.Sprint(n), p, c.Position())
	}
	p.State = nil
	must(t, c.Set(p))
	same(t, "without a state", p, s.Open().Position())
}

func lostSave(t *testing.T, s Storage) {
	c := s.Open()
	s.LoseReply()
	repeat(t, func() error { return c.Begin(place(4)) })
	for n := uint64(5); n < 10; n++ {
		e := end(n)
		e.State = fmt.Appendf(nil, "state %d", n)
		c.Advance(e)
		s.LoseReply()
		repeat(t, c.Save)
		if p := c.Position(); p.Pos != n {
			t.Errorf("the durable position is %s", p.String())
		}
	}
	s.LoseReply()
	repeat(t, func() error { return c.Raise("b", 2) })
	s.LoseReply()
	repeat(t, func() error { return c.SetMappings("abc") })
	p := place(9)
	p.Server, p.Epoch, p.State = "b", 2, []byte("state 9")
	c = s.Open()
	same(t, "after a crash", p, c.Position())
	if c.Mappings() != "abc" {
		t.Errorf("the hash is %q", c.Mappings())
	}
}
