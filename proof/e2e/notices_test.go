package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// verifyStream fails the test unless the stream has an entry for each change of an item that came after its commit, as
// told by the clock of Redis, which is this machine's. An entry's id has milliseconds.
func (b *bazaar) verifyStream() {
	b.r.t.Helper()
	entries, err := b.r.redis.Client().XRange(b.r.t.Context(), "item-changes", "-", "+").Result()
	testbed.Must(b.r.t, err)
	last := map[string]time.Time{}
	for _, e := range entries {
		ms, err := strconv.ParseInt(e.ID[:strings.IndexByte(e.ID, '-')], 10, 64)
		testbed.Must(b.r.t, err)
		key, ok := e.Values["key"].(string)
		if !ok || e.Values["table"] != "shop.item" || e.Values["version"] == nil {
			b.r.t.Fatalf("an entry of the stream is %v", e.Values)
		}
		last[key] = time.UnixMilli(ms + 1)
	}
	b.verifyNotices("entries of the stream", len(entries), func(item string) time.Time { return last["item:"+item] })
}

// verifyMessages does the same for what was published. Only where Redis itself was not hurt: it keeps no messages.
func (b *bazaar) verifyMessages() {
	b.r.t.Helper()
	// A message can come after the acknowledgement of the command that published it.
	testbed.Must(b.r.t, b.r.redis.Client().Publish(b.r.t.Context(), "items", "end").Err())
	testbed.Eventually(b.r.t, 2*time.Minute, "the end of the messages is heard",
		func() bool { return !b.heard.last("end").IsZero() })
	b.verifyNotices("messages", b.heard.all(), b.heard.last)
}

func (e *ear) last(id string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.messages[id]
}

func (e *ear) all() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func (b *bazaar) verifyNotices(what string, n int, last func(item string) time.Time) {
	b.r.t.Helper()
	j := &b.load.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	missing, changes := 0, 0
	for _, e := range j.entries {
		var id int
		if !exactly(e.key, "item:%d", &id) {
			continue
		}
		if changes++; last(strconv.Itoa(id)).After(e.committed) {
			continue
		}
		if missing++; missing <= 10 {
			b.r.t.Errorf("%s: committed at %s, but the last of the %s came at %s", e.key, e.committed.Format(time.StampMicro),
				what, last(strconv.Itoa(id)).Format(time.StampMicro))
		}
	}
	b.r.t.Logf("%d %s for %d changes of items", n, what, changes)
	if missing > 0 || changes == 0 {
		b.r.t.Fatalf("%d of %d changes are followed by none of the %s", missing, changes, what)
	}
}

// verifyCounter fails the test if the counter of generations was seen to go back, or never rose. That it rose after
// each transaction is the journal's.
func (b *bazaar) verifyCounter() {
	b.r.t.Helper()
	e := &b.heard
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.back) > 0 || e.counter == 0 {
		b.r.t.Fatalf("the counter is at %d, and went back %v", e.counter, fmt.Sprint(e.back))
	}
}
