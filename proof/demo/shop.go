package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// shop is the application of the demo: a table of products, and a cache in front of it that holds each product, its
// price by itself, and the list of each category. It does plain cache-aside: read the cache, on a miss read the
// database and fill. freshet deletes products and lists that changed, and writes prices again.
type shop struct {
	db    *sql.DB
	cache *redis.Client
	// slow is the longest that a fill is held up between reading the database and writing the cache, on purpose:
	// it widens the race that makes caches stale from microseconds to something that one can see.
	slow time.Duration
	// limit is when a fill that took too long is given up, counted from before the database was read. It keeps the
	// promise that freshet's second_delete relies on.
	limit time.Duration
	// priceFills counts the prices that readers have put into the cache: all others are freshet's.
	priceFills atomic.Int64
}

const (
	products   = 3000
	categories = 60
)

var schema = []string{
	"DROP DATABASE IF EXISTS freshet_demo_shop",
	"CREATE DATABASE freshet_demo_shop",
	`CREATE TABLE freshet_demo_shop.product (
		id INT UNSIGNED NOT NULL PRIMARY KEY,
		category_id INT UNSIGNED NOT NULL,
		name VARCHAR(64) NOT NULL,
		price DECIMAL(10,2) NOT NULL,
		version INT UNSIGNED NOT NULL,
		KEY (category_id))`,
}

// create makes the schema and its rows.
func (s *shop) create(ctx context.Context) error {
	for _, q := range schema {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	for id := 1; id <= products; id++ {
		if _, err := s.db.ExecContext(ctx, "INSERT INTO freshet_demo_shop.product VALUES (?, ?, ?, ?, 1)",
			id, id%categories, fmt.Sprintf("Product %d", id), fmt.Sprintf("%d.99", id%500)); err != nil {
			return err
		}
	}
	return nil
}

// write changes one product: mostly its price, at times its category, and at times it is deleted and made again.
func (s *shop) write(ctx context.Context, id int) error {
	const p = "freshet_demo_shop.product"
	switch n := rand.IntN(20); {
	case n == 0:
		if _, err := s.db.ExecContext(ctx, "DELETE FROM "+p+" WHERE id = ?", id); err != nil {
			return err
		}
		_, err := s.db.ExecContext(ctx, "INSERT INTO "+p+" VALUES (?, ?, ?, 1.99, ?)",
			id, rand.IntN(categories), fmt.Sprintf("Product %d, again", id), rand.Uint32()>>1)
		return err
	case n < 4:
		_, err := s.db.ExecContext(ctx, "UPDATE "+p+" SET category_id = ?, version = version + 1 WHERE id = ?",
			rand.IntN(categories), id)
		return err
	default:
		_, err := s.db.ExecContext(ctx, "UPDATE "+p+" SET price = ?, version = version + 1 WHERE id = ?",
			fmt.Sprintf("%d.49", rand.IntN(900)), id)
		return err
	}
}

// cached reports whether a product is in the cache.
func (s *shop) cached(ctx context.Context, id int) (bool, error) {
	n, err := s.cache.Exists(ctx, object{id: id}.key()).Result()
	return n > 0, err
}

// forget empties the cache of all that the shop has put there, and of freshet's versions of it.
func (s *shop) forget(ctx context.Context) error {
	var keys []string
	for _, o := range all() {
		keys = append(keys, o.key())
		if o.kind == price {
			keys = append(keys, "freshet:v:{"+o.key()+"}")
		}
	}
	return s.cache.Unlink(ctx, keys...).Err()
}

// kind is what an object is of.
type kind uint8

const (
	product kind = iota
	price
	category
)

// object is something that the cache holds under its key.
type object struct {
	kind kind
	id   int
}

func (o object) key() string {
	switch o.kind {
	case price:
		return fmt.Sprintf("price:%d", o.id)
	case category:
		return fmt.Sprintf("category:%d:products", o.id)
	}
	return fmt.Sprintf("product:%d", o.id)
}

// all returns every object of the shop.
func all() []object {
	out := make([]object, 0, 2*products+categories)
	for id := 1; id <= products; id++ {
		out = append(out, object{product, id}, object{price, id})
	}
	for id := range categories {
		out = append(out, object{category, id})
	}
	return out
}

// random returns an object to read: a list now and then.
func random() object {
	switch n := rand.IntN(50); {
	case n == 0:
		return object{category, rand.IntN(categories)}
	case n < 10:
		return object{price, 1 + rand.IntN(products)}
	}
	return object{product, 1 + rand.IntN(products)}
}

// read is cache-aside as applications write it.
func (s *shop) read(ctx context.Context, o object) error {
	err := s.cache.Get(ctx, o.key()).Err()
	if !errors.Is(err, redis.Nil) {
		return err
	}
	start := time.Now()
	value, err := s.query(ctx, o)
	if err != nil {
		return err
	}
	if hold := time.Duration(rand.Int64N(int64(s.slow))); rand.IntN(2) == 0 {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if time.Since(start) > s.limit {
		return nil // too late to be sure that the second delete still comes after it
	}
	if o.kind == price {
		s.priceFills.Add(1)
	}
	return s.cache.Set(ctx, o.key(), value, 0).Err()
}

const columns = "SELECT id, category_id, name, price, version FROM freshet_demo_shop.product"

// query reads the object from the database, in the form in which it is cached. What is absent is cached as well.
func (s *shop) query(ctx context.Context, o object) (string, error) {
	where := " WHERE id = ?"
	if o.kind == category {
		where = " WHERE category_id = ? ORDER BY id"
	}
	found, err := s.rows(ctx, columns+where, o.id)
	return o.encode(found), err
}

// row is a product as it is cached.
type row struct {
	ID       int    `json:"id"`
	Category int    `json:"category"`
	Name     string `json:"name"`
	Price    string `json:"price"`
	Version  uint32 `json:"version"`
}

// tag is a product's price as it is cached, the same as freshet writes it.
type tag struct {
	ID      int    `json:"id"`
	Price   string `json:"price"`
	Version uint32 `json:"version"`
}

// noPrice is what is cached for a product that is not there, as the mapping says at missing.
const noPrice = "null"

// encode returns what is cached for an object, made of its rows.
func (o object) encode(rows []row) string {
	var v any = rows
	if o.kind == price {
		if len(rows) == 0 {
			return noPrice
		}
		v = tag{rows[0].ID, rows[0].Price, rows[0].Version}
	}
	b, _ := json.Marshal(v) // strings and numbers cannot fail
	return string(b)
}

func (s *shop) rows(ctx context.Context, query string, args ...any) ([]row, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.ID, &r.Category, &r.Name, &r.Price, &r.Version); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// compare reads the whole cache and then the whole table: how many objects are cached, and how many of those differ
// from their rows, byte by byte. While writers run, some differ for the moment that freshet needs.
func (s *shop) compare(ctx context.Context) (stale, cached int, err error) {
	objects := all()
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = o.key()
	}
	have, err := s.cache.MGet(ctx, keys...).Result()
	if err != nil {
		return 0, 0, err
	}
	table, err := s.rows(ctx, columns+" ORDER BY id")
	if err != nil {
		return 0, 0, err
	}
	want := map[object][]row{}
	for _, r := range table {
		for _, o := range []object{{product, r.ID}, {price, r.ID}, {category, r.Category}} {
			want[o] = append(want[o], r)
		}
	}
	for i, o := range objects {
		if have[i] == nil {
			continue
		}
		cached++
		if have[i] != o.encode(want[o]) {
			stale++
		}
	}
	return stale, cached, nil
}

// example says what the cache holds of a product, and what its row says.
func (s *shop) example(ctx context.Context, id int) (string, error) {
	found, err := s.rows(ctx, columns+" WHERE id = ?", id)
	if err != nil {
		return "", err
	}
	have, err := s.cache.MGet(ctx, object{price, id}.key(), object{product, id}.key()).Result()
	if err != nil {
		return "", err
	}
	held := func(v any) string {
		if text, ok := v.(string); ok {
			return text
		}
		return "(deleted)"
	}
	row := "the row is gone"
	if len(found) > 0 {
		row = fmt.Sprintf("its row says %s, version %d", found[0].Price, found[0].Version)
	}
	return fmt.Sprintf("    product %d: %s;  price:%d %s;  product:%d %s", id, row, id, held(have[0]), id, held(have[1])),
		nil
}
