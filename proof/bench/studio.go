package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// reel is one binlog file with changes of one kind.
type reel struct {
	name, what string
	goal       string
	rows       int // row changes
	unmapped   bool
	record     func(ctx context.Context, db *sql.DB) error

	file string
	end  uint64         // where its last transaction ends
	from event.Position // its beginning, with what is known of the tables
}

// studio is a MySQL server that holds all reels.
type studio struct {
	server *testbed.Server
	all    []*reel
}

// reels returns the recordings to make, for a workload's size.
func (s *studio) reels(w workload) []*reel {
	bulk := w.rows + 1000*w.bulkUpdates
	s.all = []*reel{
		{
			name: "decode-bulk", what: "rows inserted 500 at once and updated 1,000 at once", goal: "≥ 0.7", rows: bulk,
			record: w.loadBulk,
		},
		{
			name: "decode-single", what: "updates of one row, each a transaction", goal: "≥ 0.7", rows: 2 * w.updates,
			record: w.recordSingle,
		},
		{
			name: "decode-unmapped", what: "bulk changes of a table that no mapping names", goal: "≥ 0.9", rows: bulk,
			unmapped: true,
			record:   w.recordUnmapped,
		},
	}
	return s.all
}

// prepare starts the server, if no other section has, and finds out what is known of the tables where the reel begins.
func (s *studio) prepare(ctx context.Context, b *benchmark, r *reel) (err error) {
	s.server, err = b.source(ctx, "reels on MySQL", testbed.StartMySQL, s.record)
	if err != nil || !r.from.IsZero() {
		return err
	}
	_, err = s.decode(ctx, r)
	return err
}

// record makes a file for each reel.
func (s *studio) record(ctx context.Context, db *sql.DB) error {
	const columns = `(id BIGINT PRIMARY KEY AUTO_INCREMENT, sku VARCHAR(64) NOT NULL, name VARCHAR(128),
		category_id INT, price DECIMAL(10,2), stock INT, updated_at DATETIME(3))`
	for _, q := range []string{
		"CREATE DATABASE shop",
		"CREATE TABLE shop.product " + columns,
		"CREATE TABLE shop.audit " + columns,
		`CREATE PROCEDURE shop.touch(n INT, ids INT) BEGIN
			DECLARE this INT;
			WHILE n > 0 DO
				SET this = 1 + FLOOR(RAND() * ids); -- in the WHERE clause it would be another for each row of the table
				UPDATE shop.product SET stock = stock + 1, updated_at = NOW(3) WHERE id = this;
				SET n = n - 1;
			END WHILE;
		END`,
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	for _, r := range s.all {
		if _, err := db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
			return err
		}
		if err := r.record(ctx, db); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if err := binlogEnd(ctx, db, r); err != nil {
			return err
		}
	}
	_, err := db.ExecContext(ctx, "FLUSH BINARY LOGS") // so that the last one ends as the others do
	return err
}

// binlogEnd notes where the reel that has just been recorded ends.
func binlogEnd(ctx context.Context, db *sql.DB, r *reel) error {
	var ignored sql.NullString
	return db.QueryRowContext(ctx, "SHOW BINARY LOG STATUS").Scan(&r.file, &r.end, &ignored, &ignored, &ignored)
}

func (w workload) recordSingle(ctx context.Context, db *sql.DB) error {
	g, ctx := errgroup.WithContext(ctx)
	rows := 2 * w.updates
	for i := range loaders {
		g.Go(func() error {
			n := rows / loaders
			if i == 0 {
				n += rows % loaders
			}
			_, err := db.ExecContext(ctx, "CALL shop.touch(?, ?)", n, w.rows)
			return err
		})
	}
	return g.Wait()
}

func (w workload) recordUnmapped(ctx context.Context, db *sql.DB) error {
	for n := 0; n < w.rows; n += insertRows {
		_, err := db.ExecContext(ctx, "INSERT INTO shop.audit SELECT * FROM shop.product WHERE id > ? AND id <= ?", n, n+
			insertRows)
		if err != nil {
			return err
		}
	}
	for range w.bulkUpdates {
		lo := 1 + rand.IntN(w.rows-1000)
		_, err := db.ExecContext(ctx, "UPDATE shop.audit SET stock = stock + 1, updated_at = NOW(3) WHERE id BETWEEN ? AND ?",
			lo, lo+999)
		if err != nil {
			return err
		}
	}
	return nil
}
