package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// journal records, for every committed change, the keys that it makes stale, as the database itself spells them,
// and when its commit had returned.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct {
	key       string
	committed time.Time
}

var schema = []string{
	"CREATE DATABASE shop CHARACTER SET utf8mb4",
	`CREATE TABLE shop.product (id INT UNSIGNED NOT NULL PRIMARY KEY, category_id INT NOT NULL, name VARCHAR(40) NOT NULL,
		version INT NOT NULL DEFAULT 1, KEY (category_id))`,
	"CREATE TABLE shop.note (id BIGINT NOT NULL PRIMARY KEY, body TEXT)",
	"CREATE TABLE shop.other (id INT PRIMARY KEY AUTO_INCREMENT, x INT)",
}

// tx is one transaction under way, with the keys that it has made stale so far.
type tx struct {
	*sql.Conn
	ctx  context.Context
	keys map[string]bool
}

// keysOf says which keys the rows of a table that match where have, computed by the database.
var keysOf = map[string]string{
	"shop.product": "SELECT CONCAT('product:', id) FROM shop.product WHERE %[1]s UNION SELECT CONCAT('category:', " +
		"category_id, ':products') FROM shop.product WHERE %[1]s",
	"shop.note": "SELECT CONCAT('note:', id) FROM shop.note WHERE %[1]s",
	"shop.item": `SELECT CONCAT('item:', id) FROM shop.item WHERE %[1]s UNION SELECT CONCAT('item:', id, ':hash') FROM shop.item WHERE %[1]s
		UNION SELECT CONCAT('item:', id, ':text') FROM shop.item WHERE live = 1 AND (%[1]s)
		UNION SELECT CONCAT('kind:', kind, ':stats') FROM shop.item WHERE %[1]s UNION SELECT CONCAT('kind:', kind, ':list') FROM shop.item WHERE %[1]s
		UNION SELECT CONCAT('kind:', kind, ':top') FROM shop.item WHERE %[1]s UNION SELECT 'items:gen' FROM shop.item WHERE %[1]s`,
	"shop.profile": "SELECT CONCAT('user:', user_id) FROM shop.profile WHERE %[1]s",
	"shop.member":  "SELECT CONCAT('tag:', tag) FROM shop.member WHERE %[1]s",
	"shop.score":   "SELECT CONCAT('board:', game) FROM shop.score WHERE %[1]s",
	"shop.setting": "SELECT CONCAT('setting:', id) FROM shop.setting WHERE %[1]s",
}

// change runs a statement that changes the rows of table which match where (before it, after it, or both), and
// notes their keys. One that changes no row is no change.
func (x *tx) change(table, where, statement string, args ...any) error {
	before, err := x.stale(table, where)
	if err != nil {
		return err
	}
	result, err := x.ExecContext(x.ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	after, err := x.stale(table, where)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if n > 0 {
		for _, key := range append(before, after...) {
			x.keys[key] = true
		}
	}
	return err
}

// stale returns the keys of the rows of table that match where.
func (x *tx) stale(table, where string) (keys []string, err error) {
	rows, err := x.QueryContext(x.ctx, fmt.Sprintf(keysOf[table], where))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

func (x *tx) exec(statement string) error {
	_, err := x.ExecContext(x.ctx, statement)
	return err
}

// transact runs body between begin and end (BEGIN and COMMIT, or XA statements, or nothing) and records its keys
// when end has returned.
func (j *journal) transact(ctx context.Context, db *sql.DB, begin, end []string, body func(*tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	x := &tx{Conn: conn, ctx: ctx, keys: map[string]bool{}}
	for _, s := range begin {
		if err := x.exec(s); err != nil {
			return err
		}
	}
	if err := body(x); err != nil {
		return errors.Join(err, x.exec("ROLLBACK"))
	}
	for _, s := range end {
		if err := x.exec(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	committed := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range x.keys {
		j.entries = append(j.entries, entry{k, committed})
	}
	return nil
}

var begin, commit = []string{"BEGIN"}, []string{"COMMIT"}

// acting are the commands that act on a key: deletes, and the scripts of the other actions.
var acting = []string{"UNLINK", "DEL", "HDEL", "EVALSHA", "EVAL"}

// verify fails the test unless every key of every committed change has an acknowledged action that was sent after
// the commit and after since.
func (j *journal) verify(r *rig, since time.Time) {
	r.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.entries) == 0 {
		r.t.Fatal("nothing was changed, so nothing is shown")
	}
	acks := map[string]time.Time{} // when the last acknowledged action on a key was sent
	for _, k := range r.resp.Keys() {
		for _, a := range r.resp.Acks(k) {
			if slices.Contains(acting, a.Command) && a.Err == "" && !a.Acked.IsZero() && a.Sent.After(acks[k]) {
				acks[k] = a.Sent
			}
		}
	}
	missing := 0
	for _, e := range j.entries {
		need := e.committed
		if since.After(need) {
			need = since
		}
		if acks[e.key].After(need) {
			continue
		}
		if missing++; missing <= 10 {
			r.t.Errorf("%s: committed at %s, but the last acknowledged action was sent at %s", e.key,
				need.Format(time.StampMicro), acks[e.key].Format(time.StampMicro))
		}
	}
	if missing > 0 {
		r.t.Fatalf("%d of %d changes have no acknowledged action after their commit", missing, len(j.entries))
	}
}

// verifyCache fails the test if a cached product or note differs from its row.
func (r *rig) verifyCache() {
	r.t.Helper()
	r.compareCache().verify(r.t)
}

// stamp is what the name of the key begins with in which freshet says how old Redis' data is.
const stamp = "freshet:stamp:"

// compared is what a comparison of all that is cached with its rows has found.
type compared struct {
	stale  []string // what is wrong, of each stale key
	gone   int      // how many of them are of rows that are gone
	cached int
}

// verify fails the test if a key is stale.
func (c compared) verify(t *testing.T) {
	t.Helper()
	t.Log(c)
	if c.cached == 0 {
		t.Fatal("nothing is cached, so nothing is shown")
	}
	if n := len(c.stale); n > 0 {
		t.Fatalf("%d of %d cached keys are stale:\n%s", n, c.cached, strings.Join(c.stale[:min(10, n)], "\n"))
	}
}

// String says how many keys are stale.
func (c compared) String() string {
	return fmt.Sprintf("stale keys: %d of %d, of rows that are gone: %d", len(c.stale), c.cached, c.gone)
}

// compareCache compares every cached product and note with its row. freshet's own keys are none.
func (r *rig) compareCache() (c compared) {
	r.t.Helper()
	ctx := r.t.Context()
	it := r.redis.Client().Scan(ctx, 0, "*", 1000).Iterator()
	for it.Next(ctx) {
		key := it.Val()
		if strings.HasPrefix(key, "freshet:") {
			continue
		}
		have, err := r.redis.Client().Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		testbed.Must(r.t, err)
		want, err := rowOf(ctx, r.source.DB(), key)
		testbed.Must(r.t, err)
		c.cached++
		if have == want {
			continue
		}
		c.stale = append(c.stale, fmt.Sprintf("%s is cached as %q, its row says %q", key, have, want))
		if want == "none" {
			c.gone++
		}
	}
	testbed.Must(r.t, it.Err())
	return c
}

// rowOf returns what a reader caches under a key.
func rowOf(ctx context.Context, db *sql.DB, key string) (string, error) {
	var id int
	var query string
	switch {
	case scan(key, "product:%d", &id):
		query = "SELECT COALESCE((SELECT CONCAT(id, '/', category_id, '/', version) FROM shop.product WHERE id = %d), 'none')"
	case scan(key, "category:%d:products", &id):
		query = "SELECT COALESCE(GROUP_CONCAT(CONCAT(id, '/', version) ORDER BY id), 'none') FROM shop.product WHERE " +
			"category_id = %d"
	case scan(key, "note:%d", &id):
		query = "SELECT COALESCE((SELECT body FROM shop.note WHERE id = %d), 'none')"
	default:
		return "", fmt.Errorf("%s is not a key of these tests", key)
	}
	var value string
	// In one round trip: with an argument there are three, to prepare the query and to close it.
	err := db.QueryRowContext(ctx, fmt.Sprintf(query, id)).Scan(&value)
	return value, err
}

func scan(key, format string, id *int) bool {
	_, err := fmt.Sscanf(key, format, id)
	return err == nil
}
