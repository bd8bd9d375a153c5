package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sync/errgroup"
)

// workload is the mix that the benchmark reads back: rows inserted in bulk, bulk updates of a thousand rows each,
// and updates of one row in a transaction of its own.
type workload struct{ rows, bulkUpdates, updates int }

// fullWorkload is that of -scale 1.
var fullWorkload = workload{rows: 500_000, bulkUpdates: 500, updates: 100_000}

// scaled returns a workload so many times as large, of at least as many rows as a bulk update needs.
func (w workload) scaled(f float64) workload {
	times := func(n int) int { return int(float64(n) * f) }
	return workload{
		rows: max(2000, times(w.rows)/insertRows*insertRows), bulkUpdates: times(w.bulkUpdates),
		updates: times(w.updates),
	}
}

// changes returns the number of row changes that it makes.
func (w workload) changes() int { return w.rows + 1000*w.bulkUpdates + w.updates }

const (
	insertRows = 500
	loaders    = 8
)

// load runs the workload against an empty server.
func (w workload) load(ctx context.Context, db *sql.DB) error {
	for _, q := range []string{
		"CREATE DATABASE shop",
		`CREATE TABLE shop.product (id BIGINT PRIMARY KEY AUTO_INCREMENT, sku VARCHAR(64) NOT NULL, name VARCHAR(128),
			category_id INT, price DECIMAL(10,2), stock INT, updated_at DATETIME(3), KEY (category_id))`,
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	if err := w.loadBulk(ctx, db); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range loaders {
		g.Go(func() error {
			for range w.updates/loaders + min(1, max(0, w.updates%loaders-i)) {
				id := 1 + rand.IntN(w.rows)
				if err := update(ctx, db, id, id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// loadBulk makes the rows inserted in bulk, and the bulk updates.
func (w workload) loadBulk(ctx context.Context, db *sql.DB) error {
	for n := 0; n < w.rows; n += insertRows {
		if err := insert(ctx, db, n); err != nil {
			return err
		}
	}
	for range w.bulkUpdates {
		lo := 1 + rand.IntN(w.rows-1000)
		if err := update(ctx, db, lo, lo+999); err != nil {
			return err
		}
	}
	return nil
}

func insert(ctx context.Context, db *sql.DB, n int) error {
	var q strings.Builder
	q.WriteString("INSERT INTO shop.product (sku, name, category_id, price, stock, updated_at) VALUES ")
	for i := range insertRows {
		if i > 0 {
			q.WriteByte(',')
		}
		fmt.Fprintf(&q, "('SKU-%08d','Product name number %d of the shop',%d,%d.99,%d,NOW(3))",
			n+i, n+i, rand.IntN(1000), rand.IntN(500), rand.IntN(1000))
	}
	_, err := db.ExecContext(ctx, q.String())
	return err
}

func update(ctx context.Context, db *sql.DB, lo, hi int) error {
	_, err := db.ExecContext(ctx,
		fmt.Sprintf("UPDATE shop.product SET stock = stock + 1, updated_at = NOW(3) WHERE id BETWEEN %d AND %d", lo, hi))
	return err
}

const (
	// longPasses times every row is updated in the long backlog.
	longPasses  = 80
	longUpdate  = 5000 // rows in a statement
	longLoaders = 3
)

// updateAll changes each row once, by statements of many rows, over a few connections.
func updateAll(ctx context.Context, db *sql.DB, rows int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(longLoaders)
	for lo := 1; lo <= rows; lo += longUpdate {
		g.Go(func() error { return update(ctx, db, lo, min(lo+longUpdate-1, rows)) })
	}
	return g.Wait()
}
