package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

// actionD is longer than liveD: a busy machine that answers later than a quarter of it has values forgotten.
const actionD = 800 * time.Millisecond

// do has things done, and waits until they are finished.
func (l *live) do(things ...thing) {
	l.Helper()
	l.pos++
	l.log.batches <- batchOfThings(origin(l.pos, actionD), things...)
	l.engine.Mark(markAt(l.pos))
	l.fetched++
	l.finished(l.fetched)
}

func TestEveryActionOnARealServer(t *testing.T) {
	l := newLive(t, "", "")
	c, ctx := l.server.Client(), t.Context()
	must := func(err error) { t.Helper(); testbed.Must(t, err) }
	equal := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	text := &event.Effect{As: event.FormString, TTL: time.Hour}
	rebuild := func(i event.Intent, e *event.Effect, fields ...string) thing {
		return thing{"user:1", event.ActionRebuild, i, e, fields}
	}
	must(c.Set(ctx, "user:1", "filled by a reader", 0).Err())
	l.do(rebuild(event.IntentPut, text, "new"))
	equal("a string", c.Get(ctx, "user:1").Val(), "new")
	if ttl := c.TTL(ctx, "user:1").Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("it lives for %s", ttl)
	}
	l.do(rebuild(event.IntentPut, &event.Effect{As: event.FormHash}, "name", "Ann", "age", "7"))
	equal("a hash", c.HGetAll(ctx, "user:1").Val(), map[string]string{"name": "Ann", "age": "7"})
	l.do(rebuild(event.IntentRemove, &event.Effect{Missing: true, MissingValue: "none", MissingTTL: time.Minute}))
	equal("a negative entry", c.Get(ctx, "user:1").Val(), "none")
	l.do(rebuild(event.IntentForget, text))
	equal("a forgotten key", c.Exists(ctx, "user:1").Val(), 0)

	must(c.HSet(ctx, "profile", "a", "1", "b", "2").Err())
	l.do(thing{"profile", event.ActionHash, event.IntentForget, nil, []string{"a"}})
	l.do(thing{"profile", event.ActionHash, event.IntentPut, &event.Effect{}, []string{"c", "3"}})
	equal("fields", c.HGetAll(ctx, "profile").Val(), map[string]string{"b": "2", "c": "3"})

	// The first change of a set that freshet knows nothing about has it forgotten; once the application has filled it
	// again its members are kept.
	l.do(thing{"tag:x", event.ActionSet, event.IntentPut, &event.Effect{}, []string{"1"}})
	must(c.SAdd(ctx, "tag:x", "1", "2").Err())
	l.do(thing{"tag:x", event.ActionSet, event.IntentRemove, &event.Effect{}, []string{"2"}})
	if c.SIsMember(ctx, "tag:x", "2").Val() {
		t.Error("a member that was removed is there")
	}

	must(c.Set(ctx, "soft", "v", time.Hour).Err())
	l.do(thing{"soft", event.ActionExpire, event.IntentForget, &event.Effect{In: 5 * time.Second}, nil})
	if ttl := c.TTL(ctx, "soft").Val(); ttl > 5*time.Second || ttl <= 0 {
		t.Errorf("expires in %s", ttl)
	}
	begin := time.Now().UnixMilli()
	l.do(thing{"gen", event.ActionIncr, event.IntentForget, nil, nil})
	if n, err := c.Get(ctx, "gen").Int64(); err != nil || n <= begin || n > begin+int64(time.Hour/time.Millisecond) {
		t.Errorf("a counter that was missing is %d, %v", n, err)
	}
	if parked, dead := l.store.counts(); parked+dead != 0 {
		t.Errorf("%d parked, %d dead", parked, dead)
	}
}

// A row was read by one member, and another has older records of it still to do: it hears later what is visible. Where
// the companion is lost, too, the record of the change that the row was read after follows in the same partition.
func TestAnOlderRecordOfAnotherMemberReplacesNoRowThatWasRead(t *testing.T) {
	l := newLive(t, "", "")
	c, ctx := l.server.Client(), t.Context()
	owner := &live{T: t, server: l.server, log: newFakeLog(), served: make(chan error, 1)}
	owner.engine = start(t, Deps{
		Redis: single(t, SingleOptions{Address: l.server.Addr}), Store: &memStore{}, Alarms: &alarms{},
		Log: slog.New(slog.DiscardHandler),
	}, Options{ShortestD: liveD})
	caughtUp(owner.engine)
	serving, stop := context.WithCancel(ctx)
	go func() { owner.served <- owner.engine.Serve(serving, owner.log) }()
	defer func() {
		stop()
		testbed.Must(t, <-owner.served)
	}()
	put := func(value string) thing {
		return thing{"user:1", event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormString}, []string{value}}
	}
	record := func(pos uint64, value string) {
		owner.log.batches <- batchOfThings(origin(pos, actionD), put(value))
		owner.fetched++
	}
	walk := func() {
		l.engine.Mark(markAt(8))
		testbed.Eventually(t, time.Minute, "the row is written", func() bool {
			b := batchOfThings(origin(8, actionD), put("8"))
			b.Read = time.Now()
			l.log.batches <- b
			l.fetched++
			l.finished(l.fetched)
			return c.Get(ctx, "user:1").Val() == "8"
		})
	}
	walk()
	record(4, "4")
	owner.engine.Mark(markAt(8))
	owner.finished(owner.fetched)
	if got := c.Get(ctx, "user:1").Val(); got != "8" {
		t.Errorf("after an older record: %q", got)
	}
	for _, key := range c.Keys(ctx, "*").Val() {
		if key != "user:1" {
			testbed.Must(t, c.Del(ctx, key).Err())
		}
	}
	record(5, "5")
	record(8, "8")
	owner.finished(owner.fetched)
	if got := c.Get(ctx, "user:1").Val(); got != "8" && got != "" {
		t.Errorf("after an older record, and without the companion: %q", got)
	}
}

func TestNoticesOnARealServer(t *testing.T) {
	l := newLive(t, "", "")
	c := l.server.Client()
	sub := c.Subscribe(t.Context(), "changes")
	defer func() { testbed.Must(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	testbed.Must(t, err)
	e := &event.Effect{Publish: true, Stream: true, MaxLen: 100, As: event.FormString}
	l.do(thing{"price:1", event.ActionRebuild, event.IntentPut, e, []string{"changes", "it is 1", "log", "12.50"}})
	for range 2 { // after the first action, and after the final one
		m, err := sub.ReceiveMessage(t.Context())
		testbed.Must(t, err)
		if m.Payload != "it is 1" {
			t.Errorf("published %q", m.Payload)
		}
	}
	entries := c.XRange(t.Context(), "log", "-", "+").Val()
	if len(entries) != 2 || entries[0].Values["key"] != "price:1" || entries[0].Values["version"] != "1/1/5/1" {
		t.Errorf("stream: %+v", entries)
	}
	// A stream that is none brings the key into trouble, after it was written.
	testbed.Must(t, c.Set(t.Context(), "text", "x", 0).Err())
	l.do(thing{"price:2", event.ActionDelete, event.IntentForget, &event.Effect{Stream: true}, []string{"text"}})
	if parks := l.store.parkCount(); parks != 1 {
		t.Errorf("parked %d times", parks)
	}
}

// Caches that follow a stream, or listen, are stale until they are told, whatever was in trouble: the key, or the
// telling. And what cannot be published is not settled: it ends as a dead letter.
func TestWhatWasParkedIsToldOfOnceAnAttemptPasses(t *testing.T) {
	for _, c := range []struct {
		name          string
		breaks, fixes []any
		user, key     string
	}{
		{"the stream was no stream", []any{"set", "ok:log", "text"}, []any{"unlink", "ok:log"}, "", "ok:1"},
		{"the key was refused", []any{"ping"}, []any{"acl", "setuser", "some", "allkeys", "allchannels"}, "some", "1"},
		{
			"there was no memory",
			[]any{"config", "set", "maxmemory", "1"},
			[]any{"config", "set", "maxmemory", "0"},
			"",
			"ok:1",
		},
	} {
		for _, action := range []event.Action{event.ActionDelete, event.ActionRebuild, event.ActionSet} {
			t.Run(c.name+", "+action.String(), func(t *testing.T) {
				l := newLive(t, c.user, "secret")
				rdb := l.server.Client()
				l.server.Do(t, c.breaks...)
				e := &event.Effect{Publish: true, Stream: true, MaxLen: 100, As: event.FormString}
				l.do(thing{c.key, action, event.IntentForget, e, []string{"changes", "it is 1", "ok:log", "x"}})
				parked := l.store.takeAll()
				if len(parked) != 1 {
					t.Fatalf("parked or given up: %+v", parked)
				}
				l.server.Do(t, c.fixes...)
				again := parked[0]
				again.Attempts, again.Due, again.Untold = 3, time.Now(), 1
				testbed.Must(t, l.store.Park(t.Context(), []retry.Entry{again}))
				l.engine.parkedNow([]retry.Entry{again})
				testbed.Eventually(t, 2*time.Minute, "it is settled", func() bool {
					parked, _ := l.store.counts()
					return parked == 0
				})
				if l.alarms.count(alarm.NoticesDropped) == 0 {
					t.Error("nobody hears that there was more to tell")
				}
				entries := rdb.XRange(t.Context(), "ok:log", "-", "+").Val()
				if len(entries) == 0 || entries[0].Values["key"] != c.key || entries[0].Values["version"] != "1/1/5/1" {
					t.Errorf("stream: %+v", entries)
				}
			})
		}
	}
}

// takeAll takes all entries out of the store.
func (s *memStore) takeAll() []retry.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(s.entries, s.letters...)
	s.entries, s.letters = nil, nil
	return all
}

func (s *memStore) parkCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parks
}

func TestAKeyOfAnotherTypeIsReplacedNotTrouble(t *testing.T) {
	l := newLive(t, "", "")
	c, ctx := l.server.Client(), t.Context()
	for _, k := range []string{"a", "b", "c", "d"} {
		testbed.Must(t, c.LPush(ctx, k, "a list").Err())
	}
	l.do(put("a", "v"), thing{"b", event.ActionHash, event.IntentPut, &event.Effect{}, []string{"f", "v"}},
		thing{"c", event.ActionSet, event.IntentPut, &event.Effect{}, []string{"m"}},
		thing{"d", event.ActionIncr, event.IntentForget, nil, nil})
	for _, k := range []string{"a", "b", "c", "d"} {
		if c.Type(ctx, k).Val() == "list" {
			t.Errorf("%s is still what it was", k)
		}
	}
	if parked, dead := l.store.counts(); parked+dead+l.store.parkCount() != 0 || c.Get(ctx, "a").Val() != "v" {
		t.Errorf("%d parked, %d dead; a is %q", parked, dead, c.Get(ctx, "a").Val())
	}
}

// A counter that is removed begins again only with the next change, and until then readers have none.
func TestAParkedCounterIsRaisedNotRemoved(t *testing.T) {
	l := newLive(t, "some", "secret")
	c := l.server.Client()
	testbed.Must(t, c.Set(t.Context(), "gen", 41, time.Hour).Err())
	l.do(thing{"gen", event.ActionIncr, event.IntentForget, nil, nil})
	if parked, _ := l.store.counts(); parked != 1 || c.Get(t.Context(), "gen").Val() != "41" {
		t.Fatalf("%d parked, the counter is %s", parked, c.Get(t.Context(), "gen").Val())
	}
	l.server.Do(t, "acl", "setuser", "some", "allkeys")
	testbed.Eventually(t, 2*time.Minute, "the parked counter is settled", func() bool {
		parked, _ := l.store.counts()
		return parked == 0
	})
	n, err := c.Get(t.Context(), "gen").Int64()
	if left := c.TTL(t.Context(), "gen").Val(); n <= 41 || err != nil || left <= 0 {
		t.Errorf("the counter is %d, %v, and lives for %s: want it raised, and not removed", n, err, left)
	}
}

// Redis without memory takes deletes, so nothing waits and nothing is parked; no old value stays.
func TestWithoutMemoryKeysAreDeletedInstead(t *testing.T) {
	l := newLive(t, "", "")
	c, ctx := l.server.Client(), t.Context()
	testbed.Must(t, c.Set(ctx, "a", "old", 0).Err())
	testbed.Must(t, c.HSet(ctx, "h", "f", "old").Err())
	l.server.Do(t, "config", "set", "maxmemory-policy", "noeviction")
	l.server.Do(t, "config", "set", "maxmemory", "1")
	l.do(put("a", "new"), thing{"h", event.ActionHash, event.IntentPut, &event.Effect{}, []string{"f", "new"}})
	if got := c.Exists(ctx, "a", "h").Val(); got != 0 {
		t.Errorf("%d keys are still there: a %q, h %q", got, c.Get(ctx, "a").Val(), c.HGetAll(ctx, "h").Val())
	}
	if s := l.engine.Snapshot(); s.InTrouble != 0 || l.store.parkCount() != 0 || l.alarms.count(alarm.RedisAway) != 0 {
		t.Errorf("%+v", s)
	}
	l.server.Do(t, "config", "set", "maxmemory", "0")
	l.do(put("a", "newer"))
	if got := c.Get(ctx, "a").Val(); got != "newer" {
		t.Errorf("with memory again: %q", got)
	}
}

// The command took effect and its reply was lost, or it was lost itself, at every write of a value and its notice.
func TestAReplyLostAtAnyWriteOfAValueLosesNothing(t *testing.T) {
	atEachWrite(t, 4, "two actions and two notices", func(l *live, at int) (check func(lost bool)) {
		key, value := fmt.Sprintf("k:%d", at), fmt.Sprintf("value %d", at)
		l.server.Do(t, "set", key, "old")
		l.do(thing{key, event.ActionRebuild, event.IntentPut, &event.Effect{Publish: true}, []string{"changes", "x", value}})
		return func(lost bool) {
			// What is sent again when it could have been the final action forgets, for a newer one may have come
			// between: so where one was lost there is nothing, or the value.
			got := l.server.Client().Get(t.Context(), key).Val()
			if got != value && (!lost || got != "") {
				t.Errorf("with write %d lost: %s is %q, want %q", at, key, got, value)
			}
		}
	})
}

// atEachWrite loses the first write of what do does, or its reply, then the second in another round, until a round has
// no such write any more. do returns what looks at the result. There must be least writes, which words name.
func atEachWrite(t *testing.T, least int, words string, do func(l *live, at int) (check func(lost bool))) {
	for _, action := range []proxy.Action{proxy.DropReply, proxy.DropCommand} {
		l := newLive(t, "", "")
		for at := 1; ; at++ {
			var hit atomic.Bool
			l.proxy.Forget()
			l.proxy.OnCommand(func(c proxy.Command) proxy.Action {
				if c.N == at {
					hit.Store(true)
					return action
				}
				return proxy.Forward
			})
			check := do(l, at)
			l.proxy.OnCommand(nil)
			check(hit.Load())
			if !hit.Load() {
				if at <= least {
					t.Fatalf("there are only %d writes: %s were expected", at-1, words)
				}
				break
			}
		}
		if parks := l.store.parkCount(); parks != 0 {
			t.Errorf("parked %d times for it", parks)
		}
	}
}

// A Redis that was killed comes back empty, without the scripts: what is unfinished is written again.
func TestValuesAreWrittenAgainAfterRedisWasKilled(t *testing.T) {
	l := newLive(t, "", "")
	l.do(put("before", "1"))
	l.pos++
	l.log.batches <- batchOfThings(origin(l.pos, liveD), put("a", "new"))
	testbed.Eventually(t, 2*time.Minute, "the first action", func() bool {
		return l.engine.Snapshot().Pending == 1
	})
	testbed.Must(t, l.server.Kill())
	l.engine.Mark(markAt(l.pos))
	testbed.Eventually(t, 2*time.Minute, "Redis counts as away",
		func() bool { return l.alarms.count(alarm.RedisAway) > 0 })
	testbed.Must(t, l.server.Start(t.Context()))
	l.fetched++
	l.finished(l.fetched)
	// The final action found a key that it knew nothing about, so what it left is either the value or nothing.
	if got := l.server.Client().Get(t.Context(), "a").Val(); got != "new" && got != "" {
		t.Errorf("a is %q", got)
	}
	// A final action that a busy machine answers late is made again to forget, so one change may not be enough.
	testbed.Eventually(t, 2*time.Minute, "a value is written again", func() bool {
		l.do(put("a", "newer"))
		return l.server.Client().Get(t.Context(), "a").Val() == "newer"
	})
}

// rows are what liveRebuilder reads.
type liveRebuilder struct {
	value atomic.Pointer[string]
	runs  atomic.Int64
}

// Query implements [Rebuilder].
func (q *liveRebuilder) Query(_ context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	for i := range params {
		q.runs.Add(1)
		if !answer(i, event.AppendField(nil, *q.value.Load()), false, nil) {
			return
		}
	}
}

func TestARebuildByQueryOnARealServer(t *testing.T) {
	server := testbed.Redis(t)
	value := "from the query"
	q := &liveRebuilder{}
	q.value.Store(&value)
	log := newFakeLog()
	e := start(t, Deps{
		Redis: single(t, SingleOptions{Address: server.Addr}), Rebuilder: q,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, Options{ShortestD: liveD, Retry: retry.Policy{ParkDelays: []time.Duration{liveD}}})
	l := &live{T: t, server: server, engine: e, log: log, pos: 4}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { served <- e.Serve(ctx, log) }()
	defer func() { stop(); testbed.Must(t, <-served) }()
	server.Do(t, "set", "a", "old")
	l.do(query("a"))
	if got := server.Client().Get(t.Context(), "a").Val(); got != value {
		t.Errorf("a is %q", got)
	}
	if n := server.Client().Exists(t.Context(), write.Names{}.Lock("a")).Val(); n != 0 {
		t.Error("the lock was not given back")
	}
	ran := q.runs.Load()
	if ran < 2 {
		t.Errorf("%d queries, want a first and a final one", ran)
	}
	// The application holds the lock, and never gives it back: relief only.
	server.Do(t, "set", write.Names{}.Lock("a"), "the application's", "px", 300)
	l.do(query("a"))
	if got := q.runs.Load(); got <= ran {
		t.Errorf("%d queries, want more than before", got)
	}
}

func TestSingleSendsCallsAndLoadsScripts(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	for range 2 { // the second time after the scripts were lost
		first := &write.Item{Key: "a", Action: event.ActionIncr}
		text := &write.Item{Key: "nothing", Action: event.ActionDelete}
		calls := b.Append(b.Append(nil, first), text)
		s.Do(t.Context(), calls)
		if o, err := b.Outcome(first, calls[:1]); err != nil || o != write.Written {
			t.Errorf("%v, %v", o, err)
		}
		if o, err := b.Outcome(text, calls[1:]); err != nil || o != write.Absent {
			t.Errorf("%v, %v", o, err)
		}
		b.Reset()
		server.Do(t, "script", "flush")
	}
	server.Do(t, "set", "text", "x")
	server.Do(t, "config", "set", "requirepass", "secret")
	calls := b.Append(nil, &write.Item{Key: "a", Action: event.ActionDelete})
	other := single(t, SingleOptions{Address: server.Addr})
	other.Do(t.Context(), calls)
	if err := calls[0].Err; retry.ClassifyRedis(err) != retry.Away || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("a refused connection: %v", err)
	}
}
