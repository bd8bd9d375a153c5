package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// throughFreshet returns the keys per second, from the commit on.
func (b *benchmark) throughFreshet(ctx context.Context, a *action) (rate float64, err error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.fill(ctx, true); err != nil {
		return 0, err
	}
	mapping := fmt.Sprintf("  - table: shop.%s\n    %s\n", a.table, a.mapping)
	err = b.while(ctx, together(setting{mappings: mapping}), func(ctx context.Context, _ []int) error {
		r := actionRun{action: a, rdb: b.redis.Client(), db: source.DB()}
		rate, err = r.rate(ctx)
		return err
	})
	return rate, err
}

// actionRun is what changes an action's rows while freshet follows.
type actionRun struct {
	*action
	rdb   *redis.Client
	db    *sql.DB
	stock int // of the rows that were changed last
}

// rate changes all rows until all were written, not just forgotten, and returns how many were so in a second. The first
// time does not count: freshet may not have begun by then, and of a key that it does not know it cannot say whether
// something newer was there, so it forgets. It trusts what it has noted of a key after a few seconds.
func (r *actionRun) rate(ctx context.Context) (float64, error) {
	if err := r.db.QueryRowContext(ctx, "SELECT MAX(stock) FROM shop."+r.table).Scan(&r.stock); err != nil {
		return 0, err
	}
	for pass := range maxPasses {
		took, err := r.all(ctx)
		if err != nil {
			return 0, err
		}
		if took < writtenWithin && pass > 0 {
			return float64(r.rows) / took.Seconds(), nil
		}
	}
	return 0, fmt.Errorf("%w: %d times freshet did not write, but forget: this machine is too slow, or too busy",
		errInvalid, maxPasses)
}

const (
	// writtenWithin is the age after which a change is forgotten instead of written: longer than any may be written.
	writtenWithin = 7 * time.Second
	maxPasses     = 4
)

// all changes all rows in one transaction, and returns how long it took from then on until they were written, at most
// writtenWithin.
func (r *actionRun) all(ctx context.Context) (time.Duration, error) {
	if r.fill != nil {
		if err := r.fill(ctx, r.rdb); err != nil {
			return 0, err
		}
	}
	for _, id := range r.sample() {
		if err := r.spoil(ctx, r.rdb, id); err != nil {
			return 0, err
		}
	}
	r.stock++
	if _, err := r.db.ExecContext(ctx, fmt.Sprintf("UPDATE shop.%s SET stock = %d", r.table, r.stock)); err != nil {
		return 0, err
	}
	begin := time.Now()
	for _, id := range r.sample() {
		for {
			done, err := r.written(ctx, r.rdb, id, r.stock)
			if err != nil && !errors.Is(err, redis.Nil) {
				return 0, err
			}
			if done {
				break
			}
			if time.Since(begin) > writtenWithin {
				return writtenWithin, nil
			}
			if err := pause(ctx, 2*time.Millisecond); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(begin), nil
}

// sample is what of the rows is looked at: the last, for they are written in their order, and then a hundred others.
func (r *actionRun) sample() []int {
	ids := []int{r.rows}
	for id := 1; id < r.rows; id += r.rows / 100 {
		ids = append(ids, id)
	}
	return ids
}
