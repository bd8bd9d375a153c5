package main

import (
	"context"
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

	store                        string // freshet's, of before the changes: each run goes on from a copy of it
	freshet, bare, with, without []float64
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

// compareActions measures every action in turn, several times over: through freshet, and plainly by redis-benchmark.
// Each change is one action (second_delete: none), to a key that freshet knows already.
func (b *benchmark) compareActions(ctx context.Context, runs int) error {
	all := actions()
	if err := b.prepareActions(ctx, all); err != nil {
		return err
	}
	fmt.Printf("\nactions: keys/s, %d connections of redis-benchmark with %d commands in a pipeline\n", bareClients, barePipeline)
	for range runs {
		for _, a := range all {
			if err := b.measureAction(ctx, a); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
	}
	fmt.Printf("\n%-24s %14s %18s %8s   %16s %14s %6s\n", "keys/s (medians)", "freshet", "redis-benchmark", "ratio", "guarded writes", "plain writes", "ratio")
	for _, a := range all {
		fmt.Printf("%-24s %14.0f %18.0f %8.3f", a.name, median(a.freshet), median(a.bare), median(a.freshet)/median(a.bare))
		if a.guard != nil {
			fmt.Printf("   %16.0f %14.0f %6.3f", median(a.with), median(a.without), median(a.with)/median(a.without))
		}
		fmt.Println()
	}
	return nil
}

// prepareActions makes the tables, has freshet begin to read, and then changes each of the rows once. A version's epoch is
// that of the store, and what is known of another epoch is not trusted: so all runs of an action go on from one store.
func (b *benchmark) prepareActions(ctx context.Context, all []*action) error {
	if err := b.redis.Client().FlushAll(ctx).Err(); err != nil {
		return err
	}
	rows := map[string]int{}
	for _, a := range all {
		if rows[a.table] == 0 {
			if err := b.makeTable(ctx, a.table, a.rows); err != nil {
				return err
			}
		}
		rows[a.table] = a.rows
	}
	for i, a := range all {
		a.store = filepath.Join(b.dir, fmt.Sprintf("action%d", i))
		cmd, err := b.commandFor(ctx, a.mappings(), kept(a.store), "now", "none", "--until-caught-up")
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	for table, n := range rows {
		for lo := 1; lo <= n; lo += 1000 {
			q := fmt.Sprintf("UPDATE shop.%s SET stock = 1 WHERE id BETWEEN %d AND %d", table, lo, lo+999)
			if _, err := b.source.DB().ExecContext(ctx, q); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *action) mappings() string {
	return fmt.Sprintf("  - table: shop.%s\n    %s\n", a.table, a.mapping)
}

// kept is the event log in one process, with its store in a directory of its own.
func kept(store string) eventLog {
	return func(*benchmark, string) string { return fmt.Sprintf("{dir: %q}", store) }
}

func (b *benchmark) makeTable(ctx context.Context, table string, rows int) error {
	q := fmt.Sprintf("CREATE TABLE shop.%s (id BIGINT PRIMARY KEY, name VARCHAR(100) NOT NULL, stock INT NOT NULL)", table)
	if _, err := b.source.DB().ExecContext(ctx, q); err != nil {
		return err
	}
	for lo := 1; lo <= rows; lo += 1000 {
		var values []string
		for id := lo; id < min(lo+1000, rows+1); id++ {
			values = append(values, fmt.Sprintf("(%d, REPEAT('n', %d), 0)", id, payload))
		}
		if _, err := b.source.DB().ExecContext(ctx, fmt.Sprintf("INSERT INTO shop.%s VALUES %s", table, strings.Join(values, ","))); err != nil {
			return err
		}
	}
	return nil
}

// measureAction runs an action once, in each way.
func (b *benchmark) measureAction(ctx context.Context, a *action) error {
	var freshet float64
	var err error
	for tries := 0; freshet == 0 && err == nil; tries++ {
		if tries == 3 {
			return errors.New("INVALID: three times freshet did not write, but forget: this machine is too slow, or too busy")
		}
		freshet, err = b.throughFreshet(ctx, a)
	}
	if err != nil {
		return err
	}
	bare, err := b.plainly(ctx, a)
	if err != nil {
		return err
	}
	with, without := 0.0, 0.0
	if a.guard != nil {
		if with, without, err = a.guard.measure(ctx, b.redis, a.rows); err != nil {
			return err
		}
	}
	a.freshet, a.bare, a.with, a.without = append(a.freshet, freshet), append(a.bare, bare), append(a.with, with), append(a.without, without)
	fmt.Printf("%-24s %9.0f keys/s, plainly %9.0f", a.name, freshet, bare)
	if a.guard != nil {
		fmt.Printf("; guarded %9.0f, plain %9.0f", with, without)
	}
	fmt.Println()
	return nil
}

// throughFreshet has freshet get to know the keys, and then do it all again, which is measured. The rate is 0 if it has
// not written: what takes too long is old news, and forgotten.
func (b *benchmark) throughFreshet(ctx context.Context, a *action) (float64, error) {
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
	rate, err := b.runAction(ctx, a)
	if err != nil {
		return 0, err
	}
	ok, err := a.written(ctx, rdb)
	if !ok && (err == nil || errors.Is(err, redis.Nil)) {
		return 0, nil
	}
	return rate, err
}

// runAction has freshet do an action, from a copy of its store.
func (b *benchmark) runAction(ctx context.Context, a *action) (float64, error) {
	store, err := os.MkdirTemp(b.dir, "store")
	if err != nil {
		return 0, err
	}
	if err := os.CopyFS(store, os.DirFS(a.store)); err != nil {
		return 0, err
	}
	cmd, err := b.commandFor(ctx, a.mappings(), kept(store), "now", "none", "--until-caught-up")
	if err != nil {
		return 0, err
	}
	return catchUp(cmd, a.rows)
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
