package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// tags are the values of a column that keys are made of. What stands between braces in a key says where it lies.
var tags = []string{"{x}", "}{", "{}", "{", "}", "a{b}c", "{{a}}", "{}{x}", "none", "{b }"}

// tagOf returns the tag of a product: with each change it has another.
func tagOf(id int, price string) string {
	n, err := strconv.Atoi(price)
	if err != nil {
		panic(err)
	}
	return tags[(id+n)%len(tags)]
}

// tagged is a value that is kept by a product's tag.
type tagged struct {
	name string
	fill func(ctx context.Context, rdb redis.Cmdable, tag string, id int, price string) error
	// ask asks for the value under a tag, and returns what reads the reply. Empty: none is there.
	ask func(ctx context.Context, rdb redis.Pipeliner, tag string, id int) func() (string, error)
}

// form is a tagged value as readers keep it: under no other tag there may be one.
func (v tagged) form() form {
	return form{
		name: v.name,
		fill: func(ctx context.Context, rdb redis.Cmdable, id int, price string) error {
			return v.fill(ctx, rdb, tagOf(id, price), id, price)
		},
		held: func(ctx context.Context, rdb redis.Cmdable, id int, price string) (held string, err error) {
			pipe := rdb.Pipeline()
			var read []func() (string, error)
			for _, tag := range tags {
				read = append(read, v.ask(ctx, pipe, tag, id))
			}
			if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
				return "", err
			}
			for i, tag := range tags {
				switch got, err := read[i](); {
				case err != nil:
					return "", err
				case tag == tagOf(id, price) && held == "":
					held = got
				case got != "":
					return fmt.Sprintf("%s under the tag %s", got, tag), nil
				}
			}
			return held, nil
		},
	}
}

// underTag is a key that holds the price.
func underTag(name string, key func(tag string, id int) string) tagged {
	return tagged{
		name: name,
		fill: func(ctx context.Context, rdb redis.Cmdable, tag string, id int, price string) error {
			return rdb.SetNX(ctx, key(tag, id), price, 0).Err()
		},
		ask: func(ctx context.Context, rdb redis.Pipeliner, tag string, id int) func() (string, error) {
			got := rdb.Get(ctx, key(tag, id))
			return func() (string, error) { return orNone(got.Result()) }
		},
	}
}

// fieldUnderTag is a field that holds the price.
func fieldUnderTag(name string, of func(tag string, id int) (key, field string)) tagged {
	return tagged{
		name: name,
		fill: func(ctx context.Context, rdb redis.Cmdable, tag string, id int, price string) error {
			k, f := of(tag, id)
			return rdb.HSetNX(ctx, k, f, price).Err()
		},
		ask: func(ctx context.Context, rdb redis.Pipeliner, tag string, id int) func() (string, error) {
			k, f := of(tag, id)
			got := rdb.HGet(ctx, k, f)
			return func() (string, error) { return orNone(got.Result()) }
		},
	}
}

// boardUnderTag is a sorted set for each tag, which is filled as a whole.
func (s *busySite) boardUnderTag(key func(tag string) string) tagged {
	return tagged{
		name: "board",
		fill: func(ctx context.Context, rdb redis.Cmdable, tag string, _ int, _ string) error {
			return s.fillBoard(ctx, rdb, key(tag), func(r row) bool { return tagOf(r.id, r.price) == tag })
		},
		ask: func(ctx context.Context, rdb redis.Pipeliner, tag string, id int) func() (string, error) {
			score := rdb.ZScore(ctx, key(tag), strconv.Itoa(id))
			return func() (string, error) {
				if errors.Is(score.Err(), redis.Nil) {
					return "", nil
				}
				return strconv.FormatFloat(score.Val(), 'f', -1, 64), score.Err()
			}
		},
	}
}

// braces has keys with braces, in the text of their templates and in the values that they are made of, for each action
// that keeps something next to its keys.
func (s *busySite) braces() {
	t := s.t
	var list []string
	for _, tag := range tags {
		list = append(list, "'"+tag+"'")
	}
	s.source.Exec(t, fmt.Sprintf("ALTER TABLE shop.product ADD tag VARCHAR(10) AS (ELT(1 + (id + price) %% %d, %s)) STORED",
		len(tags), strings.Join(list, ", ")))
	const query = `rebuild: {query: "SELECT price FROM shop.product WHERE id = :id AND tag = :tag", as: hash, ttl: 1h}`
	const fromRow = `rebuild: {from: row, as: string, value: "{price}"}`
	var b strings.Builder
	for _, does := range []string{
		`keys: ["deleted:{tag}:{id}"]`,
		`keys: ["row:{tag}:{id}"], ` + fromRow,
		`keys: ["{{user:{id}}}:{tag}"], ` + fromRow,
		`keys: ["{{}}:{id}:{tag}"], ` + fromRow,
		`keys: ["asked:{tag}:{id}"], ` + query,
		`keys: ["{{all}}:{id}:{tag}"], ` + query,
		`hash: {key: "prices:{tag}", field: "{id}", value: "{price}"}`,
		`zset: {key: "board:{tag}}}", member: "{id}", score: "{price}"}`,
	} {
		fmt.Fprintf(&b, "\n  - {table: shop.product, second_delete: %s, scope: {tag: \"[^:]+\"}, %s}", busyD, does)
	}
	s.mappings = b.String()
	s.forms = nil
	for _, v := range []tagged{
		underTag("deleted", func(tag string, id int) string { return fmt.Sprintf("deleted:%s:%d", tag, id) }),
		underTag("row", func(tag string, id int) string { return fmt.Sprintf("row:%s:%d", tag, id) }),
		underTag("user", func(tag string, id int) string { return fmt.Sprintf("{user:%d}:%s", id, tag) }),
		underTag("empty", func(tag string, id int) string { return fmt.Sprintf("{}:%d:%s", id, tag) }),
		fieldUnderTag("asked", func(tag string, id int) (string, string) {
			return fmt.Sprintf("asked:%s:%d", tag, id), "price"
		}),
		fieldUnderTag("all", func(tag string, id int) (string, string) {
			return fmt.Sprintf("{all}:%d:%s", id, tag), "price"
		}),
		fieldUnderTag("prices", func(tag string, id int) (string, string) { return "prices:" + tag, strconv.Itoa(id) }),
		s.boardUnderTag(func(tag string) string { return "board:" + tag + "}" }),
	} {
		s.forms = append(s.forms, v.form())
	}
}

// A key lies where its braces say, and so does what freshet keeps next to it, also while slots move and a replica takes
// over.
func TestOnAClusterKeysWithBracesAreNotStale(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		site := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Replicas: 1})
		site.braces()
		s := &struckCluster{struck: newStruck(t, site.busySite), cluster: site.cluster}
		s.startLoad()
		s.fillUp()
		s.moveBraces()
		s.failover(s.chance.IntN(3))
		s.settle()
		s.finished(s.site)
		s.fillUp()
		s.haltLoad()
		s.noneStale()
		// What is written is there, and nothing of before, once freshet is sure of its slot again.
		testbed.Eventually(t, patience, "every value is written", func() bool {
			s.changeAll()
			s.finished(s.site)
			s.noneStale()
			for id := range busyRows {
				price, err := s.price(t.Context(), id)
				testbed.Must(t, err)
				for _, f := range s.forms {
					if f.name == "deleted" || f.name == "board" {
						continue // nobody fills any more
					}
					if got, err := f.held(t.Context(), s.client, id, price); got != price || err != nil {
						return false
					}
				}
			}
			return true
		})
		s.stopLoad(s.site)
		s.forgetAll()
		for id := range busyRows {
			price, err := s.price(t.Context(), id)
			testbed.Must(t, err)
			for _, f := range s.forms {
				if got, err := f.held(t.Context(), s.client, id, price); got != "" || err != nil {
					t.Errorf("%s of %d is %q after all was forgotten, %v", f.name, id, got, err)
				}
			}
		}
	})
}

// moveBraces moves the slots of keys with braces, each to another master.
func (s *struckCluster) moveBraces() {
	c := s.cluster
	for _, tag := range tags {
		for _, key := range []string{
			"row:" + tag + ":1", "{user:2}:" + tag, "asked:" + tag + ":3", "prices:" + tag, "board:" + tag + "}",
		} {
			slot, has := ownerIn(s.t, s.cluster, key)
			c.Move(s.t, c.Masters[has], c.Masters[(has+1)%len(c.Masters)], slot)
		}
	}
}
