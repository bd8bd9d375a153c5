package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// shelves is how many sets the products are spread over. A product that changes goes from one to another.
const shelves = 5

// everyForm is a mapping for each action, and how readers keep what it is about.
func (s *busySite) everyForm() {
	s.source.Exec(s.t, fmt.Sprintf("ALTER TABLE shop.product ADD shelf INT AS (price %% %d) STORED", shelves))
	s.mappings = everyAction() +
		fmt.Sprintf("\n  - {table: shop.product, second_delete: %s, set: {key: \"shelf:{shelf}\", member: \"{id}\"}}", busyD)
	s.forms = append(s.forms, field("asked", func(id int) (string, string) { return fmt.Sprint("asked:", id), "price" }),
		field("prices", func(id int) (string, string) { return "prices", strconv.Itoa(id) }),
		s.board(), s.shelf(), banner, s.page())
}

// field is the form of a field that holds the price.
func field(name string, of func(id int) (key, field string)) form {
	return form{
		name: name,
		fill: func(ctx context.Context, rdb redis.Cmdable, id int, price string) error {
			k, f := of(id)
			return rdb.HSetNX(ctx, k, f, price).Err()
		},
		held: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) (string, error) {
			k, f := of(id)
			return orNone(rdb.HGet(ctx, k, f).Result())
		},
	}
}

// row is a product as it was read.
type row struct {
	id    int
	price string
}

// scored is the product in a sorted set.
func (r row) scored() redis.Z {
	score, err := strconv.ParseFloat(r.price, 64)
	if err != nil {
		panic(err)
	}
	return redis.Z{Score: score, Member: r.id}
}

// shelf is where the product is, as the column of that name has it.
func (r row) shelf() int {
	price, err := strconv.Atoi(r.price)
	if err != nil {
		panic(err)
	}
	return price % shelves
}

func (s *busySite) rows(ctx context.Context) (rows []row, err error) {
	result, err := s.source.DB().QueryContext(ctx, "SELECT id, price FROM shop.product")
	if err != nil {
		return nil, err
	}
	defer result.Close()
	for result.Next() {
		var r row
		if err := result.Scan(&r.id, &r.price); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, result.Err()
}

// board is the form of a sorted set by price, which is filled as a whole.
func (s *busySite) board() form {
	return form{
		name: "board",
		fill: func(ctx context.Context, rdb redis.Cmdable, _ int, _ string) error {
			return s.fillBoard(ctx, rdb, "board", func(row) bool { return true })
		},
		held: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) (string, error) {
			if n, err := rdb.Exists(ctx, "board").Result(); n == 0 || err != nil {
				return "", err
			}
			score, err := rdb.ZScore(ctx, "board", strconv.Itoa(id)).Result()
			if errors.Is(err, redis.Nil) {
				return "missing", nil
			}
			return strconv.FormatFloat(score, 'f', -1, 64), err
		},
	}
}

// fillBoard writes a sorted set of some of the rows, if it is not there and has any.
func (s *busySite) fillBoard(ctx context.Context, rdb redis.Cmdable, key string, has func(row) bool) error {
	if n, err := rdb.Exists(ctx, key).Result(); n != 0 || err != nil {
		return err
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return err
	}
	var members []redis.Z
	for _, r := range rows {
		if has(r) {
			members = append(members, r.scored())
		}
	}
	if len(members) == 0 {
		return nil
	}
	return rdb.ZAdd(ctx, key, members...).Err()
}

// shelf is the form of a set of the products with the same shelf, which is filled as a whole.
func (s *busySite) shelf() form {
	return form{
		name: "shelf",
		fill: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) error {
			shelf := id % shelves // whichever
			key := fmt.Sprint("shelf:", shelf)
			if n, err := rdb.Exists(ctx, key).Result(); n != 0 || err != nil {
				return err
			}
			rows, err := s.rows(ctx)
			if err != nil {
				return err
			}
			var members []any
			for _, r := range rows {
				if r.shelf() == shelf {
					members = append(members, r.id)
				}
			}
			if len(members) == 0 {
				return nil
			}
			return rdb.SAdd(ctx, key, members...).Err()
		},
		held: heldOnShelf,
	}
}

// heldOnShelf returns the price if the product is on its shelf, nothing if that shelf is not there, and else what is
// wrong.
func heldOnShelf(ctx context.Context, rdb redis.Cmdable, id int, price string) (string, error) {
	of := row{id, price}.shelf()
	there, wrong := false, []string(nil)
	for shelf := range shelves {
		key := fmt.Sprint("shelf:", shelf)
		on, err := rdb.SIsMember(ctx, key, id).Result()
		if err != nil {
			return "", err
		}
		switch {
		case on && shelf == of:
			there = true
		case on:
			wrong = append(wrong, key)
		case shelf == of:
			n, err := rdb.Exists(ctx, key).Result()
			if err != nil {
				return "", err
			}
			if n != 0 {
				wrong = append(wrong, "missing in "+key)
			}
		}
	}
	if len(wrong) > 0 {
		return strings.Join(wrong, ", "), nil
	}
	if there {
		return price, nil
	}
	return "", nil
}

// banner is the form of a key that may be older than its row for a time, which has begun then.
var banner = form{
	name: "banner",
	fill: func(ctx context.Context, rdb redis.Cmdable, id int, price string) error {
		return rdb.SetNX(ctx, fmt.Sprint("banner:", id), price, 0).Err()
	},
	held: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) (string, error) {
		key := fmt.Sprint("banner:", id)
		if left, err := rdb.TTL(ctx, key).Result(); left > 0 || err != nil {
			return "", err // it ends
		}
		return orNone(rdb.Get(ctx, key).Result())
	},
}

// page is the form of a key with a generation in it, which is read before the row.
func (s *busySite) page() form {
	gen := func(ctx context.Context, rdb redis.Cmdable, id int) (string, error) {
		return orNone(rdb.Get(ctx, fmt.Sprint("gen:", id)).Result())
	}
	return form{
		name: "page",
		fill: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) error {
			of, err := gen(ctx, rdb, id)
			if err != nil {
				return err
			}
			if of == "" {
				now, err := rdb.Time(ctx).Result()
				if err != nil {
					return err
				}
				return rdb.SetNX(ctx, fmt.Sprint("gen:", id), now.UnixMilli(), 0).Err()
			}
			price, err := s.price(ctx, id)
			if err != nil {
				return err
			}
			return rdb.SetNX(ctx, fmt.Sprintf("page:%d:%s", id, of), price, time.Hour).Err()
		},
		held: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) (string, error) {
			of, err := gen(ctx, rdb, id)
			if of == "" || err != nil {
				return "", err
			}
			return orNone(rdb.Get(ctx, fmt.Sprintf("page:%d:%s", id, of)).Result())
		},
	}
}
