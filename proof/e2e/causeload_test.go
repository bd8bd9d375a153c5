package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// load begins to write and read tables.
func (u *unrest) load(tables ...*shelved) {
	u.clients.r = u.answering.rig
	seed := u.rnd.Uint64()
	u.writers.start(testbed.Cut(2, 4), func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return u.clients.loop(ctx, func() error { return u.write(ctx, pick(rnd, tables), rnd) })
	})
	for n, s := range u.shelves() {
		s.clients.r = s.rig
		s.readers.start(testbed.Cut(8, 16), func(ctx context.Context, i int) error {
			rnd := rand.New(rand.NewPCG(seed+1+uint64(n), uint64(i)))
			return s.clients.loop(ctx, func() error { return u.read(ctx, s, pick(rnd, tables), rnd) })
		})
	}
}

// refusal reports whether a server has refused a statement. Clients get many while tables come and go.
func refusal(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

// write changes a row.
func (u *unrest) write(ctx context.Context, t *shelved, rnd *rand.Rand) error {
	number, statements := 1+rnd.IntN(lively), t.put
	if rnd.IntN(4) == 0 {
		statements = []string{t.drop}
	}
	u.writing.RLock()
	err := u.run(ctx, t, number, statements)
	u.writing.RUnlock()
	if refusal(err) || ctx.Err() != nil {
		u.refused.Add(1)
		return nil
	}
	u.written.Add(1)
	return err
}

// run has the source run statements about a row of a table.
func (u *unrest) run(ctx context.Context, t *shelved, number int, statements []string) error {
	for _, s := range statements {
		if strings.Contains(s, "%[2]d") {
			s = fmt.Sprintf(s, number, u.value.Add(1))
		} else {
			s = fmt.Sprintf(s, number)
		}
		if _, err := t.in(u.leads.Load()).DB().ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// read is cache-aside, slow on purpose.
func (u *unrest) read(ctx context.Context, s *shelf, t *shelved, rnd *rand.Rand) error {
	number, rdb := 1+rnd.IntN(lively), s.cache()
	if err := rdb.Get(ctx, t.key(number)).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	start := time.Now()
	value, err := u.row(ctx, u.filling.Load(), t, number)
	if refusal(err) {
		return nil
	}
	if err != nil || !inTime(ctx, rnd, start) {
		return err
	}
	s.fills.Add(1)
	return rdb.Set(context.WithoutCancel(ctx), t.key(number), value, 0).Err()
}

// none is what is cached of a row that is not there.
const none = "none"

// row returns what is cached of a row, as a server of the source has it.
func (u *unrest) row(ctx context.Context, server *testbed.Server, t *shelved, number int) (value string, err error) {
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %d", t.value, t.full(), t.number, number)
	err = t.in(server).DB().QueryRowContext(ctx, query).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return none, nil
	}
	return value, err
}

// compare compares what a shelf has of tables with their rows.
func (u *unrest) compare(s *shelf, tables ...*shelved) (c compared) {
	u.t.Helper()
	ctx := u.t.Context()
	for _, t := range tables {
		keys, err := s.cache().Keys(ctx, t.name+":*").Result()
		testbed.Must(u.t, err)
		for _, key := range keys {
			number, is := t.keyed(key)
			if !is {
				u.t.Fatalf("%s is no key of %s", key, t.full())
			}
			have, err := s.cache().Get(ctx, key).Result()
			if errors.Is(err, redis.Nil) { // forgotten just now, by an answer that takes long
				continue
			}
			testbed.Must(u.t, err)
			want, err := u.row(ctx, u.source, t, number)
			testbed.Must(u.t, err)
			c.cached++
			if have == want {
				continue
			}
			c.stale = append(c.stale, fmt.Sprintf("%.60s is cached as %q, its row says %q", key, have, want))
			if want == none {
				c.gone++
			}
		}
	}
	return c
}
