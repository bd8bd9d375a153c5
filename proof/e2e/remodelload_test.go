package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// load begins to write and read tables.
func (r *remodel) load(tables []*modelled) {
	r.clients.r = r.rig
	seed := r.rnd.Uint64()
	r.writers.start(testbed.Cut(2, 4), func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return r.clients.loop(ctx, func() error { return r.write(ctx, pick(rnd, tables), rnd) })
	})
	r.readers.start(testbed.Cut(8, 16), func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed+1, uint64(i)))
		return r.clients.loop(ctx, func() error { return r.read(ctx, pick(rnd, tables), rnd) })
	})
}

// write changes rows in a transaction. That it is refused is no fault: columns come and go.
func (r *remodel) write(ctx context.Context, m *modelled, rnd *rand.Rand) error {
	x, err := r.source.DB().BeginTx(ctx, nil)
	if err != nil {
		return ignoring(ctx, err)
	}
	for range 1 + rnd.IntN(2) {
		if _, err = x.ExecContext(ctx, m.in(r.statement(rnd))); err != nil {
			break
		}
	}
	if err != nil {
		_ = x.Rollback()
	} else {
		err = x.Commit()
	}
	if refusal(err) || ctx.Err() != nil {
		r.refused.Add(1)
		return nil
	}
	if err == nil {
		r.written.Add(1)
	}
	return err
}

// ignoring is err unless the test is over.
func ignoring(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// statement is one that changes rows of TABLE1: of a is what begins with a, of b with bé, n is even and small, m is odd
// and large, c is small.
func (r *remodel) statement(rnd *rand.Rand) string {
	id, c := 1+rnd.IntN(modelRows), 1+rnd.IntN(kindsOfC)
	row := func(id int) string {
		v := r.value.Add(1)
		return fmt.Sprintf("(%d, 'a%d', 'x%d', %d, 'bé%d', %d, %d)", id, v, v, 2*v, v, 1000000001+2*v, 1+rnd.IntN(kindsOfC))
	}
	into := "INTO TABLE1 (id, a, x, n, b, m, c) VALUES "
	n := 2 * r.value.Add(1)
	switch rnd.IntN(10) {
	case 0:
		return fmt.Sprintf("DELETE FROM TABLE1 WHERE id = %d", id)
	case 1:
		return fmt.Sprintf("UPDATE TABLE1 SET n = %d WHERE id = %d", n, id)
	case 2:
		return fmt.Sprintf("UPDATE TABLE1 SET n = %d WHERE c = %d", n, c)
	case 3:
		return fmt.Sprintf("UPDATE TABLE1 SET b = 'bé%d', c = %d WHERE id = %d", n, c, id)
	case 4:
		return fmt.Sprintf("UPDATE TABLE1 SET id = %d WHERE id = %d", 1+rnd.IntN(modelRows), id)
	case 5:
		return "REPLACE " + into + row(id) + ", " + row(1+id%modelRows)
	case 6:
		return "INSERT " + into + row(id) + " ON DUPLICATE KEY UPDATE a = VALUES(a), n = VALUES(n), c = VALUES(c)"
	}
	return "REPLACE " + into + row(id)
}

// read is cache-aside, slow on purpose. A value that is there must be of the right columns, both from freshet and
// from readers.
func (r *remodel) read(ctx context.Context, m *modelled, rnd *rand.Rand) error {
	key := fmt.Sprintf("%s:%d", m.name, 1+rnd.IntN(modelRows))
	if rnd.IntN(4) == 0 {
		key = fmt.Sprintf("%s:of:%d", m.name, 1+rnd.IntN(kindsOfC))
	}
	rdb := r.redis.Client()
	found, err := rdb.Get(ctx, key).Result()
	if err == nil && !m.loose && !wellFormed(key, found) {
		r.mixed.Store(key, found)
	}
	if !errors.Is(err, redis.Nil) {
		return err
	}
	start := time.Now()
	value, err := r.row(ctx, m, key)
	if refusal(err) {
		return nil
	}
	if err != nil || !inTime(ctx, rnd, start) {
		return err
	}
	r.fills.Add(1)
	return rdb.Set(context.WithoutCancel(ctx), key, value, 0).Err()
}

var modelValue = regexp.MustCompile(`^(\d+)/a\d+/bé\d+/\d*[02468](?:\.00)?/1\d{8}[13579]/[1-8]$`)

// wellFormed reports whether what is cached is made of the right columns.
func wellFormed(key, value string) bool {
	table, id, _ := strings.Cut(key, ":")
	if table == "" || strings.HasPrefix(id, "of:") || value == none {
		return true
	}
	found := modelValue.FindStringSubmatch(value)
	return found != nil && strings.TrimLeft(found[1], "0") == id
}

// row returns what is cached under a key.
func (r *remodel) row(ctx context.Context, m *modelled, key string) (value string, err error) {
	var n int
	query := "SELECT CONCAT_WS('/', id, a, b, n, m, c) FROM TABLE1 WHERE id = %d"
	if exactly(key, m.name+":of:%d", &n) {
		query = "SELECT CONCAT_WS('/', COUNT(*), COALESCE(SUM(n + id), 0)) FROM TABLE1 WHERE c = %d"
	} else if !exactly(key, m.name+":%d", &n) {
		return "", fmt.Errorf("%s is no key of %s", key, m.full())
	}
	err = r.source.DB().QueryRowContext(ctx, m.in(fmt.Sprintf(query, n))).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return none, nil
	}
	return value, err
}

// compare compares what is cached of tables with their rows.
func (r *remodel) compare(tables []*modelled) (c compared) {
	r.t.Helper()
	ctx := r.t.Context()
	for _, m := range tables {
		keys, err := r.redis.Client().Keys(ctx, m.name+":*").Result()
		testbed.Must(r.t, err)
		for _, key := range keys {
			have, err := r.redis.Client().Get(ctx, key).Result()
			testbed.Must(r.t, err)
			want, err := r.row(ctx, m, key)
			testbed.Must(r.t, err)
			c.cached++
			if have == want {
				continue
			}
			c.stale = append(c.stale, fmt.Sprintf("%s (%s) is cached as %q, its row says %q", key, m.change.name, have, want))
			if want == none {
				c.gone++
			}
		}
	}
	return c
}

// writesAll changes a row of each table while nobody else reads or writes, and fails the test unless freshet writes
// its value and deletes its list: a table that it has given up would not be stale either. Where Redis was slow to
// answer, it forgets instead: so it is tried some times.
func (r *remodel) writesAll(tables []*modelled) {
	r.t.Helper()
	ctx, rdb := r.t.Context(), r.redis.Client()
	var missing []string
	for range rounds {
		missing = nil
		for _, m := range tables {
			testbed.Must(r.t, rdb.Set(ctx, m.name+":of:1", "old", 0).Err())
			testbed.Must(r.t, rdb.Unlink(ctx, m.name+":1").Err())
			v := r.value.Add(1)
			r.source.Exec(r.t, m.in("DELETE FROM TABLE1 WHERE id = 1"),
				m.in(fmt.Sprintf("INSERT INTO TABLE1 (id, a, n, b, c) VALUES (1, 'a%d', %d, 'bé%d', 1)", v, 2*v, v)))
		}
		r.finish(3 * time.Minute)
		for _, m := range tables {
			want, err := r.row(ctx, m, m.name+":1")
			testbed.Must(r.t, err)
			have, err := rdb.Get(ctx, m.name+":1").Result()
			if errors.Is(err, redis.Nil) {
				missing = append(missing, m.change.name)
			} else if testbed.Must(r.t, err); have != want {
				r.t.Errorf("%s: %s was changed while all was quiet. It holds %q, its row says %q", m.change.name, m.name, have, want)
			}
			if n := rdb.Exists(ctx, m.name+":of:1").Val(); n > 0 {
				r.t.Errorf("%s: %s:of:1 was not deleted", m.change.name, m.name)
			}
		}
		if len(missing) == 0 {
			return
		}
	}
	r.t.Errorf("in %d rounds, with nobody else at work, the values of these were not written: %s", rounds,
		strings.Join(missing, ", "))
}
