package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

const (
	// walkRows is how many rows a warm-up reads. At the default rate it would take more than an hour, so there it reads
	// pacedRows.
	walkRows  = 10_000_000
	pacedRows = 100_000
	// bareChunk is how many rows the bare walk reads at a time; pacedChunk and pacedEach are those of one that keeps to
	// the default rate of 2,000 a second.
	bareChunk  = 5000
	pacedChunk = 20
	pacedEach  = 10 * time.Millisecond
	// askedEach is how often freshet is asked whether a warm-up has ended. Its status tells of everything, and each costs
	// some milliseconds, for which those who read Redis on the same two cores wait.
	askedEach = time.Second
)

// walked is a table whose rows are written to an empty Redis, except for keys that no row is about, which are read
// meanwhile.
type walked struct {
	rows   int
	others cached
}

// rebuiltProducts is a mapping whose keys a warm-up writes.
const rebuiltProducts = `  - table: shop.product
    keys: ["product:{id}"]
    rebuild: {from: row, as: json, columns: [id, sku, name, price]}
`

// walkSection measures what it takes to fill the cache from a table, and what readers of Redis notice of it.
func (b *benchmark) walkSection() *section {
	const quiet, bare, paced = "quiet", "bare SELECT and SET", "bare, 2,000 rows/s"
	w := walked{rows: max(2000, int(walkRows*b.scale)), others: cached{all: bystanders}}
	slow := w
	slow.rows = min(w.rows, max(pacedRows, 2000))
	return &section{
		name: "walk",
		title: fmt.Sprintf("filling the cache with %s rows, or %s at the default rate, and %d GETs a second meanwhile",
			number(float64(w.rows)), number(float64(slow.rows)), readRate),
		setup: func(ctx context.Context, b *benchmark) error { return b.ownRedis(ctx) },
		contenders: []*contender{
			w.quiet(quiet),
			w.bare(bare, quiet, 0),
			w.warm("freshet warm, unlimited", "scope_rate: 1000000000\n", "", reference{of: quiet}, bare),
			slow.bare(paced, quiet, pacedEach),
			slow.warm("freshet warm, default rate", "", "id <= "+strconv.Itoa(slow.rows),
				reference{quiet, "≤ 1.5"}, ""),
		},
		rounds: 1, noWarmUp: true,
	}
}

// open empties Redis but for the keys of others, and starts the source if it is not there yet.
func (w walked) open(ctx context.Context, b *benchmark) (*testbed.Server, error) {
	source, err := b.ownSource(ctx, "rows to walk, on MySQL", func(ctx context.Context, db *sql.DB) error {
		if err := (workload{rows: insertRows}).load(ctx, db); err != nil {
			return err
		}
		for n := insertRows; n < w.rows; n *= 2 {
			if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO shop.product SELECT id + %d, sku, name, category_id, price, "+
				"stock, updated_at FROM shop.product WHERE id <= %d", n, w.rows-n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rdb := b.redis.Client()
	if err := rdb.FlushAllAsync(ctx).Err(); err != nil {
		return nil, err
	}
	return source, w.others.make(ctx, rdb, w.others.all)
}

// quiet reads while nothing else goes on.
func (w walked) quiet(name string) *contender {
	q := w.others.quiet(name)
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		if _, err := w.open(ctx, b); err != nil {
			return nil, err
		}
		return q.run(ctx, b)
	}}
}

// bare reads the table along its primary key and sets all values, over one connection each and without any guard: as
// fast as it can, or some rows in each time of a length.
func (w walked) bare(name, quiet string, each time.Duration) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := w.open(ctx, b)
		if err != nil {
			return nil, err
		}
		var took time.Duration
		ms, err := w.others.during(ctx, b, func(ctx context.Context) error {
			begin := time.Now()
			err := selectAndSet(ctx, source.DB(), b.redis.Client(), w.rows, each)
			took = time.Since(begin)
			return err
		})
		if err != nil {
			return nil, err
		}
		m := append([]measure{
			{name: "s", value: took.Seconds()}, {name: "rows/s", value: float64(w.rows) / took.Seconds()},
		}, ms.measures(quiet, "")...)
		_, err = w.written(ctx, b, 100)
		return m, err
	}}
}

// selectAndSet writes the JSON of rows, up to the last one.
func selectAndSet(ctx context.Context, db *sql.DB, rdb *redis.Client, last int, each time.Duration) error {
	chunk := bareChunk
	if each > 0 {
		chunk = pacedChunk
	}
	begin := time.Now()
	for after, chunks := 0, 0; ; chunks++ {
		if err := pause(ctx, time.Until(begin.Add(time.Duration(chunks)*each))); err != nil {
			return err
		}
		rows, err := db.QueryContext(ctx, "SELECT id, sku, name, price FROM shop.product WHERE id > ? AND id <= ? ORDER BY id "+
			"LIMIT ?", after, last, chunk)
		if err != nil {
			return err
		}
		pipe, n := rdb.Pipeline(), 0
		for ; rows.Next(); n++ {
			var v struct {
				ID    int    `json:"id"`
				SKU   string `json:"sku"`
				Name  string `json:"name"`
				Price string `json:"price"`
			}
			if err := rows.Scan(&v.ID, &v.SKU, &v.Name, &v.Price); err != nil {
				_ = rows.Close()
				return err
			}
			text, err := json.Marshal(&v)
			if err != nil {
				_ = rows.Close()
				return err
			}
			after = v.ID
			pipe.Set(ctx, "product:"+strconv.Itoa(v.ID), text, 0)
		}
		if err := rows.Err(); err != nil || n == 0 {
			return err
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
}

// warm has freshet fill the cache.
func (w walked) warm(name, rate, where string, quiet reference, bare string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) (m []measure, err error) {
		source, err := w.open(ctx, b)
		if err != nil {
			return nil, err
		}
		s := setting{source: source, mappings: rebuiltProducts, more: rate, secondDelete: "2s"}
		err = b.whileForgetting(ctx, s, func(ctx context.Context, f *forgetting) error {
			if err := f.begun(ctx, b, cached{}); err != nil {
				return err
			}
			before, err := usageOf(f.pid)
			if err != nil {
				return err
			}
			var took time.Duration
			peak := before
			ms, err := w.others.during(ctx, b, func(ctx context.Context) (err error) {
				peak, took, err = f.warm(ctx, admin.WarmUp{Table: "shop.product", Where: where}, w.rows)
				return err
			})
			if err != nil {
				return err
			}
			m = append([]measure{
				{name: "s", value: took.Seconds(), of: bare},
				{name: "rows/s", value: float64(w.rows) / took.Seconds(), of: bare},
				{name: "MB more", value: peak.resident - before.resident},
			}, ms.measures(quiet.of, quiet.goal)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		// A warm-up leaves out what it cannot write in time, as on a machine that is too busy.
		share, err := w.written(ctx, b, 10)
		return append(m, measure{name: "% written", value: share}), err
	}}
}

// written returns how many of a hundred rows are cached; at least so many must be.
func (w walked) written(ctx context.Context, b *benchmark, least float64) (share float64, err error) {
	found := 0
	for from := 1; from <= w.rows; from += block {
		var keys []string
		for id := from; id < min(from+block, w.rows+1); id++ {
			keys = append(keys, "product:"+strconv.Itoa(id))
		}
		n, err := b.redis.Client().Exists(ctx, keys...).Result()
		if err != nil {
			return 0, err
		}
		found += int(n)
	}
	share = 100 * float64(found) / float64(w.rows)
	if share < least {
		return share, fmt.Errorf("%w: of %d rows %d are cached", errInvalid, w.rows, found)
	}
	return share, nil
}

// warm asks for a warm-up of so many rows, and returns once it has ended, with the most memory that was seen meanwhile,
// and how long it took.
func (f *forgetting) warm(ctx context.Context, w admin.WarmUp, rows int) (peak usage, took time.Duration, err error) {
	begin := time.Now()
	id, err := f.client.Warm(ctx, w)
	if err != nil {
		return peak, 0, err
	}
	for {
		now, err := usageOf(f.pid)
		if err != nil {
			return peak, 0, err
		}
		if now.resident > peak.resident {
			peak = now
		}
		text, err := f.client.Status(ctx)
		if err != nil {
			return peak, 0, err
		}
		var status struct {
			Ended []struct {
				ID     string    `json:"id"`
				Ended  time.Time `json:"ended"`
				Done   bool      `json:"done"`
				Rows   int       `json:"rows"`
				Answer string    `json:"answer"`
			} `json:"ended_warm_ups"`
		}
		if err := json.Unmarshal(text, &status); err != nil {
			return peak, 0, err
		}
		for _, e := range status.Ended {
			if e.ID != id {
				continue
			}
			if !e.Done || e.Rows != rows {
				return peak, 0, fmt.Errorf("%w: %d of %d rows were read: %s", errInvalid, e.Rows, rows, strings.TrimSpace(e.Answer))
			}
			return peak, e.Ended.Sub(begin), nil
		}
		if err := pause(ctx, askedEach); err != nil {
			return peak, 0, err
		}
	}
}
