package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

// live is an engine on a real Redis behind a proxy that writes down what is done.
type live struct {
	*testing.T
	server *testbed.RedisServer
	proxy  *proxy.RESP
	engine *Engine
	log    *fakeLog
	store  *memStore
	alarms *alarms
	served chan error
	pos    uint64
	// fetched is how many batches do has handed over.
	fetched int
}

// liveD is short, since it passes in real time.
const liveD = 200 * time.Millisecond

func newLive(t *testing.T, user, password string) *live {
	t.Helper()
	l := &live{
		T: t, server: testbed.Redis(t), log: newFakeLog(), store: &memStore{}, alarms: &alarms{}, served: make(chan error, 1),
		pos: 4,
	}
	l.proxy = proxy.StartRESP(t, l.server.Addr)
	if user != "" {
		l.server.Do(t, "acl", "setuser", user, "on", ">"+password, "~ok:*", "+@all")
	}
	s := single(t, SingleOptions{Address: l.proxy.Addr(), Username: user, Password: credential.Text(password)})
	l.engine = start(t, Deps{
		Redis: s, Store: l.store, Alarms: l.alarms, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, Options{ShortestD: liveD, Retry: retry.Policy{ParkDelays: []time.Duration{liveD}}})
	caughtUp(l.engine)
	ctx, stop := context.WithCancel(context.Background())
	go func() { l.served <- l.engine.Serve(ctx, l.log) }()
	t.Cleanup(func() {
		stop()
		if err := <-l.served; err != nil {
			t.Error(err)
		}
	})
	return l
}

// change caches the keys and has them invalidated.
func (l *live) change(keys ...string) {
	l.Helper()
	for _, k := range keys {
		l.server.Do(l, "set", k, "old")
	}
	l.pos++
	l.log.batches <- batchOf(l.pos, liveD, keys...)
	l.engine.Mark(markAt(l.pos))
}

// finished waits until n batches are committed.
func (l *live) finished(n int) {
	l.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for l.log.watermark() < n {
		select {
		case <-l.log.commits:
		case <-timeout.C:
			l.Fatalf("%d of %d batches are committed: %+v", l.log.watermark(), n, l.engine.Snapshot())
		}
	}
}

// acked checks that each key has had a delete acknowledged no earlier than D after the given time.
func (l *live) acked(since time.Time, keys ...string) {
	l.Helper()
	for _, k := range keys {
		ok := false
		for _, a := range l.proxy.Acks(k) {
			ok = ok || a.Err == "" && !a.Acked.IsZero() && !a.Sent.Before(since.Add(liveD))
		}
		if !ok {
			l.Errorf("%s: no delete that was sent %s after its mark was acknowledged: %+v", k, liveD, l.proxy.Acks(k))
		}
	}
	if left := l.server.Client().Exists(l.Context(), keys...).Val(); left != 0 {
		l.Errorf("%d keys are still cached", left)
	}
}

// The command took effect and its reply was lost; or it was lost itself: at every write there is.
func TestAReplyLostAtAnyWriteLosesNoKey(t *testing.T) {
	for _, action := range []proxy.Action{proxy.DropReply, proxy.DropCommand} {
		l := newLive(t, "", "")
		finished := 0
		for at := 1; ; at++ {
			hit := false
			l.proxy.Forget()
			l.proxy.OnCommand(func(c proxy.Command) proxy.Action {
				if c.N == at {
					hit = true
					return action
				}
				return proxy.Forward
			})
			begin := time.Now()
			keys := []string{fmt.Sprintf("a:%d", at), fmt.Sprintf("b:%d", at)}
			l.change(keys...)
			finished++
			l.finished(finished)
			l.acked(begin, keys...)
			l.proxy.OnCommand(nil)
			if !hit {
				if at < 3 {
					t.Fatalf("there are only %d writes: a first and a final delete were expected", at-1)
				}
				break
			}
		}
		if parked, dead := l.store.counts(); parked+dead != 0 {
			t.Errorf("%d keys were parked for it", parked+dead)
		}
	}
}

// Deletes flow again soon after Redis is back, whatever kept it away; the watermark stays meanwhile.
func TestDeletesFlowSoonAfterRedisIsBack(t *testing.T) {
	for name, c := range map[string]struct{ away, back func(l *live) }{
		"refused":   {func(l *live) { l.proxy.Cut() }, func(l *live) { testbed.Must(l, l.proxy.Resume()) }},
		"half-open": {func(l *live) { l.proxy.Stall(proxy.Both) }, func(l *live) { testbed.Must(l, l.proxy.Resume()) }},
		"hung": {
			func(l *live) { testbed.Must(l, l.server.Pause()) },
			func(l *live) { testbed.Must(l, l.server.Resume()) },
		},
		"read-only": {
			func(l *live) { l.server.Do(l, "replicaof", "127.0.0.1", "1") },
			func(l *live) { l.server.Do(l, "replicaof", "no", "one") },
		},
		"restarted": {
			func(l *live) { testbed.Must(l, l.server.Kill()) },
			func(l *live) { testbed.Must(l, l.server.Start(l.Context())) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLive(t, "", "")
			l.change("before")
			l.finished(1)
			l.server.Do(l, "set", "during", "old")
			c.away(l)
			gone := time.Now()
			l.pos++
			l.log.batches <- batchOf(l.pos, liveD, "during")
			l.engine.Mark(markAt(l.pos))
			testbed.Eventually(t, 2*time.Minute, "Redis counts as away",
				func() bool { return l.alarms.count(alarm.RedisAway) > 0 })
			l.log.batches <- batchOf(l.pos, liveD, "later")
			if l.log.watermark() != 1 {
				t.Fatal("the watermark moved while Redis was away")
			}
			c.back(l)
			back := time.Now()
			l.finished(3)
			var flowed []proxy.Ack
			for _, a := range l.proxy.Acks("during") {
				if a.Err == "" && a.Acked.After(gone) {
					flowed = append(flowed, a)
				}
			}
			// Promised is a second; a busy machine gets another one.
			if len(flowed) < 2 || flowed[0].Acked.Sub(back) > 2*time.Second {
				t.Fatalf("%+v, back at %s; want a delete at once and one D after Redis' return", flowed, back)
			}
			l.acked(gone, "during", "later")
			if n := l.alarms.count(alarm.RedisAway); n != 1 {
				t.Errorf("%d alarms for one absence", n)
			}
		})
	}
}

func TestAForbiddenKeyIsParkedAndDeletedOnceItIsAllowed(t *testing.T) {
	l := newLive(t, "some", "secret")
	begin := time.Now()
	l.change("ok:1", "forbidden", "ok:2")
	l.finished(1)
	l.acked(begin, "ok:1", "ok:2")
	if parked, dead := l.store.counts(); parked != 1 || dead != 0 {
		t.Fatalf("%d parked, %d dead letters", parked, dead)
	}
	l.server.Do(t, "acl", "setuser", "some", "allkeys")
	testbed.Eventually(t, 2*time.Minute, "the parked key is settled", func() bool {
		parked, _ := l.store.counts()
		return parked == 0
	})
	l.acked(begin, "forbidden")
}
