package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
)

const (
	// population is how many keys Redis holds. One in a hundred is a row's; of the others one half begins alike.
	population = 10_000_000
	// readRate is how many GETs a second a reader of Redis makes.
	readRate = 500
	// page is the COUNT of the SCANs that freshet is compared with. It is freshet's, too.
	page = 200
	// block is how many keys an MSET makes, or an EXISTS asks for.
	block = 500
)

// cached are the keys in Redis: the first are product:{id} of the rows 1 to mapped, which are to be forgotten. All
// others are to stay.
type cached struct{ all, mapped int }

// scopeSection measures what it takes to forget all keys of a table among many others, and what readers notice of it.
func (b *benchmark) scopeSection() *section {
	blocks := max(40, int(population*b.scale)/block)
	c := cached{all: blocks * block, mapped: blocks * block / 100}
	const quiet, bare, still = "quiet", "bare SCAN and UNLINK", "deletes, no scope"
	return &section{
		name: "scope",
		title: fmt.Sprintf("forgetting %s keys of a table among %s in Redis, and %d GETs a second meanwhile",
			number(float64(c.mapped)), number(float64(c.all)), readRate),
		setup: func(ctx context.Context, b *benchmark) error {
			if err := b.ownRedis(ctx); err != nil {
				return err
			}
			fmt.Printf("  making %s keys ...\n", number(float64(c.all)))
			return c.make(ctx, b.redis.Client(), c.all)
		},
		contenders: []*contender{
			c.quiet(quiet),
			c.bare(bare, quiet),
			c.freshet("freshet, default rate", "", quiet, bare),
			c.freshet("freshet, unlimited", "scope_rate: 1000000000\n", quiet, bare),
			c.live(still, false, ""),
			c.live("deletes during a scope", true, still),
		},
		rounds: 1, noWarmUp: true, // with ten million keys one takes some ten minutes
	}
}

// key returns one of the keys.
func (c cached) key(i int) string {
	switch {
	case i < c.mapped:
		return "product:" + strconv.Itoa(i+1)
	case i%2 == 0:
		return "product:" + strconv.Itoa(i) + ":reviews"
	}
	return c.stranger(i)
}

// stranger is a key that no mapping's key begins like, for odd numbers from mapped on.
func (c cached) stranger(i int) string { return "session:" + strconv.Itoa(i) }

// make makes the first n keys, with values that are short: a SCAN does not look at them.
func (c cached) make(ctx context.Context, rdb *redis.Client, n int) error {
	mset := func(from int) []any {
		words := []any{"mset"}
		for i := from * block; i < min((from+1)*block, n); i++ {
			words = append(words, c.key(i), "cached")
		}
		return words
	}
	blocks := (n + block - 1) / block
	for from := 0; from < blocks; from += 10 {
		if err := pipeline(ctx, rdb, mset, from, min(from+10, blocks)); err != nil {
			return err
		}
	}
	return nil
}

// check is nil if exactly those keys are gone that had to be.
func (c cached) check(ctx context.Context, rdb *redis.Client) error {
	var left int64
	for from := 0; from < c.mapped; from += block {
		var keys []string
		for i := from; i < min(from+block, c.mapped); i++ {
			keys = append(keys, c.key(i))
		}
		n, err := rdb.Exists(ctx, keys...).Result()
		if err != nil {
			return err
		}
		left += n
	}
	size, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	own := int64(0) // freshet keeps a stamp for each source that it has read
	stamps := rdb.Scan(ctx, 0, "freshet:stamp:*", 10_000).Iterator()
	for stamps.Next(ctx) {
		own++
	}
	if err := stamps.Err(); err != nil {
		return err
	}
	if others := size - left - own; left > 0 || others != int64(c.all-c.mapped) {
		return fmt.Errorf("%w: %d keys of rows are left, and of %d others %d", errInvalid, left, c.all-c.mapped, others)
	}
	return nil
}

// reads are GETs of keys that stay, each at its time, and how long each took in milliseconds.
type reads []float64

// during reads until f ends.
func (c cached) during(ctx context.Context, b *benchmark, f func(ctx context.Context) error) (ms reads, err error) {
	rdb := b.redis.NewClient(&redis.Options{PoolSize: 1})
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil { // connects
		return nil, err
	}
	done := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(done)
		return f(ctx)
	})
	g.Go(func() error {
		begin := time.Now()
		for i := 1; ; i++ {
			at := begin.Add(time.Duration(i) * time.Second / readRate)
			late := time.Now().After(at) // the GET before has kept this one waiting, which counts
			select {
			case <-done:
				return nil
			case <-time.After(time.Until(at)):
			}
			if !late {
				at = time.Now()
			}
			key := c.stranger((c.mapped + rand.IntN(c.all-c.mapped)) | 1)
			if err := rdb.Get(ctx, key).Err(); err != nil {
				return fmt.Errorf("GET %s: %w", key, err)
			}
			ms = append(ms, time.Since(at).Seconds()*1000)
		}
	})
	err = g.Wait()
	return ms, err
}

// measures are those of the reads, divided by those of another contender if there is one.
func (ms reads) measures(of, goal string) []measure {
	if len(ms) == 0 {
		return nil
	}
	slices.Sort(ms)
	return []measure{
		{name: "GET p50 ms", value: ms[len(ms)/2], of: of},
		{name: "GET p90 ms", value: ms[len(ms)*9/10], of: of},
		{name: "GET p99 ms", value: ms[len(ms)*99/100], of: of, goal: goal},
	}
}

// quiet reads while nothing else goes on.
func (c cached) quiet(name string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		ms, err := c.during(ctx, b, func(ctx context.Context) error {
			return pause(ctx, 20*time.Second) // at every scale: stalls are rare, and a p99 shows them
		})
		return ms.measures("", ""), err
	}}
}

// bare goes through all keys once, as fast as one connection can.
func (c cached) bare(name, quiet string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		if err := c.make(ctx, b.redis.Client(), c.mapped); err != nil {
			return nil, err
		}
		var took time.Duration
		if err := b.redis.Client().ConfigResetStat(ctx).Err(); err != nil {
			return nil, err
		}
		ms, err := c.during(ctx, b, func(ctx context.Context) error {
			begin := time.Now()
			err := scanAndUnlink(ctx, b.redis.Client())
			took = time.Since(begin)
			return err
		})
		if err != nil {
			return nil, err
		}
		scan, err := scanTime(ctx, b.redis.Client())
		if err != nil {
			return nil, err
		}
		return append([]measure{
			{name: "s", value: took.Seconds()},
			{name: "keys/s looked at", value: float64(c.all) / took.Seconds()},
			{name: "ms of Redis a SCAN", value: scan},
		}, ms.measures(quiet, "")...), c.check(ctx, b.redis.Client())
	}}
}

var scanCalls = regexp.MustCompile(`(?m)^cmdstat_scan:.*usec_per_call=([0-9.]+)`)

// scanTime returns how long Redis has taken for a SCAN since its statistics were reset, in milliseconds. For so long
// nobody else is served.
func scanTime(ctx context.Context, rdb *redis.Client) (float64, error) {
	stats, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	m := scanCalls.FindStringSubmatch(stats)
	if m == nil {
		return 0, fmt.Errorf("%w: Redis knows of no SCAN", errInvalid)
	}
	us, err := strconv.ParseFloat(m[1], 64)
	return us / 1000, err
}

// scanAndUnlink deletes what looks like a row's key. The UNLINK of a page goes with the SCAN of the next one.
func scanAndUnlink(ctx context.Context, rdb *redis.Client) error {
	for cursor, found := uint64(0), []string(nil); ; {
		p := rdb.Pipeline()
		if len(found) > 0 {
			p.Unlink(ctx, found...)
		}
		scan := p.Scan(ctx, cursor, "product:*", page)
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		found, cursor = scan.Val()
		found = slices.DeleteFunc(found, func(key string) bool {
			_, err := strconv.Atoi(strings.TrimPrefix(key, "product:"))
			return err != nil
		})
		if cursor != 0 {
			continue
		}
		if len(found) == 0 {
			return nil
		}
		return rdb.Unlink(ctx, found...).Err()
	}
}

// freshet has freshet forget the keys, as `freshet invalidate --table` does: in two passes over all keys.
func (c cached) freshet(name, rate, quiet, bare string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) (m []measure, err error) {
		err = b.whileForgetting(ctx, setting{more: rate}, func(ctx context.Context, f *forgetting) error {
			if err := f.begun(ctx, b, c); err != nil {
				return err
			}
			if err := b.redis.Client().ConfigResetStat(ctx).Err(); err != nil {
				return err
			}
			before, err := usageOf(f.pid)
			if err != nil {
				return err
			}
			var took time.Duration
			peak := before
			ms, err := c.during(ctx, b, func(ctx context.Context) (err error) {
				begin := time.Now()
				peak, err = f.forget(ctx, admin.Scope{Tables: []string{"shop.product"}})
				took = time.Since(begin)
				return err
			})
			if err != nil {
				return err
			}
			scan, err := scanTime(ctx, b.redis.Client())
			m = append([]measure{
				{name: "s", value: took.Seconds(), of: bare},
				{name: "keys/s looked at", value: 2 * float64(c.all) / took.Seconds(), of: bare},
				{name: "ms of Redis a SCAN", value: scan},
				{name: "MB more", value: peak.resident - before.resident},
			}, ms.measures(quiet, "≤ 1.5")...)
			return err
		})
		if err != nil {
			return nil, err
		}
		return m, c.check(ctx, b.redis.Client())
	}}
}
