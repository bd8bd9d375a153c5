package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// held returns what Redis holds under a key, read as what it must be. A string that must be JSON is decoded; one that
// is no JSON stays what it is.
func held(ctx context.Context, rdb *redis.Client, key string, json bool) (value, error) {
	kind, err := rdb.Type(ctx, key).Result()
	if err != nil {
		return value{}, err
	}
	switch kind {
	case "string":
		text, err := rdb.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return absent, nil // it has expired in between
		}
		if json && err == nil {
			if v, wrong := decode(text); wrong == nil {
				return value{"json", v}, nil
			}
		}
		return value{"string", text}, err
	case "hash":
		all, err := rdb.HGetAll(ctx, key).Result()
		return value{kind, all}, err
	case "set":
		all, err := rdb.SMembers(ctx, key).Result()
		set := map[string]string{}
		for _, m := range all {
			set[m] = ""
		}
		return value{kind, set}, err
	case "zset":
		all, err := rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		set := map[string]string{}
		for _, z := range all {
			set[z.Member.(string)] = fmt.Sprintf("%.0f", z.Score)
		}
		return value{kind, set}, err
	}
	return value{kind: kind}, nil
}

// shapeOf returns a key without its number: what kind of key it is, for counting.
func shapeOf(key string) string {
	parts := strings.Split(key, ":")
	if parts[0] == "freshet" {
		return "freshet:" + parts[1]
	}
	if len(parts) > 1 {
		parts[1] = "*"
	}
	return strings.Join(parts, ":")
}

// verifyValues compares every value in Redis with its rows, and fails the test for each that differs and for every key
// that is nobody's. It returns how many there are of each shape.
func (b *bazaar) verifyValues() map[string]int {
	b.r.t.Helper()
	ctx, rdb := b.r.t.Context(), b.r.redis.Client()
	counts, wrong := map[string]int{}, 0
	it := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for it.Next(ctx) {
		key := it.Val()
		problem, err := b.compare(ctx, key)
		testbed.Must(b.r.t, err)
		counts[shapeOf(key)]++
		if problem != "" {
			if wrong++; wrong <= 10 {
				b.r.t.Errorf("%s: %s", key, problem)
			}
		}
	}
	testbed.Must(b.r.t, it.Err())
	b.r.t.Logf("values in Redis: %s; wrong: %d", listed(counts), wrong)
	if n := counts["user:*"]; n != users {
		b.r.t.Errorf("%d of %d users' hashes are there, although each has a field that no row owns", n, users)
	}
	if wrong > 0 {
		b.r.t.Fatalf("%d keys do not hold what their rows say", wrong)
	}
	return counts
}

func listed(counts map[string]int) string {
	var all []string
	for _, shape := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", shape, counts[shape]))
	}
	return strings.Join(all, ", ")
}

// compare says what is wrong with a key; "" if nothing is.
func (b *bazaar) compare(ctx context.Context, key string) (problem string, err error) {
	rdb := b.r.redis.Client()
	switch {
	case strings.HasPrefix(key, "freshet:"):
		return compareOwn(ctx, rdb, key)
	case key == "items:gen", key == "item-changes":
		return "", nil // looked at on their own
	case strings.HasPrefix(key, "product:"), strings.HasPrefix(key, "category:"), strings.HasPrefix(key, "note:"):
		return "", nil // by verifyCache
	}
	want, known, err := b.rowValue(ctx, b.r.source.DB(), key)
	if err != nil {
		return "", err
	}
	if !known {
		return "is no key that anybody writes", nil
	}
	have, err := held(ctx, rdb, key, want.kind == "json")
	if err != nil || have.kind == "none" {
		return "", err
	}
	if strings.HasPrefix(key, "user:") {
		return compareUser(have, want), nil
	}
	if !reflect.DeepEqual(have, want) {
		return fmt.Sprintf("holds %s %v, its rows say %s %v", have.kind, have.data, want.kind, want.data), nil
	}
	if key[:5] == "item:" && want.kind == "json" {
		ttl, err := rdb.PTTL(ctx, key).Result()
		if ttl > 66*time.Minute {
			return fmt.Sprintf("lives for %s, more than 1h and 10%%", ttl), err
		}
	}
	return "", nil
}

// compareUser compares a user's hash: each field that is there must be what the row says, and the one that no row owns
// must have been left alone.
func compareUser(have, want value) string {
	if have.kind != "hash" {
		return "is a " + have.kind
	}
	row, _ := want.data.(map[string]string)
	fields := have.data.(map[string]string)
	for name, text := range fields {
		if expected, ok := row[name]; name != neighbour && (!ok || text != expected) {
			return fmt.Sprintf("%s is %q, its row says %q", name, text, expected)
		}
	}
	if fields[neighbour] != neighbourString {
		return "lost a field that no row owns"
	}
	return ""
}

// compareOwn looks at a key of freshet's own: it must go by itself, unless it is the stamp.
func compareOwn(ctx context.Context, rdb *redis.Client, key string) (problem string, err error) {
	if strings.HasPrefix(key, stamp) {
		return "", nil
	}
	ttl, err := rdb.PTTL(ctx, key).Result()
	if err == nil && ttl < 0 && ttl != -2 { // -2: gone in between
		return "never expires", nil
	}
	if err == nil && strings.HasPrefix(key, "freshet:t:") && ttl > time.Hour {
		return fmt.Sprintf("is left behind, for %s", ttl), nil
	}
	return "", err
}

// quiet is how many keys of each shape are written while nobody reads; rounds is how often that is tried.
const quiet, rounds = 20, 10

// verifyWritten changes rows while nobody else reads or writes, and fails the test unless freshet itself writes every
// value: that the other checks find nothing wrong is worth nothing if there is nothing to find. The keys are evicted
// before, so that no reader can have filled them; sets are filled before, since members are only put into what is
// there. One round is not enough where freshet does not know a set, or where Redis was slow to answer: it forgets then.
func (b *bazaar) verifyWritten(finish func()) {
	b.r.t.Helper()
	var missing []string
	for round := range rounds {
		b.evictQuiet()
		for n := 1; n <= quiet; n++ {
			testbed.Must(b.r.t, b.transact(func(x *tx) error { return b.changeQuiet(x, n, round) }))
		}
		finish()
		if missing = b.missingQuiet(); len(missing) == 0 {
			b.r.t.Logf("all values were written after %d rounds", round+1)
			return
		}
		b.r.t.Logf("round %d: not written: %s", round+1, strings.Join(missing, ", "))
	}
	b.r.t.Errorf("in %d rounds, with nobody else at work, these were not written: %s", rounds, strings.Join(missing, ", "))
}

// evictQuiet takes the keys away, or fills them where freshet only writes what is there.
func (b *bazaar) evictQuiet() {
	b.r.t.Helper()
	ctx, rdb := b.r.t.Context(), b.r.redis.Client()
	for _, key := range b.keysOfQuiet() {
		switch shapeOf(key) {
		case "tag:*", "board:*":
			testbed.Must(b.r.t, rdb.Unlink(ctx, key).Err())
			testbed.Must(b.r.t, b.fill(ctx, key))
		case "user:*":
			testbed.Must(b.r.t, rdb.HDel(ctx, key, "profile", "name").Err())
		default:
			testbed.Must(b.r.t, rdb.Unlink(ctx, key).Err())
		}
	}
}

// changeQuiet changes one row of each table.
func (b *bazaar) changeQuiet(x *tx, n, round int) error {
	tag := n % tags
	return errors.Join(
		b.upsertItem(x, n, n%kinds, true, fmt.Sprintf("quiet %d", round)),
		b.upsertProfile(x, n),
		x.change("shop.member", fmt.Sprintf("tag = %d", tag),
			fmt.Sprintf("INSERT IGNORE INTO shop.member VALUES (%d, %d)", tag, 1000*(round+1)+n)),
		b.upsertScore(x, n%games, n),
	)
}

// missingQuiet returns the keys that were not written. One that does not hold what its rows say fails the test.
func (b *bazaar) missingQuiet() (missing []string) {
	b.r.t.Helper()
	ctx := b.r.t.Context()
	for _, key := range b.keysOfQuiet() {
		want, _, err := b.rowValue(ctx, b.r.source.DB(), key)
		testbed.Must(b.r.t, err)
		have, err := held(ctx, b.r.redis.Client(), key, want.kind == "json")
		testbed.Must(b.r.t, err)
		if shapeOf(key) == "user:*" { // profile is removed, not set, and one field no row owns
			row := want.data.(map[string]string)
			delete(row, "profile")
			row[neighbour] = neighbourString
			if fields, ok := have.data.(map[string]string); ok && fields["name"] == "" {
				missing = append(missing, key)
				continue
			}
		}
		switch {
		case have.kind == "none":
			missing = append(missing, key)
		case !reflect.DeepEqual(have, want):
			b.r.t.Errorf("%s was changed while all was quiet. It holds %s %v, its rows say %s %v", key, have.kind, have.data,
				want.kind, want.data)
		}
	}
	return missing
}

// keysOfQuiet are the keys that verifyWritten looks at.
func (b *bazaar) keysOfQuiet() []string {
	all := map[string]bool{}
	for n := 1; n <= quiet; n++ {
		for _, key := range []string{
			fmt.Sprintf("item:%d", n), fmt.Sprintf("item:%d:hash", n), fmt.Sprintf("item:%d:text", n),
			fmt.Sprintf("kind:%d:stats", n%kinds), fmt.Sprintf("kind:%d:list", n%kinds), fmt.Sprintf("kind:%d:top", n%kinds),
			fmt.Sprintf("user:%d", n), fmt.Sprintf("tag:%d", n%tags), fmt.Sprintf("board:%d", n%games),
		} {
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The checker itself: it must find each kind of wrong value, or what it says of freshet means nothing.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	b := newBazaar(newRig(t, testbed.MariaDB(t)), 1)
	b.r.source.Exec(t, actionSchema...)
	b.seed()
	ctx, rdb := t.Context(), b.r.redis.Client()
	for _, key := range []string{
		"item:1", "item:1:hash", "item:1:text", "kind:1:stats", "kind:1:list", "kind:1:top",
		"user:1", "tag:1", "board:1", "setting:1",
	} {
		testbed.Must(t, b.fill(ctx, key))
		if problem, err := b.compare(ctx, key); problem != "" || err != nil {
			t.Errorf("%s is as its rows are, and yet: %s %v", key, problem, err)
		}
	}
	wrong := map[string]func() error{
		"a document with an old version": func() error {
			return rdb.Set(ctx, "item:2", strings.Replace(b.encoded(ctx, "item:2"), `"version":`, `"version":1`, 1), 0).Err()
		},
		"a number as a text": func() error {
			return rdb.Set(ctx, "item:3", strings.Replace(b.encoded(ctx, "item:3"), `"id":3`, `"id":"3"`, 1), 0).Err()
		},
		"a document that lacks a member": func() error {
			return rdb.Set(ctx, "item:4", strings.Replace(b.encoded(ctx, "item:4"), `"id":4,`, ``, 1), 0).Err()
		},
		"a negative entry for a row that is": func() error { return rdb.Set(ctx, "item:5", "gone", 0).Err() },
		"a value for a row that is not": func() error {
			return rdb.Set(ctx, "item:900:text", "x",
				0).Err()
		},
		"a value that never expires, of a row that is not": func() error { return rdb.Set(ctx, "item:901", "{}", 0).Err() },
		"an old field": func() error {
			return rdb.HSet(ctx, "user:2", neighbour, neighbourString, "name",
				"old").Err()
		},
		"a field of a row that is not": func() error {
			return rdb.HSet(ctx, "user:900", neighbour, neighbourString, "name",
				"x").Err()
		},
		"a neighbour that is gone": func() error {
			return errors.Join(b.fill(ctx, "user:3"), rdb.HDel(ctx, "user:3", neighbour).Err())
		},
		"a hash with a field too many": func() error { return rdb.HSet(ctx, "item:6:hash", "id", 6).Err() },
		"a set that lacks members":     func() error { return rdb.SAdd(ctx, "tag:2", 1).Err() },
		"a board with an old score": func() error {
			return rdb.ZAdd(ctx, "board:2",
				redis.Z{Score: -1, Member: "1"}).Err()
		},
		"a string that should be a set": func() error { return rdb.Set(ctx, "tag:3", "x", 0).Err() },
		"an old setting":                func() error { return rdb.Set(ctx, "setting:2", "old", 0).Err() },
		"an old count":                  func() error { return rdb.HSet(ctx, "kind:2:stats", "n", 0, "newest", 1).Err() },
		"an old list":                   func() error { return rdb.Set(ctx, "kind:3:list", "[]", 0).Err() },
		"a key of nobody":               func() error { return rdb.Set(ctx, "item:1:copy", "x", 0).Err() },
		"a companion that never goes":   func() error { return rdb.Set(ctx, "freshet:v:{item:1}", "x", 0).Err() },
		"a value that lives for too long": func() error {
			return rdb.Set(ctx, "item:7", b.encoded(ctx, "item:7"),
				2*time.Hour).Err()
		},
		"a temporary key that never goes": func() error { return rdb.HSet(ctx, "freshet:t:{x}:1", "a", "b").Err() },
	}
	for what, do := range wrong {
		before := b.problems(ctx)
		testbed.Must(t, do())
		if after := b.problems(ctx); len(after) != len(before)+1 {
			t.Errorf("%s is not found: %v", what, after)
		}
	}
}

// problems returns what is wrong with all keys.
func (b *bazaar) problems(ctx context.Context) (all []string) {
	b.r.t.Helper()
	keys, err := b.r.redis.Client().Keys(ctx, "*").Result()
	testbed.Must(b.r.t, err)
	for _, key := range keys {
		problem, err := b.compare(ctx, key)
		testbed.Must(b.r.t, err)
		if problem != "" {
			all = append(all, key+" "+problem)
		}
	}
	return all
}
