package write

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestNotices(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{Names: Names{Prefix: "p:"}})
	sub := r.client.Subscribe(t.Context(), "changed")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := &event.Effect{Publish: true, Stream: true, MaxLen: 100}
	all := fields("changed", "17", "changes", "the value")
	notices, own, err := Split(e, all)
	if err != nil || string(own) != string(fields("the value")) ||
		string(notices) != string(fields("changed", "17", "changes")) {
		t.Fatalf("%q, %q, %v", notices, own, err)
	}
	calls := r.b.Notices(nil, &Notice{
		Key: "price:17", Action: event.ActionRebuild, Effect: e, Fields: notices, Table: "shop.price", Source: "s",
		Version: at(4),
	})
	send(t.Context(), r.client, calls)
	for _, c := range calls {
		if c.Err != nil {
			t.Errorf("%s: %v", c.Name(), c.Err)
		}
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "17" {
		t.Error(m, err)
	}
	entries := r.client.XRange(t.Context(), "p:changes", "-", "+").Val()
	if have := fmt.Sprint(entries[0].Values); have != "map[action:rebuild key:p:price:17 source:s table:shop.price "+
		"version:1/1/4/1]" {
		t.Error(have)
	}
	for range 1000 {
		send(t.Context(), r.client, calls[1:])
	}
	if n := r.client.XLen(t.Context(), "p:changes").Val(); n > 300 {
		t.Errorf("%d entries", n)
	}
	if _, _, err := Split(e, fields("changed")); err == nil {
		t.Error("too few fields are split")
	}
	if calls := r.b.Notices(nil, &Notice{Effect: e, Fields: event.Fields{200}}); len(calls) != 0 {
		t.Errorf("%d calls of damaged fields", len(calls))
	}
}

func TestLock(t *testing.T) {
	both(t, func(r *rig) {
		ask := func(c *Call) bool {
			r.Helper()
			send(r.Context(), r.client, []*Call{c})
			held, err := Held(c)
			if err != nil {
				r.Error(err)
			}
			return held
		}
		mine, other := r.b.Lock("k", 0), r.b.Lock("k", 0)
		if mine.Name != "freshet:lock:{k}" || mine.Token == other.Token || mine.TTL != 5*time.Second {
			r.Errorf("%+v, %+v", mine, other)
		}
		first, again := ask(r.b.Acquire(mine)), ask(r.b.Acquire(mine))
		if !first || !again || ask(r.b.Acquire(other)) {
			r.Error("a lock is its first taker's, who may take it again")
		}
		if ask(r.b.Renew(other)) || ask(r.b.Release(other)) || r.redis("get", mine.Name) != mine.Token {
			r.Error("only the owner may renew and release")
		}
		r.redis("pexpire", mine.Name, 1000)
		if !ask(r.b.Renew(mine)) || r.client.PTTL(r.Context(), mine.Name).Val() <= time.Second {
			r.Error("not renewed")
		}
		if !ask(r.b.Release(mine)) || ask(r.b.Release(mine)) || ask(r.b.Renew(mine)) {
			r.Error("not released, or twice")
		}
		// Shared with who follows the protocol by hand.
		r.redis("set", other.Name, "theirs", "nx", "px", 5000)
		if ask(r.b.Acquire(mine)) {
			r.Error("somebody else's lock is taken")
		}
	})
}
