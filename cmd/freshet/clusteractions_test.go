package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// actionRows is how many products change.
const actionRows = 40

// everyAction is a mapping for each, with busyD.
func everyAction() string {
	var b strings.Builder
	for _, does := range []string{
		`keys: ["product:{id}"]`,
		`keys: ["price:{id}"], rebuild: {from: row, as: string, value: "{price}"}`,
		`keys: ["asked:{id}"], rebuild: {query: "SELECT price FROM shop.product WHERE id = :id", as: hash, ttl: 1h}`,
		`hash: {key: "prices", field: "{id}", value: "{price}"}`,
		`set: {key: "ids", member: "{id}"}`,
		`zset: {key: "board", member: "{id}", score: "{price}"}`,
		`expire: {keys: ["banner:{id}"], in: 1h}`,
		`incr: "gen:{id}"`,
		`keys: ["note:{id}"], publish: {channel: changed, message: "{id}"}, stream: {key: changes, maxlen: 100000}`,
	} {
		fmt.Fprintf(&b, "\n  - {table: shop.product, second_delete: %s, %s}", busyD, does)
	}
	return b.String()
}

// Every key lies where its slot is, with what freshet keeps next to it, and moves with it.
func TestOnAClusterEveryActionIsDoneWhileSlotsMove(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, testbed.MySQL(t), testbed.ClusterOptions{Masters: 3})
	s.mappings = everyAction()
	ctx, rdb := t.Context(), s.client
	s.fillAll()
	for id := range actionRows {
		testbed.Must(t, rdb.Set(ctx, fmt.Sprint("banner:", id), "old", 0).Err())
	}
	if said := s.ask("check"); !strings.Contains(said, "the redis cluster has 3 masters with slots") {
		t.Errorf("check says %s", said)
	}
	r := s.start("run")
	// What is there already is not touched, and that is a doubt.
	s.await("a first start is in doubt", func(st *app.Status) bool {
		return st.State == app.Doubtful && len(st.Doubts) == 1
	})
	s.ask("doubts", "dismiss", s.status().Doubts[0].ID)
	s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
	heard := s.listen("changed")

	var changes sync.WaitGroup
	changes.Go(func() {
		for round := range 4 {
			for id := range actionRows {
				if _, err := s.source.DB().ExecContext(ctx, "UPDATE shop.product SET price = ? WHERE id = ?", 100*id+round,
					id); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for _, key := range []string{
		"prices", "ids", "board", "changes", "price:1", "asked:2", "gen:3", "note:4", "banner:5",
	} {
		slot, has := ownerIn(s.t, s.cluster, key)
		s.cluster.Move(t, s.cluster.Masters[has], s.cluster.Masters[(has+1)%3], slot)
	}
	changes.Wait()
	s.finished(s.site)
	s.allIsRight()
	// What was forgotten, since its slot had just moved, is written again.
	testbed.Eventually(t, patience, "every value is written", func() bool {
		s.fillAll()
		s.source.Exec(t, "UPDATE shop.product SET price = price + 1")
		s.finished(s.site)
		return s.allIsRight()
	})
	testbed.Eventually(t, patience, "each change is published", func() bool { return heard() >= actionRows })

	s.dryRunFindsAll()
	for _, n := range s.status().Redis.Nodes {
		if !n.Up || n.Slots == 0 {
			t.Errorf("%+v", n)
		}
	}
	if text := s.ask("status"); strings.Count(text, "\nnode ") != 3 {
		t.Errorf("status: %s", text)
	}
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// fillAll fills what freshet keeps as it is told: a set with all of its members, in one command.
func (s *clusterSite) fillAll() {
	var scores []redis.Z
	var ids, fields []any
	for id := range actionRows {
		price, err := s.price(s.t.Context(), id)
		testbed.Must(s.t, err)
		score, err := strconv.ParseFloat(price, 64)
		testbed.Must(s.t, err)
		scores, ids, fields = append(scores, redis.Z{Score: score, Member: id}), append(ids, id), append(fields, id, price)
	}
	testbed.Must(s.t, s.client.ZAdd(s.t.Context(), "board", scores...).Err())
	testbed.Must(s.t, s.client.SAdd(s.t.Context(), "ids", ids...).Err())
	testbed.Must(s.t, s.client.HSet(s.t.Context(), "prices", fields...).Err())
}

// listen subscribes, and returns what says how many different messages came.
func (s *clusterSite) listen(channel string) func() int {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	sub := s.client.Subscribe(ctx, channel)
	_, err := sub.Receive(ctx) // it is subscribed
	testbed.Must(s.t, err)
	var mu sync.Mutex
	seen := map[string]bool{}
	var listener sync.WaitGroup
	listener.Go(func() {
		for m := range sub.Channel() {
			mu.Lock()
			seen[m.Payload] = true
			mu.Unlock()
		}
	})
	s.t.Cleanup(func() {
		stop()
		testbed.Must(s.t, sub.Close())
		listener.Wait()
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// allIsRight compares what the actions have left with the rows: nothing may be wrong. It reports whether all values are
// there.
func (s *clusterSite) allIsRight() (whole bool) {
	s.t.Helper()
	t, ctx, rdb := s.t, s.t.Context(), s.client
	notes := map[string]bool{}
	entries, err := rdb.XRange(ctx, "changes", "-", "+").Result()
	testbed.Must(t, err)
	for _, e := range entries {
		notes[fmt.Sprint(e.Values["key"])] = true
	}
	whole = true
	for id := range actionRows {
		price, err := s.price(ctx, id)
		testbed.Must(t, err)
		n := strconv.Itoa(id)
		score := ""
		if z, err := rdb.ZScore(ctx, "board", n).Result(); err == nil {
			score = strconv.FormatFloat(z, 'f', -1, 64)
		}
		for what, got := range map[string]string{
			"the key from its row": rdb.Get(ctx, "price:"+n).Val(), "the key by query": rdb.HGet(ctx, "asked:"+n, "price").Val(),
			"the field": rdb.HGet(ctx, "prices", n).Val(), "the score": score,
		} {
			if whole = whole && got == price; got != price && got != "" {
				t.Errorf("%s of %d is %q, its row %s", what, id, got, price)
			}
		}
		whole = whole && rdb.SIsMember(ctx, "ids", n).Val()
		if left := rdb.TTL(ctx, "banner:"+n).Val(); left <= 0 || left > time.Hour {
			t.Errorf("the banner %d lives for %s", id, left)
		}
		if rdb.Get(ctx, "gen:"+n).Val() == "" || !notes["note:"+n] {
			t.Errorf("the counter or the entry of %d is missing", id)
		}
	}
	return whole
}

// dryRunFindsAll looks for keys that are on all nodes.
func (s *clusterSite) dryRunFindsAll() {
	for id := range actionRows {
		testbed.Must(s.t, s.client.Set(s.t.Context(), fmt.Sprint("product:", id), "v", 0).Err())
	}
	text := s.ask("invalidate", "--pattern", "product:*", "--dry-run")
	if !strings.HasPrefix(text, fmt.Sprintf("would forget %d keys\n", actionRows)) {
		s.t.Errorf("a dry run: %s", text)
	}
	s.ask("invalidate", "--pattern", "product:*", "--wait")
	for id := range actionRows {
		if s.client.Exists(s.t.Context(), fmt.Sprint("product:", id)).Val() != 0 {
			s.t.Errorf("product:%d is not forgotten", id)
		}
	}
}
