package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/freshet/freshet/proof/testbed"
)

// growthSection asks whether what a row or a key costs stays the same when there is ten times as much of everything.
func (b *benchmark) growthSection() *section {
	rows := 2 * b.workload.rows // of each server but the last: inserted, and changed once
	spread := func(name string, tables int, mappings string, of string) *contender {
		return growth{source: b.spreadMySQL(tables), changes: rows, mappings: mappings, of: of}.contender(name)
	}
	everyTen, each := make([]string, 10), make([]string, 100)
	for i := range everyTen {
		everyTen[i] = fmt.Sprintf("shop.t_%d*", i)
	}
	for i := range each {
		each[i] = fmt.Sprintf("shop.t_%02d", i)
	}
	kafka := func(partitions, times int, what, of string) *contender {
		return growth{
			source: b.longerMySQL(times), changes: times * rows, log: partitioned(partitions), of: of,
		}.contender(what)
	}
	return &section{
		name:  "growth",
		title: "ten times as much, per row and per key; Redis holding the keys",
		contenders: []*contender{
			spread("10 tables", 10, mappingsOf("shop.t_*"), ""),
			spread("100 tables", 100, mappingsOf("shop.t_*"), "10 tables"),
			spread("10 mappings", 100, mappingsOf(everyTen...), ""),
			spread("100 mappings", 100, mappingsOf(each...), "10 mappings"),
			growth{source: b.spreadMySQL(10), changes: rows, mappings: severalKeys(1)}.contender("1 key a row"),
			growth{
				source: b.spreadMySQL(10), changes: rows, mappings: severalKeys(10), keys: 10,
				of: "1 key a row",
			}.contender("10 keys a row"),
			growth{source: b.longerMySQL(1), changes: rows, of: ""}.contender("backlog"),
			growth{source: b.longerMySQL(10), changes: 10 * rows, of: "backlog"}.contender("backlog, 10 times as long"),
			kafka(12, 1, "12 partitions", ""),
			kafka(64, 1, "64 partitions", "12 partitions"),
			// With more partitions more memory is touched for the first time, which the long backlog pays once, too.
			kafka(12, 10, "12 partitions, the long backlog", ""),
			kafka(64, 10, "64 partitions, the long backlog", "12 partitions, the long backlog"),
		},
		rounds: 3,
	}
}

// growth is a backlog of which something is of one size or of ten times that.
type growth struct {
	source   func(context.Context) (*testbed.Server, error)
	changes  int
	mappings string
	log      eventLog
	keys     int // of each row; 0: 1
	of       string
}

func (g growth) contender(name string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := g.source(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.populate(ctx); err != nil {
			return nil, err
		}
		c, err := b.catchUp(ctx, setting{source: source, log: g.log, start: "earliest", mappings: g.mappings}, g.changes)
		if err != nil {
			return nil, err
		}
		keys := float64(max(g.keys, 1))
		return []measure{
			{name: "keys/s", value: c.rate() * keys, of: g.of},
			{name: "CPU µs/key", value: float64(c.cpu.Microseconds()) / float64(g.changes) / keys, of: g.of},
		}, b.allGone(ctx)
	}}
}

// mappingsOf maps the rows of each table, or of all that a pattern names.
func mappingsOf(tables ...string) string {
	var s strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&s, "  - table: %s\n    keys: [\"product:{id}\"]\n", t)
	}
	return s.String()
}

// severalKeys makes n keys of each row, of which Redis holds the first.
func severalKeys(n int) string {
	keys := []string{`"product:{id}"`}
	for i := range n - 1 {
		keys = append(keys, fmt.Sprintf(`"list%d:{id}"`, i))
	}
	return fmt.Sprintf("  - table: shop.t_*\n    keys: [%s]\n", strings.Join(keys, ", "))
}

// spreadMySQL returns the MySQL server whose rows are spread over so many tables, t_00 and on, and were changed once.
func (b *benchmark) spreadMySQL(tables int) func(context.Context) (*testbed.Server, error) {
	return func(ctx context.Context) (*testbed.Server, error) {
		return b.ownSource(ctx, fmt.Sprintf("%d tables on MySQL", tables), func(ctx context.Context, db *sql.DB) error {
			return loadSpread(ctx, db, tables, b.workload.rows)
		})
	}
}

// loadSpread makes rows of the ids 1 to rows, each in one of the tables, and then changes each.
func loadSpread(ctx context.Context, db *sql.DB, tables, rows int) error {
	exec := func(q string, args ...any) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf(q, args...))
		return err
	}
	if err := exec("CREATE DATABASE shop"); err != nil {
		return err
	}
	for t := range tables {
		if err := exec("CREATE TABLE shop.t_%02d (id BIGINT PRIMARY KEY, name VARCHAR(128), stock INT)", t); err != nil {
			return err
		}
	}
	for from, t := 1, 0; from <= rows; from, t = from+insertRows, (t+1)%tables {
		var values []string
		for id := from; id < min(from+insertRows, rows+1); id++ {
			values = append(values, fmt.Sprintf("(%d, 'Product name number %d of the shop', 0)", id, id))
		}
		if err := exec("INSERT INTO shop.t_%02d VALUES %s", t, strings.Join(values, ",")); err != nil {
			return err
		}
	}
	for t := range tables {
		if err := exec("UPDATE shop.t_%02d SET stock = stock + 1", t); err != nil {
			return err
		}
	}
	return nil
}

// longerMySQL returns the MySQL server whose binlog is so many times as long as two changes of each row.
func (b *benchmark) longerMySQL(times int) func(context.Context) (*testbed.Server, error) {
	return func(ctx context.Context) (*testbed.Server, error) {
		return b.ownSource(ctx, fmt.Sprintf("%d changes of each row on MySQL", 2*times),
			func(ctx context.Context, db *sql.DB) error {
				if err := (workload{rows: b.workload.rows}).load(ctx, db); err != nil {
					return err
				}
				for range 2*times - 1 {
					if err := updateAll(ctx, db, b.workload.rows); err != nil {
						return err
					}
				}
				return nil
			})
	}
}
