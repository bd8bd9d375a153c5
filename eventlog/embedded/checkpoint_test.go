package embedded

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
)

// canalCheckpoint is what canal asks of a checkpoint (canal.Checkpoint): this package does not import canal.
type canalCheckpoint interface {
	Position() event.Position
	Begin(p event.Position) error
	Raise(server string, epoch uint32) error
}

var _ canalCheckpoint = (*Checkpoint)(nil)

// diff compares positions by what they print: GTID sets have no exported content.
func diff(want, got event.Position) string {
	print := func(p event.Position) string {
		return fmt.Sprintf("%s %s %d %s:%d %q %s state %q", p.Flavor, p.Server, p.Epoch, p.File, p.Pos, p.GTIDs.String(),
			p.Committed.UTC().Format(time.RFC3339Nano), p.State)
	}
	return cmp.Diff(print(want), print(got))
}

func gtids(t testing.TB, f event.Flavor, text string) event.GTIDSet {
	t.Helper()
	s, err := event.ParseGTIDSet(f, text)
	must(t, err)
	return s
}

// uuid is a source of GTIDs.
const uuid = "6ed9855c-e58f-11f1-8af5-02fc00000001"

// end makes the end of transaction n of a source with GTIDs.
func end(t testing.TB, n uint64) event.End {
	t.Helper()
	u, err := event.ParseUUID(uuid)
	must(t, err)
	var e event.End
	e.AddTx("binlog.000001", 100*n, event.GTID{UUID: u, Number: n}, time.Unix(int64(n), 0))
	return e
}

func TestAPositionIsReadAsItWasWritten(t *testing.T) {
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
		"no gtids":    position(t, 4711),
		"no file":     {Flavor: event.MySQL, GTIDs: gtids(t, event.MySQL, uuid+":1")},
		"empty state": {Flavor: event.MySQL, File: "b.1", Pos: 4, State: []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), Options{})
			must(t, s.Checkpoint().Begin(p))
			if d := diff(p, s.Checkpoint().Position()); d != "" {
				t.Errorf("in memory: %s", d)
			}
			s = reopen(t, s)
			if d := diff(p, s.Checkpoint().Position()); d != "" {
				t.Errorf("on disk: %s", d)
			}
		})
	}
}

func TestTheDurablePositionFollowsTheCurrentOne(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	p := position(t, 4)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1-4")
	must(t, c.Begin(p))
	c.Advance(end(t, 5))
	c.Advance(end(t, 6))
	c.Advance(event.End{}) // no progress
	if got := c.Current(); got.GTIDs.String() != uuid+":1-6" || got.Pos != 600 {
		t.Errorf("the current position is %s at %d", got.String(), got.Pos)
	}
	if got := c.Position(); got.GTIDs.String() != uuid+":1-4" {
		t.Errorf("the durable position is %s before a save", got.String())
	}
	if got := reopen(t, s).Checkpoint().Position(); got.GTIDs.String() != uuid+":1-4" {
		t.Errorf("on disk there is %s before a save", got.String())
	}
}

func TestASaveIsDurable(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 4)))
	before := time.Now()
	e := event.End{File: "binlog.000002", Pos: 7, Committed: time.Unix(9, 0).UTC(), State: []byte("new tables")}
	c.Advance(e)
	must(t, c.Save())
	if c.Saved().Before(before) {
		t.Errorf("saved at %s", c.Saved())
	}
	want := position(t, 7)
	want.File, want.Committed, want.State = "binlog.000002", e.Committed, e.State
	if d := diff(want, reopen(t, s).Checkpoint().Position()); d != "" {
		t.Error(d)
	}
}

func TestNothingIsWrittenWhenNothingHasChanged(t *testing.T) {
	writes := 0
	s := open(t, t.TempDir(), Options{Write: func(_ string, write func() error) error {
		writes++
		return write()
	}})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 4)))
	for range 3 {
		must(t, c.Save())
	}
	if writes != 1 {
		t.Errorf("%d writes, want that of Begin only", writes)
	}
}

func TestAnEndThatComesAgainMovesNothingBack(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	must(t, c.Begin(position(t, 1000)))
	for _, x := range []struct {
		file string
		pos  uint64
		want string
	}{
		{"binlog.000001", 900, "binlog.000001:1000"},
		{"binlog.000002", 4, "binlog.000002:4"},
		{"binlog.000001", 1100, "binlog.000002:4"},
		{"binlog.000010", 4, "binlog.000010:4"}, // numbers, not texts
		{"binlog.000009", 5, "binlog.000010:4"},
		{"binlog.999999", 4, "binlog.999999:4"},
		{"binlog.1000000", 4, "binlog.1000000:4"},
		{"other.000001", 4, "other.000001:4"}, // not to be compared
	} {
		c.Advance(event.End{File: x.file, Pos: x.pos})
		if got := c.Current(); got.String() != x.want {
			t.Errorf("after %s:%d the position is %s, want %s", x.file, x.pos, got.String(), x.want)
		}
	}
}

func TestAPositionBeginsOnce(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	if err := c.Begin(event.Position{}); err == nil {
		t.Error("an empty position is taken")
	}
	must(t, c.Begin(position(t, 4)))
	if err := c.Begin(position(t, 5)); err == nil {
		t.Error("a second first start is taken")
	}
	must(t, c.Set(position(t, 3))) // by hand: back as well
	c = reopen(t, s).Checkpoint()
	if got := c.Position(); got.Pos != 3 {
		t.Errorf("the position is %s", got.String())
	}
	if err := c.Begin(position(t, 5)); err == nil {
		t.Error("a first start is taken although there is a position")
	}
}

func TestANewIdentityKeepsThePosition(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	p := position(t, 4)
	p.State = []byte("tables")
	must(t, c.Begin(p))
	must(t, c.Raise("b", 2))
	if err := c.Raise("c", 1); err == nil {
		t.Error("the epoch falls")
	}
	must(t, c.Raise("b", 2)) // again, as after a lost reply
	p.Server, p.Epoch = "b", 2
	if d := diff(p, reopen(t, s).Checkpoint().Position()); d != "" {
		t.Error(d)
	}
}

func TestEveryTermIsHigher(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for want := uint64(1); want < 4; want++ {
		got, err := s.Checkpoint().NextTerm()
		must(t, err)
		if got != want || s.Checkpoint().Term() != want {
			t.Errorf("term %d, want %d", got, want)
		}
		s = reopen(t, s)
		if got := s.Checkpoint().Term(); got != want {
			t.Errorf("on disk is the term %d, want %d", got, want)
		}
	}
}

func TestTheMappingsHashIsKept(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if h := s.Checkpoint().Mappings(); h != "" {
		t.Errorf("a new store has the hash %q", h)
	}
	must(t, s.Checkpoint().SetMappings("abc"))
	if h := reopen(t, s).Checkpoint().Mappings(); h != "abc" {
		t.Errorf("the hash is %q", h)
	}
}

func TestPositionsHandedOutDoNotChange(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	p := position(t, 4)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1-4")
	must(t, c.Begin(p))
	durable, current := c.Durable(), c.Current()
	for n := range uint64(10) {
		c.Advance(end(t, n+5))
	}
	must(t, c.Save())
	for what, p := range map[string]event.Position{"given": p, "durable": durable, "current": current} {
		if p.GTIDs.String() != uuid+":1-4" {
			t.Errorf("the %s position became %s", what, p.String())
		}
	}
}

func TestThePlaceOfAPositionCanBeSaidByGTIDOrByFile(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.Checkpoint()
	byFile := event.Position{Flavor: event.MySQL, Server: "a", Epoch: 1, File: "binlog.000007", Pos: 157}
	byGTID := byFile
	if byGTID.GTIDs, err = event.ParseGTIDSet(event.MySQL, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []event.Position{byFile, byGTID, byFile} {
		if err := c.Begin(p); err != nil {
			t.Fatal(err)
		}
		if got := c.Position(); got.String() != p.String() {
			t.Fatalf("the position is %s, want %s", got.String(), p.String())
		}
	}
	for _, change := range []func(p *event.Position){
		func(p *event.Position) { p.Pos++ },
		func(p *event.Position) { p.File = "binlog.000008" },
		func(p *event.Position) { p.Server = "b"; p.Pos = 4 },
	} {
		p := byFile
		change(&p)
		if err := c.Begin(p); err == nil {
			t.Errorf("began at %+v although there is a position", p)
		}
	}
}
