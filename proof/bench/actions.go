package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// action is one way of doing more to a key than deleting it, and the same writes done plainly.
type action struct {
	name string
	// table has rows rows, each of which is changed once.
	table string
	rows  int
	// goal is that of its rate, compared with the plain one.
	goal string
	// mapping is freshet's, without the table.
	mapping string
	// plain are commands of redis-benchmark that write as much as one change does; __rand_int__ is one of the rows.
	plain [][]string
	// query is what the action asks the database for each row, which is its reference instead of plain.
	query string
	// guard writes what freshet does, over one connection each, with and without the guard. Nil: there is no guard.
	guard *guarded
	// fill makes what must be there before a change. Nil: nothing.
	fill func(ctx context.Context, rdb *redis.Client) error
	// spoil undoes a row's write, and written reports whether it is done again, with the row's stock as it is now.
	spoil   func(ctx context.Context, rdb *redis.Client, id int) error
	written func(ctx context.Context, rdb *redis.Client, id, stock int) (bool, error)
}

const (
	// A change must be written within 5 s of its commit: then it is old news, and forgotten instead.
	itemRows  = 100_000
	queryRows = 15_000  // as many as may wait for their queries at once, and some more
	goneRows  = 200_000 // whatever their number, they are written in time
	// queryConnections are those that freshet has for its queries.
	queryConnections = 4

	perGroup = 1000 // rows whose field or member is in one key
	payload  = 64   // bytes of a row's name
)

// actions returns what is measured.
func actions() []*action {
	name := strings.Repeat("n", payload)
	document := fmt.Sprintf(`{"id":__rand_int__,"name":"%s","stock":1}`, name)
	return []*action{
		{
			name: "rebuild from row, json", table: "item", rows: itemRows, goal: "≥ 0.4",
			mapping: `keys: ["item:{id}"]
    rebuild: {from: row, as: json, columns: [id, name, stock]}`,
			plain: [][]string{{"SET", "item:__rand_int__", document}},
			guard: rebuildGuard(document),
			spoil: spoilString("item"), written: hasDocument("item"),
		},
		{
			name: "hash field set", table: "item", rows: itemRows, goal: "≥ 0.4",
			mapping: fmt.Sprintf(`hash: {key: "group:{id|mod:%d}", field: "f{id}", value: "{name}"}`, itemRows/perGroup),
			plain:   [][]string{{"HSET", "group:plain", "f__rand_int__", name}},
			guard:   fieldGuard(name),
			spoil: func(ctx context.Context, rdb *redis.Client, id int) error {
				return rdb.HSet(ctx, fmt.Sprintf("group:%d", id%(itemRows/perGroup)), fmt.Sprintf("f%d", id), "spoilt").Err()
			},
			written: func(ctx context.Context, rdb *redis.Client, id, _ int) (bool, error) {
				v, err := rdb.HGet(ctx, fmt.Sprintf("group:%d", id%(itemRows/perGroup)), fmt.Sprintf("f%d", id)).Result()
				return v == name, err
			},
		},
		{
			name: "set member", table: "item", rows: itemRows, goal: "≥ 0.3",
			// A set for each row: where many members of one set change at once, some come before the floor of its
			// versions.
			mapping: `set: {key: "tag:{id}", member: "{stock}"}`,
			// A row's member is another one than before.
			plain: [][]string{{"SADD", "tag:__rand_int__", "1"}, {"SREM", "tag:__rand_int__", "1"}},
			guard: memberGuard(),
			fill:  fillSets,
			spoil: func(context.Context, *redis.Client, int) error { return nil }, // the next member is another one
			written: func(ctx context.Context, rdb *redis.Client, id, stock int) (bool, error) {
				return rdb.SIsMember(ctx, fmt.Sprintf("tag:%d", id), stock).Result()
			},
		},
		{
			name: "delete and publish", table: "sold", rows: goneRows, goal: "≥ 0.8",
			mapping: `keys: ["gone:{id}"]
    publish: {channel: gone, message: "{id}"}`,
			plain:   [][]string{{"UNLINK", "gone:__rand_int__"}, {"PUBLISH", "gone", "__rand_int__"}},
			fill:    func(ctx context.Context, rdb *redis.Client) error { return rdb.ConfigResetStat(ctx).Err() },
			spoil:   spoilString("gone"),
			written: goneAndPublished,
		},
		{
			name: "rebuild by query", table: "sale", rows: queryRows, goal: "≥ 0.6",
			mapping: `keys: ["sale:{id}"]
    rebuild: {query: "` + saleQuery(":id") + `", as: json}`,
			query: saleQuery("?"),
			spoil: spoilString("sale"), written: hasDocument("sale"),
		},
	}
}

func saleQuery(id string) string { return "SELECT id, name, stock FROM sale WHERE id = " + id }

// goneAndPublished reports, from the last row, whether Redis has heard of all rows since its statistics were reset.
func goneAndPublished(ctx context.Context, rdb *redis.Client, id, _ int) (bool, error) {
	if id == goneRows {
		stats, err := rdb.Info(ctx, "commandstats").Result()
		if err != nil {
			return false, err
		}
		m := publishCalls.FindStringSubmatch(stats)
		if m == nil {
			return false, nil // none yet
		}
		if calls, err := strconv.Atoi(m[1]); err != nil || calls < goneRows {
			return false, err
		}
	}
	n, err := rdb.Exists(ctx, fmt.Sprintf("gone:%d", id)).Result()
	return n == 0, err
}

var publishCalls = regexp.MustCompile(`(?m)^cmdstat_publish:calls=(\d+),`)

func spoilString(name string) func(context.Context, *redis.Client, int) error {
	return func(ctx context.Context, rdb *redis.Client, id int) error {
		return rdb.Set(ctx, fmt.Sprintf("%s:%d", name, id), "spoilt", 0).Err()
	}
}

func hasDocument(name string) func(context.Context, *redis.Client, int, int) (bool, error) {
	return func(ctx context.Context, rdb *redis.Client, id, stock int) (bool, error) {
		v, err := rdb.Get(ctx, fmt.Sprintf("%s:%d", name, id)).Result()
		whole := strings.HasPrefix(v, fmt.Sprintf(`{"id":%d,"name":"nn`, id)) &&
			strings.HasSuffix(v, fmt.Sprintf(`,"stock":%d}`, stock))
		return whole, err
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

// actionsSection measures every action through freshet, and plainly by redis-benchmark. All rows change in one
// transaction while freshet follows, for a backlog is forgotten, not written. Each change is one action
// (second_delete: none), to a key that freshet knows already.
func (b *benchmark) actionsSection() *section {
	s := &section{
		name: "actions",
		title: fmt.Sprintf("actions that write, compared with redis-benchmark (%d connections, %d commands in a pipeline)",
			bareClients, barePipeline),
		rounds: 3, noWarmUp: true,
	}
	all := actions()
	s.setup = func(ctx context.Context, b *benchmark) error { return b.prepareActions(ctx, all) }
	for _, a := range all {
		plain, plainly := a.name+", plainly", (*benchmark).plainly
		if a.query != "" {
			plain, plainly = a.name+", asked plainly", (*benchmark).askedPlainly
		}
		s.contenders = append(s.contenders,
			&contender{name: plain, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				rate, err := plainly(b, ctx, a)
				return []measure{{name: "keys/s", value: rate}}, err
			}}, &contender{name: a.name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				rate, err := b.throughFreshet(ctx, a)
				return []measure{{name: "keys/s", value: rate, of: plain, goal: a.goal}}, err
			}})
	}
	return s
}

// guardSection measures what the guard of versions costs in itself: the same client writes with it and without it.
func (b *benchmark) guardSection() *section {
	s := &section{
		name: "guard", title: "the same client writing with the guard of versions and without it",
		noWarmUp: true,
	}
	for _, a := range actions() {
		if a.guard == nil {
			continue
		}
		plain := a.name + ", plain"
		s.contenders = append(s.contenders,
			&contender{name: plain, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				rate, err := a.guard.withoutGuard(ctx, b, a.rows)
				return []measure{{name: "keys/s", value: rate}}, err
			}}, &contender{name: a.name + ", guarded", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
				rate, err := a.guard.withGuard(ctx, b, a.rows)
				return []measure{{name: "keys/s", value: rate, of: plain}}, err
			}})
	}
	return s
}

// prepareActions makes the tables.
func (b *benchmark) prepareActions(ctx context.Context, all []*action) error {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return err
	}
	made := map[string]bool{}
	for _, a := range all {
		if made[a.table] {
			continue
		}
		made[a.table] = true
		if err := makeTable(ctx, source.DB(), a.table, a.rows); err != nil {
			return err
		}
	}
	return nil
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
		if _, err := db.ExecContext(ctx,
			fmt.Sprintf("INSERT INTO shop.%s VALUES %s", table, strings.Join(values, ","))); err != nil {
			return err
		}
	}
	return nil
}

const (
	bareClients  = 4
	barePipeline = 100
	barePlenty   = 200_000
)

var perSecond = regexp.MustCompile(`([0-9.]+) requests per second`)

// askedPlainly asks the database for each row over as many connections as freshet has for its queries, and returns how
// many answers there were in a second. Nothing is done with them.
func (b *benchmark) askedPlainly(ctx context.Context, a *action) (float64, error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return 0, err
	}
	var all errgroup.Group
	share := a.rows / queryConnections
	var took [queryConnections]time.Duration
	for i := range queryConnections {
		all.Go(func() error {
			c, err := source.DB().Conn(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.ExecContext(ctx, "USE shop"); err != nil {
				return err
			}
			s, err := c.PrepareContext(ctx, a.query)
			if err != nil {
				return err
			}
			defer s.Close()
			begin := time.Now()
			defer func() { took[i] = time.Since(begin) }()
			for id := i * share; id < (i+1)*share; id++ {
				var key, name, stock string
				if err := s.QueryRowContext(ctx, id+1).Scan(&key, &name, &stock); err != nil {
					return fmt.Errorf("row %d: %w", id+1, err)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	return float64(a.rows) / slices.Max(took[:]).Seconds(), nil
}

// plainly has redis-benchmark do the commands of one change, and returns the changes per second.
func (b *benchmark) plainly(ctx context.Context, a *action) (float64, error) {
	if err := b.fill(ctx, true); err != nil {
		return 0, err
	}
	took := 0.0 // of one change, in seconds
	for _, command := range a.plain {
		args := append([]string{
			"-p", strconv.Itoa(b.redis.Port), "-n", strconv.Itoa(barePlenty), "-c", strconv.Itoa(bareClients), "-P",
			strconv.Itoa(barePipeline),
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
