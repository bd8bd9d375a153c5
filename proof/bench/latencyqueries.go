package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

const (
	// slowRows is how many keys of another mapping are made stale at once, each of which a query rebuilds.
	slowRows = 100_000
	// slowKeys is their mapping. The source takes a second for each query.
	slowKeys = `  - table: shop.rating
    keys: ["rating:{id}"]
    rebuild: {query: "SELECT id, stars, SLEEP(1) AS slept FROM rating WHERE id = :id", as: json, timeout: 2s}
`
)

// latencyQueriesSection measures what one mapping's slow queries do to the deletes of another.
func (b *benchmark) latencyQueriesSection() *section {
	p := pace{rate: liveRate, length: max(4*time.Second, time.Duration(20*float64(time.Second)*min(1, b.scale)))}
	rows := max(1000, int(slowRows*min(1, b.scale)))
	const alone = "embedded, 2s, no query"
	both := together(setting{secondDelete: "2s", mappings: productKeys + slowKeys})
	through := func(name string, before func(context.Context, *testbed.Server) error, of string) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			ms, err := b.latencyAfter(ctx, both, p, before)
			return percentiles(ms, reference{of: of}), err
		}}
	}
	return &section{
		name: "latency-queries",
		title: fmt.Sprintf("commit to key gone, at %d transactions of one row a second, after a change of %d rows of "+
			"another mapping, whose "+
			"queries take 1 s each", p.rate, rows),
		setup: func(ctx context.Context, b *benchmark) error { return b.makeRatings(ctx, rows) },
		contenders: []*contender{
			through(alone, nil, ""),
			through("embedded, 2s, next to the queries", func(ctx context.Context, source *testbed.Server) error {
				_, err := source.DB().ExecContext(ctx, "UPDATE shop.rating SET stars = stars + 1")
				return err
			}, alone),
		},
		rounds: 1, noWarmUp: true,
	}
}

// makeRatings makes the other mapping's table.
func (b *benchmark) makeRatings(ctx context.Context, rows int) error {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return err
	}
	for _, q := range []string{
		"CREATE TABLE IF NOT EXISTS shop.rating (id INT PRIMARY KEY AUTO_INCREMENT, stars INT NOT NULL)",
		"TRUNCATE shop.rating",
		fmt.Sprintf("INSERT INTO shop.rating (stars) SELECT 0 FROM shop.product WHERE id <= %d", rows),
	} {
		if _, err := source.DB().ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}
