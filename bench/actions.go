package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/testbed"
)

// action is one way of doing more to a key than deleting it, and the same writes done plainly.
type action struct {
	name string
	// table has rows rows, each of which is changed once.
	table string
	rows  int
	// mapping is freshet's, without the table.
	mapping string
	// plain are commands of redis-benchmark that write as much as one change does; __rand_int__ is one of the rows.
	plain [][]string
	// guard writes what freshet does, over one connection each, with and without the guard. Nil: there is no guard.
	guard *guarded
	// spoil undoes one row's write, and written reports whether it is done again.
	spoil   func(ctx context.Context, rdb *redis.Client) error
	written func(ctx context.Context, rdb *redis.Client) (bool, error)

	store string // freshet's, of before the changes: each run goes on from a copy of it
}

const (
	// A run must take less than 5 s: what has been known for longer is old news, and forgotten instead of written.
	itemRows  = 40_000
	queryRows = 5_000
	perGroup  = 1000 // rows whose field or member is in one key
	payload   = 64   // bytes of a row's name
)

// actions returns what is measured.
func actions() []*action {
	name := strings.Repeat("n", payload)
	document := fmt.Sprintf(`{"id":__rand_int__,"name":"%s","stock":1}`, name)
	return []*action{
		{
			name: "rebuild from row, json", table: "item", rows: itemRows,
			mapping: `keys: ["item:{id}"]
    rebuild: {from: row, as: json, columns: [id, name, stock]}`,
			plain: [][]string{{"SET", "item:__rand_int__", document}},
			guard: rebuildGuard(document),
			spoil: func(ctx context.Context, rdb *redis.Client) error { return rdb.Set(ctx, "item:7", "spoilt", 0).Err() },
			written: func(ctx context.Context, rdb *redis.Client) (bool, error) {
				v, err := rdb.Get(ctx, "item:7").Result()
				return strings.HasPrefix(v, `{"id":7,"name":"nn`), err
			},
		},
		{
			name: "hash field set", table: "item", rows: itemRows,
			mapping: fmt.Sprintf(`hash: {key: "group:{id|mod:%d}", field: "f{id}", value: "{name}"}`, itemRows/perGroup),
			plain:   [][]string{{"HSET", "group:plain", "f__rand_int__", name}},
			guard:   fieldGuard(name),
			spoil: func(ctx context.Context, rdb *redis.Client) error {
				return rdb.HSet(ctx, "group:7", "f7", "spoilt").Err()
			},
			written: func(ctx context.Context, rdb *redis.Client) (bool, error) {
				v, err := rdb.HGet(ctx, "group:7", "f7").Result()
				return v == name, err
			},
		},
		{
			name: "set member", table: "item", rows: itemRows,
			// A set for each row: where many members of one set change at once, some come before the floor of its versions.
			mapping: `set: {key: "tag:{id}", member: "{stock}"}`,
			plain:   [][]string{{"SADD", "tag:__rand_int__", "1"}},
			guard:   memberGuard(),
			spoil:   fillSets,
			written: func(ctx context.Context, rdb *redis.Client) (bool, error) {
				return rdb.SIsMember(ctx, "tag:7", "1").Result()
			},
		},
		{
			name: "delete and publish", table: "item", rows: itemRows,
			mapping: `keys: ["gone:{id}"]
    publish: {channel: gone, message: "{id}"}`,
			plain: [][]string{{"UNLINK", "gone:__rand_int__"}, {"PUBLISH", "gone", "__rand_int__"}},
			spoil: func(ctx context.Context, rdb *redis.Client) error { return rdb.Set(ctx, "gone:7", "spoilt", 0).Err() },
			written: func(ctx context.Context, rdb *redis.Client) (bool, error) {
				n, err := rdb.Exists(ctx, "gone:7").Result()
				return n == 0, err
			},
		},
		{
			name: "rebuild by query", table: "sale", rows: queryRows,
			mapping: `keys: ["sale:{id}"]
    rebuild: {query: "SELECT id, name, stock FROM sale WHERE id = :id", as: json}`,
			plain: [][]string{{"SET", "sale:__rand_int__", document}},
			spoil: func(ctx context.Context, rdb *redis.Client) error { return rdb.Set(ctx, "sale:7", "spoilt", 0).Err() },
			written: func(ctx context.Context, rdb *redis.Client) (bool, error) {
				v, err := rdb.Get(ctx, "sale:7").Result()
				return strings.HasPrefix(v, `{"id":7,"name":"nn`), err
			},
		},
	}
}

// fillSets makes the sets, with a member that is no row's: members are only added to what is there.
func fillSets(ctx context.Context, rdb *redis.Client) error {
	for from := 1; from <= itemRows; from += barePipeline {
		member := func(id int) []any { return []any{"sadd", fmt.Sprintf("tag:%d", id), "0"} }
		if err := pipeline(ctx, rdb, member, from, min(from+barePipeline, itemRows+1)); err != nil {
			return err
		}
	}
	return nil
}

// actionsSection measures every action through freshet, and plainly by redis-benchmark. Each change is one action
// (second_delete: none), to a key that freshet knows already.
func (b *benchmark) actionsSection() *section {
	s := &section{
		name:     "actions",
		title:    fmt.Sprintf("actions that write, beside redis-benchmark (%d connections, %d commands in a pipeline)", bareClients, barePipeline),
		noWarmUp: true,
	}
	all := actions()
	s.setup = func(ctx context.Context, b *benchmark) error { return b.prepareActions(ctx, all) }
	for _, a := range all {
		plain := a.name + ", plainly"
		s.contenders = append(s.contenders, &contender{name: plain, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			rate, err := b.plainly(ctx, a)
			return []measure{{name: "keys/s", value: rate}}, err
		}}, &contender{name: a.name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			rate, err := b.throughFreshet(ctx, a)
			return []measure{{name: "keys/s", value: rate, of: plain}}, err
		}})
	}
	return s
}

// guardSection measures what the guard of versions costs in itself: the same client writes with it and without it.
func (b *benchmark) guardSection() *section {
	s := &section{name: "guard", title: "the same client writing with the guard of versions and without it", noWarmUp: true}
	for _, a := range actions() {
		if a.guard == nil {
			continue
		}
		plain := a.name + ", plain"
		s.contenders = append(s.contenders, &contender{name: plain, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			rate, err := a.guard.withoutGuard(ctx, b, a.rows)
			return []measure{{name: "keys/s", value: rate}}, err
		}}, &contender{name: a.name + ", guarded", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			rate, err := a.guard.withGuard(ctx, b, a.rows)
			return []measure{{name: "keys/s", value: rate, of: plain}}, err
		}})
	}
	return s
}

// prepareActions makes the tables, has freshet begin to read, and then changes each of the rows once. A version's epoch is
// that of the store, and what is known of another epoch is not trusted: so all runs of an action go on from one store.
func (b *benchmark) prepareActions(ctx context.Context, all []*action) error {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return err
	}
	if err := b.fill(ctx, true); err != nil {
		return err
	}
	rows := map[string]int{}
	for _, a := range all {
		if rows[a.table] == 0 {
			if err := makeTable(ctx, source.DB(), a.table, a.rows); err != nil {
				return err
			}
		}
		rows[a.table] = a.rows
	}
	for i, a := range all {
		a.store = filepath.Join(b.dir, fmt.Sprintf("action%d", i))
		if _, err := b.catchUp(ctx, a.setting(source, a.store), 0); err != nil {
			return err
		}
	}
	for table, n := range rows {
		for lo := 1; lo <= n; lo += 1000 {
			q := fmt.Sprintf("UPDATE shop.%s SET stock = 1 WHERE id BETWEEN %d AND %d", table, lo, lo+999)
			if _, err := source.DB().ExecContext(ctx, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// setting is freshet with this action only, the event log in one process, and its store in a directory of its own.
func (a *action) setting(source *testbed.Server, store string) setting {
	return setting{
		source: source, mappings: fmt.Sprintf("  - table: shop.%s\n    %s\n", a.table, a.mapping),
		log: func(context.Context, *benchmark, string) (string, error) { return fmt.Sprintf("{dir: %q}", store), nil },
	}
}

func makeTable(ctx context.Context, db *sql.DB, table string, rows int) error {
	q := fmt.Sprintf("CREATE TABLE shop.%s (id BIGINT PRIMARY KEY, name VARCHAR(100) NOT NULL, stock INT NOT NULL)", table)
	if _, err := db.ExecContext(ctx, q); err != nil {
		return err
	}
	for lo := 1; lo <= rows; lo += 1000 {
		var values []string
		for id := lo; id < min(lo+1000, rows+1); id++ {
			values = append(values, fmt.Sprintf("(%d, REPEAT('n', %d), 0)", id, payload))
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO shop.%s VALUES %s", table, strings.Join(values, ","))); err != nil {
			return err
		}
	}
	return nil
}

// throughFreshet returns the keys per second. A machine that is too slow, or too busy, has freshet forget in place of
// writing, for what takes too long is old news: then it tries again.
func (b *benchmark) throughFreshet(ctx context.Context, a *action) (float64, error) {
	for range 3 {
		if rate, err := b.oneAction(ctx, a); rate != 0 || err != nil {
			return rate, err
		}
	}
	return 0, fmt.Errorf("%w: three times freshet did not write, but forget: this machine is too slow, or too busy", errInvalid)
}

// oneAction has freshet get to know the keys, and then do it all again, which is measured. The rate is 0 if it has not
// written.
func (b *benchmark) oneAction(ctx context.Context, a *action) (float64, error) {
	rdb := b.redis.Client()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	if _, err := b.runAction(ctx, a); err != nil {
		return 0, err
	}
	if err := a.spoil(ctx, rdb); err != nil {
		return 0, err
	}
	c, err := b.runAction(ctx, a)
	if err != nil {
		return 0, err
	}
	ok, err := a.written(ctx, rdb)
	if !ok && (err == nil || errors.Is(err, redis.Nil)) {
		return 0, nil
	}
	return c.rate(), err
}

// runAction has freshet do an action, from a copy of its store.
func (b *benchmark) runAction(ctx context.Context, a *action) (*caughtUp, error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	store, err := os.MkdirTemp(b.dir, "store")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(store, os.DirFS(a.store)); err != nil {
		return nil, err
	}
	return b.catchUp(ctx, a.setting(source, store), a.rows)
}

const (
	bareClients  = 4
	barePipeline = 100
	barePlenty   = 200_000
)

var perSecond = regexp.MustCompile(`([0-9.]+) requests per second`)

// plainly has redis-benchmark do the commands of one change, and returns the changes per second.
func (b *benchmark) plainly(ctx context.Context, a *action) (float64, error) {
	took := 0.0 // of one change, in seconds
	for _, command := range a.plain {
		args := append([]string{
			"-p", strconv.Itoa(b.redis.Port), "-n", strconv.Itoa(barePlenty), "-c", strconv.Itoa(bareClients), "-P", strconv.Itoa(barePipeline),
			"-r", strconv.Itoa(a.rows), "-q",
		}, command...)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		out, err := exec.CommandContext(ctx, "redis-benchmark", args...).CombinedOutput()
		cancel()
		if err != nil {
			return 0, fmt.Errorf("redis-benchmark (of the package redis-tools): %w\n%s", err, out)
		}
		m := perSecond.FindAllSubmatch(out, -1)
		if len(m) == 0 {
			return 0, fmt.Errorf("redis-benchmark says %q", out)
		}
		rate, err := strconv.ParseFloat(string(m[len(m)-1][1]), 64)
		if err != nil || rate == 0 {
			return 0, fmt.Errorf("redis-benchmark says %q", out)
		}
		took += 1 / rate
	}
	return 1 / took, nil
}
