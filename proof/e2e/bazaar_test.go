package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// bazaar is an application that uses every action: writers, and cache-aside readers that race with them and keep the
// bound of second_delete.
type bazaar struct {
	r    *rig
	load *load // for its loop and its journal
	// version is given to each change of an item, a profile or a score: what is newer is higher, whatever was deleted
	// and made again in between.
	version atomic.Int64
	// few: there are only some rows of each table, so that a short run changes most of them more than once.
	few      bool
	heard    ear
	readers  flock
	writers  flock
	listener flock
}

func newBazaar(r *rig, seed uint64) *bazaar {
	b := &bazaar{r: r, load: &load{r: r}}
	b.version.Store(int64(seed % 1000))
	return b
}

// seed makes the rows that there are at first, and the fields that no row owns.
func (b *bazaar) seed() {
	b.r.t.Helper()
	for n := 1; n <= items; n++ {
		testbed.Must(b.r.t, b.transact(func(x *tx) error { return b.upsertItem(x, n, n%kinds, n%3 != 0, "first") }))
	}
	var rows [4][]string
	for n := range users {
		rows[0] = append(rows[0], fmt.Sprintf("(%d, 'Paris', 'name %d', %d)", n, n, b.version.Add(1)))
		testbed.Must(b.r.t, b.r.redis.Client().HSet(b.r.t.Context(), fmt.Sprintf("user:%d", n), neighbour,
			neighbourString).Err())
	}
	for n := range tags * members {
		if n%2 == 0 {
			rows[1] = append(rows[1], fmt.Sprintf("(%d, %d)", n/members, n%members))
		}
	}
	for n := range games * members {
		rows[2] = append(rows[2], fmt.Sprintf("(%d, %d, %d)", n/members, n%members, b.version.Add(1)))
	}
	for n := range settings {
		rows[3] = append(rows[3], fmt.Sprintf("(%d, 'first')", n))
	}
	for i, table := range []string{"profile", "member", "score", "setting"} {
		b.r.source.Exec(b.r.t, "INSERT INTO shop."+table+" VALUES "+strings.Join(rows[i], ","))
	}
}

// open makes the rows, and lets writers and readers in.
func (b *bazaar) open(seed uint64) {
	b.r.t.Helper()
	listening := make(chan struct{})
	b.listener.start(1, func(ctx context.Context, _ int) error { return b.listen(ctx, listening) })
	<-listening
	b.seed()
	// Each change of an item is ten commands to Redis, and as many queries.
	b.writers.start(testbed.Cut(2, 4), func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		return b.load.loop(ctx, func() error { return b.write(rnd) })
	})
	b.readers.start(16, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(2000+i)))
		return b.load.loop(ctx, func() error { return b.read(ctx, rnd) })
	})
	b.r.t.Cleanup(func() { _, _, _ = b.writers.stop(), b.readers.stop(), b.listener.stop() })
}

// transact runs a transaction and journals its keys.
func (b *bazaar) transact(body func(*tx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return b.load.journal.transact(ctx, b.r.source.DB(), begin, commit, body)
}

// upsertItem writes an item, with a version above all others.
func (b *bazaar) upsertItem(x *tx, id, kind int, live bool, name string) error {
	v := b.version.Add(1)
	doc, note := fmt.Sprintf(`'{"n": %d, "list": [1, "two", null], "deep": {"x": true}}'`, v),
		fmt.Sprintf("'note %d: ✓ \\\\ \"'", v)
	if v%5 == 0 {
		doc, note = "NULL", "NULL"
	}
	return x.change("shop.item", fmt.Sprintf("id = %d", id), fmt.Sprintf(`REPLACE INTO shop.item VALUES
		(%d, %d, '%s', %d.%02d, %d.25, %d, X'00FF%04X', '2026-02-03 04:05:06.789', '2026-02-%02d', %s, %s, %t, %d)`,
		id, kind, name, v%1000, v%100, v, uint64(1<<64-1)-uint64(v), v%65536, 1+v%28, doc, note, live, v))
}

func (b *bazaar) upsertProfile(x *tx, id int) error {
	v := b.version.Add(1)
	return x.change("shop.profile", fmt.Sprintf("user_id = %d", id),
		fmt.Sprintf("REPLACE INTO shop.profile VALUES (%d, 'city %d', 'name %d', %d)", id, v, v, v))
}

func (b *bazaar) upsertScore(x *tx, game, user int) error {
	return x.change("shop.score", fmt.Sprintf("game = %d AND user_id = %d", game, user),
		fmt.Sprintf("INSERT INTO shop.score VALUES (%d, %d, %d) ON DUPLICATE KEY UPDATE points = VALUES(points)", game, user,
			b.version.Add(1)))
}

// write makes one transaction.
func (b *bazaar) write(rnd *rand.Rand) error {
	err := b.transact(func(x *tx) error { return b.change(x, rnd, rnd.IntN(changes)) })
	if deadlock(err) {
		return nil
	}
	if err == nil {
		b.load.writes.Add(1)
	}
	return err
}

// choose returns one of so many, or of the first few.
func (b *bazaar) choose(rnd *rand.Rand, of int) int {
	if b.few {
		of = min(of, 4)
	}
	return rnd.IntN(of)
}

// changes is how many kinds of change there are.
const changes = 16

// change makes a change of one kind.
func (b *bazaar) change(x *tx, rnd *rand.Rand, kind int) error {
	id, user := 1+b.choose(rnd, items), b.choose(rnd, users)
	item, member := fmt.Sprintf("id = %d", id),
		fmt.Sprintf("tag = %d AND user_id = %d", b.choose(rnd, tags), b.choose(rnd, members))
	switch kind {
	case 0:
		return x.change("shop.item", item, "DELETE FROM shop.item WHERE "+item)
	case 1:
		return x.change("shop.item", item,
			fmt.Sprintf("UPDATE shop.item SET live = 1 - live, version = %d WHERE %s", b.version.Add(1), item))
	case 2:
		where := fmt.Sprintf("id BETWEEN %d AND %d", id, id+5)
		return x.change("shop.item", where,
			fmt.Sprintf("UPDATE shop.item SET price = price + 1, version = %d WHERE %s ORDER BY id", b.version.Add(1), where))
	case 3, 4:
		return b.upsertItem(x, id, b.choose(rnd, kinds), rnd.IntN(3) > 0, "again")
	case 5, 6:
		return b.upsertProfile(x, user)
	case 7:
		where := fmt.Sprintf("user_id = %d", user)
		return x.change("shop.profile", where, "DELETE FROM shop.profile WHERE "+where)
	case 8, 9:
		return x.change("shop.member", member, "DELETE FROM shop.member WHERE "+member)
	case 10:
		values := strings.NewReplacer("tag = ", "", " AND user_id = ", ", ").Replace(member)
		return x.change("shop.member", member, "INSERT IGNORE INTO shop.member VALUES ("+values+")")
	case 11:
		return b.upsertScore(x, b.choose(rnd, games), b.choose(rnd, members))
	case 12:
		where := fmt.Sprintf("game = %d AND user_id = %d", b.choose(rnd, games), b.choose(rnd, members))
		return x.change("shop.score", where, "DELETE FROM shop.score WHERE "+where)
	case 13:
		where := fmt.Sprintf("id = %d", b.choose(rnd, settings))
		return x.change("shop.setting", where,
			fmt.Sprintf("UPDATE shop.setting SET value = 'value %d' WHERE %s", b.version.Add(1), where))
	default:
		return x.change("shop.item", item,
			fmt.Sprintf("UPDATE shop.item SET price = price + 1, version = %d WHERE %s", b.version.Add(1), item))
	}
}

// random returns a key that readers want.
func (b *bazaar) random(rnd *rand.Rand) string {
	id, kind := 1+rnd.IntN(items), rnd.IntN(kinds)
	return pick(rnd, []string{
		fmt.Sprintf("item:%d", id), fmt.Sprintf("item:%d:hash", id), fmt.Sprintf("item:%d:text", id),
		fmt.Sprintf("kind:%d:stats", kind), fmt.Sprintf("kind:%d:list", kind), fmt.Sprintf("kind:%d:top", kind),
		fmt.Sprintf("user:%d", rnd.IntN(users)), fmt.Sprintf("user:%d", rnd.IntN(users)),
		fmt.Sprintf("tag:%d", rnd.IntN(tags)), fmt.Sprintf("board:%d", rnd.IntN(games)),
		fmt.Sprintf("setting:%d", rnd.IntN(settings)),
	})
}

// read is cache-aside, slow on purpose, and gives a fill up that took too long.
func (b *bazaar) read(ctx context.Context, rnd *rand.Rand) error {
	key, rdb := b.random(rnd), b.r.redis.Client()
	missing, err := b.misses(ctx, key)
	if err != nil || !missing {
		return err
	}
	start := time.Now()
	v, _, err := b.rowValue(ctx, b.r.source.DB(), key)
	if err != nil {
		return err
	}
	if !inTime(ctx, rnd, start) {
		return nil
	}
	b.load.fills.Add(1)
	return put(context.WithoutCancel(ctx), rdb, key, v)
}

// misses reports whether a reader does not find what it wants: the key, or one of a user's fields.
func (b *bazaar) misses(ctx context.Context, key string) (bool, error) {
	rdb := b.r.redis.Client()
	if strings.HasPrefix(key, "user:") {
		all, err := rdb.HMGet(ctx, key, "profile", "name").Result()
		return slices.Contains(all, nil), err
	}
	n, err := rdb.Exists(ctx, key).Result()
	return n == 0, err
}

// fill puts into Redis what the rows say now.
func (b *bazaar) fill(ctx context.Context, key string) error {
	v, _, err := b.rowValue(ctx, b.r.source.DB(), key)
	return errors.Join(err, put(ctx, b.r.redis.Client(), key, v))
}

// put writes a value in one step, as an application must.
func put(ctx context.Context, rdb *redis.Client, key string, v value) error {
	switch v.kind {
	case "string":
		return rdb.Set(ctx, key, v.data, 0).Err()
	case "json":
		text, err := json.Marshal(v.data)
		return errors.Join(err, rdb.Set(ctx, key, text, 0).Err())
	case "hash":
		return rdb.HSet(ctx, key, v.data).Err()
	case "set":
		return rdb.SAdd(ctx, key, slices.Collect(maps.Keys(v.data.(map[string]string)))).Err()
	case "zset":
		var all []redis.Z
		for m, text := range v.data.(map[string]string) {
			var score float64
			if _, err := fmt.Sscan(text, &score); err != nil {
				return err
			}
			all = append(all, redis.Z{Score: score, Member: m})
		}
		return rdb.ZAdd(ctx, key, all...).Err()
	}
	return nil // what is absent is not cached
}

// encoded returns what an application caches for a JSON document.
func (b *bazaar) encoded(ctx context.Context, key string) string {
	b.r.t.Helper()
	v, _, err := b.rowValue(ctx, b.r.source.DB(), key)
	testbed.Must(b.r.t, err)
	text, err := json.Marshal(v.data)
	testbed.Must(b.r.t, err)
	return string(text)
}

// ear is what has been heard of the items' channel, and of their counter.
type ear struct {
	mu       sync.Mutex
	messages map[string]time.Time // when an item's id was last heard
	n        int                  // how many messages were heard
	counter  int64
	back     []string // how the counter went back
}

// listen hears messages and looks at the counter until ctx ends. It closes ready once it hears for the first time, or
// will not any more. A subscription that Redis ends, or does not take because it is away, is made again.
func (b *bazaar) listen(ctx context.Context, ready chan<- struct{}) error {
	once := sync.OnceFunc(func() { close(ready) })
	defer once()
	for ctx.Err() == nil {
		b.subscribe(ctx, once)
	}
	return nil
}

// subscribe hears until the subscription or ctx ends.
func (b *bazaar) subscribe(ctx context.Context, hears func()) {
	sub := b.r.redis.Client().Subscribe(ctx, "items")
	defer sub.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	if _, err := sub.Receive(ctx); err != nil { // the subscription's confirmation
		<-tick.C
		return
	}
	hears()
	messages := sub.Channel(redis.WithChannelSize(100_000))
	for {
		select {
		case <-ctx.Done():
			return
		case m, open := <-messages:
			if !open {
				return
			}
			b.heard.hear(m.Payload)
		case <-tick.C:
			n, err := b.r.redis.Client().Get(ctx, "items:gen").Int64()
			switch {
			case errors.Is(err, redis.Nil):
				b.heard.count(0)
			case err == nil:
				b.heard.count(n)
			}
		}
	}
}

func (e *ear) hear(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.messages == nil {
		e.messages = map[string]time.Time{}
	}
	e.messages[id] = time.Now()
	e.n++
}

func (e *ear) count(n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n < e.counter {
		e.back = append(e.back, fmt.Sprintf("from %d to %d", e.counter, n))
	}
	e.counter = n
}
