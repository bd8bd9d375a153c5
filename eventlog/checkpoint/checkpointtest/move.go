package checkpointtest

import (
	"testing"

	"github.com/freshet/freshet/event"
)

// beyond is a place after a gap: the binlog has begun again, and its GTIDs too.
func beyond(t testing.TB) event.Position {
	t.Helper()
	return event.Position{
		Flavor: event.MySQL, Server: "a", Epoch: 2, File: "binlog.000001", Pos: 4, GTIDs: gtids(t, event.MySQL, uuid+":1"),
		State: []byte("new"),
	}
}

// moves: what was in hand before a gap is finished later, and adds nothing to the position.
func moves(t *testing.T, s Storage) {
	c := s.Open()
	p := place(100)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1-5")
	must(t, c.Begin(p))
	must(t, c.Stash().Begin(xid, at(50)).Append(keys("a")))
	must(t, c.Stash().Begin("resolved", at(60)).Append(keys("b")))
	c.Stash().Resolve("resolved", at(300), numbered(t, 9))
	to := beyond(t)
	must(t, c.Move(to))
	same(t, "moved", to, c.Position())
	counts(t, c, 0)

	late := numbered(t, 7)
	late.Epoch, late.State = 1, []byte("old")
	c.Advance(late)
	must(t, c.Save())
	same(t, "after what was in hand", to, c.Current())
	if v := c.Finished(); !v.IsZero() {
		t.Errorf("all is finished up to %s, though something may be in hand", v)
	}
	here := event.End{Epoch: 2, File: to.File, Pos: to.Pos, Moved: true}
	var sum event.End
	sum.Add(late) // they may come as one
	sum.Add(here)
	c.Advance(sum)
	if v, want := c.Finished(), (event.Version{Epoch: 2, File: 1, Pos: 4}); v != want {
		t.Errorf("all is finished up to %s, want %s", v, want)
	}
	must(t, c.Save())
	same(t, "once that is finished", to, c.Current())
	must(t, c.Stash().Begin(xid, event.Version{Epoch: 2, File: 1, Pos: 50}).Append(keys("c")))
	must(t, c.Save())
	c = s.Open()
	holds(t, c, xid, last(), "c")
	same(t, "read again", to, c.Position())
	if v := c.Finished(); v.IsZero() {
		t.Error("after a restart nothing is in hand")
	}
	to.Epoch = 1
	if err := c.Move(to); err == nil {
		t.Error("the epoch falls")
	}
	if err := c.Move(event.Position{Epoch: 3}); err == nil {
		t.Error("it moves nowhere")
	}
}

func lostMove(t *testing.T, s Storage) {
	c := s.Open()
	must(t, c.Begin(place(100)))
	must(t, c.Stash().Begin(xid, at(50)).Append(keys("a")))
	s.LoseReply()
	repeat(t, func() error { return c.Move(beyond(t)) })
	counts(t, c, 0)
	c = s.Open()
	same(t, "after a crash", beyond(t), c.Position())
	holds(t, c, xid, last())
}
