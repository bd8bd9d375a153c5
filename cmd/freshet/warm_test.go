package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/e2e/oracle"
	"github.com/freshet/freshet/proof/testbed"
)

// values returns what is cached under keys that begin with a prefix.
func (s *site) values(prefix string) map[string]string {
	s.t.Helper()
	got := map[string]string{}
	for _, key := range s.allCached() {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		v, err := s.redis.Client().Get(s.t.Context(), key).Result()
		if !errors.Is(err, redis.Nil) {
			testbed.Must(s.t, err)
			got[key] = v
		}
	}
	return got
}

// Both ways to a row must have the same result: what a walk writes is compared with what the binlog's events wrote, as
// the text that keys are made of and as a document. The server's time zone is not UTC.
func TestWalkedRowsAreThoseOfTheBinlog(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		source.Exec(t, "SET GLOBAL time_zone = '+05:30'")
		s := newSite(t, source)
		columns := oracle.Columns(strings.HasSuffix(t.Name(), "mariadb"))
		var definitions, placeholders []string
		for i, c := range columns {
			definitions = append(definitions, fmt.Sprintf("c%d %s", i, c.SQL))
			if !c.Keyless {
				placeholders = append(placeholders, fmt.Sprintf("{c%d}", i))
			}
		}
		source.Exec(t, "SET sql_mode = ''", "CREATE TABLE shop.wide (id INT PRIMARY KEY, touched INT, "+strings.Join(definitions, ", ")+
			") ROW_FORMAT=DYNAMIC")
		const rows = 40
		r := testbed.Seeded(t)
		for id := range rows {
			var literals []string
			for _, c := range columns {
				literal := c.Value(r)
				if strings.HasPrefix(c.SQL, "MEDIUM") && c.Keyless { // a document has 256 KiB at most
					literal = "LEFT(" + literal + ", 3000)"
				}
				literals = append(literals, literal)
			}
			insert := fmt.Sprintf("INSERT INTO shop.wide VALUES (%d, 0, %s)", id, strings.Join(literals, ", "))
			source.Exec(t, "SET sql_mode = ''", insert)
		}
		s.mappings = fmt.Sprintf(`
  - {table: shop.wide, keys: ["doc:{id}"], second_delete: 2s, rebuild: {from: row, as: json}}
  - {table: shop.wide, keys: ["text:{id}"], second_delete: 2s, rebuild: {from: row, as: string, value: %q}}
`, strings.Join(placeholders, "|"))
		s.run()
		// Again and again, since the first change of a key that freshet does not know only forgets it.
		written := map[string]string{}
		testbed.Eventually(t, patience, "all rows are written", func() bool {
			for id := range rows {
				if written[fmt.Sprintf("doc:%d", id)] == "" || written[fmt.Sprintf("text:%d", id)] == "" {
					source.Exec(t, fmt.Sprintf("UPDATE shop.wide SET touched = touched + 1 WHERE id = %d", id))
				}
			}
			changed := time.Now()
			s.await("all is finished", func(st *app.Status) bool { return st.FreshAsOf.After(changed) })
			for key, v := range s.values("") {
				written[key] = v
			}
			return len(written) == 2*rows
		})
		testbed.Must(t, s.redis.Client().FlushDB(t.Context()).Err())
		walked := s.warmed(2*rows, "shop.wide", "")
		for key, v := range walked {
			if v != written[key] {
				t.Errorf("%s\nby the binlog %s\nby the walk   %s", key, written[key], v)
			}
		}
	})
}

// warmed has a table walked until so many values are cached, and returns them. A value that could not be written in
// time is forgotten instead, on a machine that is busy: then it is walked again.
func (s *site) warmed(values int, table, where string) (got map[string]string) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "all values are written", func() bool {
		s.warm(table, where)
		got = s.values("")
		return len(got) >= values
	})
	return got
}

// warm has a table walked.
func (s *site) warm(table, where string) {
	s.t.Helper()
	args := []string{"warm", "--table", table, "--wait"}
	if where != "" {
		args = append(args, "--where", where)
	}
	r := s.start(args...)
	if code := r.Wait(s.t, patience); code != exitDone {
		s.t.Fatalf("freshet %s: exit code %d: %s", strings.Join(args, " "), code, r.Stderr())
	}
}

// document is the value of a product.
type document struct{ ID, Price int }

// products returns the prices of all products by their ids, and the same of the cache.
func (s *site) products() (rows, cached map[int]int) {
	s.t.Helper()
	rows = map[int]int{}
	found, err := s.source.DB().QueryContext(s.t.Context(), "SELECT id, price FROM shop.product")
	testbed.Must(s.t, err)
	defer found.Close()
	for found.Next() {
		var id, price int
		testbed.Must(s.t, found.Scan(&id, &price))
		rows[id] = price
	}
	testbed.Must(s.t, found.Err())
	return rows, s.prices()
}

// prices returns the prices of all products that are cached.
func (s *site) prices() map[int]int {
	s.t.Helper()
	cached := map[int]int{}
	keys := slices.DeleteFunc(s.allCached(), func(key string) bool { return !strings.HasPrefix(key, "product:") })
	for len(keys) > 0 {
		n := min(len(keys), 1000)
		all, err := s.redis.Client().MGet(s.t.Context(), keys[:n]...).Result()
		testbed.Must(s.t, err)
		for _, v := range all {
			var d document
			if text, ok := v.(string); ok {
				testbed.Must(s.t, json.Unmarshal([]byte(text), &d))
				cached[d.ID] = d.Price
			}
		}
		keys = keys[n:]
	}
	return cached
}

// fill makes products with the ids from 0 on.
func (s *site) fill(rows int) {
	s.t.Helper()
	for from := 0; from < rows; from += 1000 {
		var all []string
		for id := from; id < min(from+1000, rows); id++ {
			all = append(all, fmt.Sprintf("(%d, 1)", id))
		}
		s.source.Exec(s.t, "INSERT INTO shop.product VALUES "+strings.Join(all, ", "))
	}
}

const rebuilt = `
  - {table: shop.product, keys: ["product:{id}"], second_delete: 1s, rebuild: {from: row, as: json}}
`

// keepWriting changes, deletes and inserts products with ids that it is given, until stop is called.
func (s *site) keepWriting(id func() int) (stop func()) {
	writing, end := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; writing.Err() == nil; n++ {
			id := id()
			statement := fmt.Sprintf("UPDATE shop.product SET price = price + 1 WHERE id = %d", id)
			switch n % 5 {
			case 0:
				statement = fmt.Sprintf("DELETE FROM shop.product WHERE id = %d", id)
			case 1:
				statement = fmt.Sprintf("REPLACE INTO shop.product VALUES (%d, %d)", id, n)
			}
			if _, err := s.source.DB().ExecContext(writing, statement); err != nil && writing.Err() == nil {
				s.t.Error(err)
				return
			}
			rest(writing, testbed.Cut(5*time.Millisecond, 0))
		}
	}()
	return func() {
		end()
		<-done
	}
}

// While a table is walked its rows are changed, deleted and inserted, and freshet is killed. At the end no value is
// older than its row, and none is of a row that is gone.
func TestATableIsWalkedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		rows, pace := testbed.Cut(8_000, 1_000_000), testbed.Cut(1_000, 50_000)
		s := newSite(t, source)
		s.mappings, s.extra = rebuilt, fmt.Sprintf("scope_rate: %d\n", pace)
		s.fill(rows)
		r := s.run()
		stop := s.keepWriting(func() int { return rand.IntN(rows + rows/10) })
		s.ask("warm", "--table", "shop.product")
		far := int64(0)
		for range 3 {
			s.await("rows are walked", func(st *app.Status) bool {
				return len(st.WarmUps) == 1 && st.WarmUps[0].Rows > far+int64(rows/5)
			})
			r.Kill9()
			r = s.start("run")
			s.await("freshet runs", func(st *app.Status) bool { return len(st.WarmUps) == 1 })
			if now := s.status().WarmUps[0].Rows; now < far {
				t.Errorf("%d rows were walked, and after a restart %d", far, now)
			} else {
				far = now
			}
		}
		if far == 0 {
			t.Error("after a restart it begins again")
		}
		for under := true; under; {
			s.await("the walk goes on, or has ended", func(st *app.Status) bool {
				under = len(st.WarmUps) > 0
				return !under || st.WarmUps[0].Rows > far
			})
			far += int64(rows / 20)
		}
		if e := s.status().EndedWarmUps; len(e) != 1 || !e[0].Done {
			t.Errorf("it ended as %+v", e)
		}
		stop()
		s.freshAgain()
		var have, cached map[int]int
		testbed.Eventually(t, patience, "no value is older than its row", func() bool {
			have, cached = s.products()
			for id, price := range cached {
				if p, there := have[id]; !there || p != price {
					return false
				}
			}
			return true
		})
		// What cannot be written in time is forgotten, which on a busy machine is most of it.
		if len(cached) < len(have)/10 {
			t.Errorf("of %d rows %d are cached", len(have), len(cached))
		}
		t.Logf("%d rows, %d values", len(have), len(cached))
	})
}

// A source on which nothing is written has one place for hours: its rows are no old news for that.
func TestACacheIsFilledByHand(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		source.Exec(t, "CREATE TABLE shop.list (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO shop.list VALUES (1, 7)",
			"CREATE TABLE shop.counted (id INT PRIMARY KEY)", "CREATE TABLE shop.item_1 (id INT PRIMARY KEY)",
			"CREATE VIEW shop.item_2 AS SELECT * FROM shop.item_1",
			"CREATE TABLE shop.keyless (id INT)")
		s.mappings = rebuilt + `
  - {table: shop.product, when: "row.price > 100", keys: ["dear:{id}"], rebuild: {from: row, as: json}, events: [update]}
  - {table: shop.list, keys: ["list:{n}"], publish: {channel: lists, message: "{n}"}}
  - {table: shop.counted, incr: "counter"}
  - {table: shop.item_*, keys: ["item:{id}"]}
  - {table: shop.keyless, keys: ["keyless:{id}"]}
`
		s.fill(100)
		source.Exec(t, "UPDATE shop.product SET price = 200 WHERE id >= 90")
		r := s.start("run")
		s.await("freshet runs", func(st *app.Status) bool { return st.State == app.Fresh || st.State == app.Doubtful })
		out := s.start("warm", "--table", "shop.product", "--dry-run", "--where", "id < 3")
		if code := out.Wait(t, patience); code != exitDone || !strings.HasPrefix(out.Stdout(),
			"would write or delete 3 keys\n  3 of shop.product\nfor example\n  \"product:0\"\n") {
			t.Errorf("a dry run: %d %s", code, out.Stdout())
		}
		if n := len(s.allCached()); n > 0 {
			t.Errorf("a dry run has written %d keys", n)
		}
		s.cache("list:7")
		s.cache("list:8")
		if got := s.warmed(13, "shop.product", "id < 2 OR id > 94"); len(got) != 2+5+5+2 {
			t.Errorf("cached: %v", got)
		}
		s.warmed(100+10+2, "shop.product", "")
		rows, _ := s.products()
		for id, price := range rows {
			key := fmt.Sprintf("product:%d", id)
			if v := s.values(key)[key]; v != fmt.Sprintf(`{"id":%d,"price":%d}`, id, price) {
				t.Errorf("%s: %s", key, v)
			}
		}
		s.warm("shop.list", "")
		s.gone("list:7")
		s.kept("list:8")
		for table, words := range map[string]string{
			"shop.none": "no mapping is for", "shop.counted": "only raise counters", "shop.item_2": "is a view",
			"shop.keyless": "has no key", "product": "is no table",
		} {
			s.refused(exitUsage, []string{words}, "warm", "--table", table)
		}
		s.refused(exitUsage, []string{"syntax"}, "warm", "--table", "shop.product", "--where", "id >")
		s.refused(exitUsage, []string{"schema.table"}, "warm")
		s.refused(exitFailed, []string{"no such warm-up"}, "warm", "--cancel", "82d87419d2ab")
		if st := s.status(); slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool { return d.Cause == "by_hand" }) {
			t.Errorf("doubts: %+v", st.Doubts)
		}
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	})
}

// walkedSlowly is a mapping with a query that takes so many seconds.
const walkedSlowly = `
  - table: shop.product
    keys: ["product:{id}"]
    second_delete: 1s
    rebuild: {query: "SELECT id, price, SLEEP(%g) AS slept FROM shop.product WHERE id = :id"}
`

// A warm-up has thousands of keys whose query is slow. A row that changes is queried before these; and all of them are
// queried in the end.
func TestAWarmUpByQueryLeavesTheQueriesToChanges(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.mappings = fmt.Sprintf(walkedSlowly, 0.02)
		s.fill(5000)
		s.run()
		s.warmed(50, "shop.product", "id < 50")
		s.ask("warm", "--table", "shop.product")
		s.await("rows are walked", func(st *app.Status) bool { return len(st.WarmUps) == 1 && st.WarmUps[0].Rows > 500 })
		testbed.Eventually(t, patience, "the value of a row that changes is written", func() bool {
			source.Exec(t, "UPDATE shop.product SET price = 9 - price WHERE id = 4999") // the first change deletes its key
			changed := time.Now()
			s.await("the change is finished", func(st *app.Status) bool { return st.FreshAsOf.After(changed) })
			return s.values("product:4999")["product:4999"] != ""
		})
		st := s.status()
		if len(st.WarmUps) != 1 || st.WarmUps[0].Rows > 4900 {
			t.Errorf("the change has waited for the warm-up: %+v", st.WarmUps)
		}
		for _, a := range st.Alarms {
			if a.Kind == alarm.RebuildForgone {
				t.Errorf("keys are deleted for want of a query: %s", a.Message)
			}
		}
	})
}

// A walk ends when it is cancelled, and when its table is dropped.
func TestAWarmUpThatEndsEarly(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.mappings, s.extra = rebuilt, "scope_rate: 20\n"
		s.fill(2000)
		s.run()
		under := func() string {
			t.Helper()
			s.await("rows are walked", func(st *app.Status) bool { return len(st.WarmUps) == 1 && st.WarmUps[0].Rows > 0 })
			return s.status().WarmUps[0].ID
		}
		ended := func(words string) {
			t.Helper()
			s.await("it has ended: "+words, func(st *app.Status) bool {
				return len(st.WarmUps) == 0 && len(st.EndedWarmUps) > 0 && !st.EndedWarmUps[0].Done &&
					strings.Contains(st.EndedWarmUps[0].Answer, words)
			})
		}
		s.ask("warm", "--table", "shop.product")
		id := under()
		if out := s.ask("warm", "--table", "shop.product"); !strings.Contains(out, id) {
			t.Errorf("the same warm-up, asked for again: %s", out)
		}
		s.ask("warm", "--table", "shop.product", "--where", "id > 3")
		out := s.ask("status")
		if !strings.Contains(out, "warm-up "+id) || !strings.Contains(out, "waiting for the one before it") {
			t.Errorf("the status: %s", out)
		}
		s.ask("warm", "--cancel", id)
		under()
		source.Exec(t, "DROP TABLE shop.product")
		ended("no table shop.product")
	})
}

func TestTheKeysOfSomeRowsAreForgotten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.keys = []string{"product:{id}", "price:{price}"}
		s.fill(50)
		source.Exec(t, "UPDATE shop.product SET price = id")
		s.run()
		cache := func() {
			for id := range 50 {
				s.cache(fmt.Sprintf("product:%d", id))
				s.cache(fmt.Sprintf("price:%d", id))
			}
		}
		cache()
		out := s.start("invalidate", "--table", "shop.product", "--where", "price BETWEEN 10 AND 19", "--dry-run")
		if code := out.Wait(t, patience); code != exitDone || !strings.HasPrefix(out.Stdout(), "would forget 20 keys\n") {
			t.Errorf("a dry run: %d %s", code, out.Stdout())
		}
		r := s.start("invalidate", "--table", "shop.product", "--where", "price BETWEEN 10 AND 19", "--wait")
		if code := r.Wait(t, patience); code != exitDone {
			t.Fatalf("exit code %d: %s", code, r.Stderr())
		}
		for id := range 50 {
			for _, key := range []string{fmt.Sprintf("product:%d", id), fmt.Sprintf("price:%d", id)} {
				if cached := s.cached(key); cached != (id < 10 || id > 19) {
					t.Errorf("%s: cached %v", key, cached)
				}
			}
		}
		s.freshAgain()
		if e := s.status().EndedDoubts; len(e) != 1 || !strings.Contains(e[0].Answer, "20 keys of 10 rows") {
			t.Errorf("it ended as %+v", e)
		}
		s.refused(exitUsage, []string{"syntax"}, "invalidate", "--table", "shop.product", "--where", "id >")
		s.refused(exitUsage, []string{"rows of one table"}, "invalidate", "--where", "id > 1")
		s.refused(exitUsage, []string{"rows of one table"}, "invalidate", "--table", "shop.product", "--pattern", "*",
			"--where", "1")
	})
}

// Free text in keys cannot be looked for in Redis, and the rows know it.
func TestKeysAreFoundByTheRows(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		source.Exec(t, "CREATE TABLE shop.user (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL)",
			"CREATE TABLE shop.guest (name VARCHAR(20))")
		for id := range 30 {
			source.Exec(t, fmt.Sprintf("INSERT INTO shop.user VALUES (%d, 'n%d')", id, id))
		}
		s.mappings = `
  - {table: shop.guest, keys: ["guest:{name}"], scope: rows}
  - {table: shop.user, keys: ["user:{name}"], scope: rows}
  - {table: shop.user, keys: ["id:{id}"]}
  - {table: shop.product, keys: ["product:{id}"]}
`
		s.run()
		for _, key := range []string{"user:n1", "user:n29", "user:stranger", "id:1", "id:77", "product:1"} {
			s.cache(key)
		}
		s.ask("invalidate", "--table", "shop.user")
		for _, key := range []string{"user:n1", "user:n29", "id:1", "id:77"} {
			s.gone(key)
		}
		s.freshAgain()
		s.kept("user:stranger", "product:1")

		s.cache("user:n2")
		source.Exec(t, "SET sql_log_bin = 0", "UPDATE shop.user SET name = 'other' WHERE id = 3", "SET sql_log_bin = 1")
		s.cache("user:other")
		source.Exec(t, "SET SESSION binlog_format = STATEMENT", "UPDATE shop.user SET name = CONCAT(name, '') WHERE id < 5")
		s.gone("user:n2")
		s.gone("user:other")
		s.freshAgain()
		s.kept("user:stranger", "product:1")
		out := s.start("check")
		out.Wait(t, patience)
		if !strings.Contains(out.Stdout(), "rows that are gone are not found") {
			t.Errorf("check says nothing of it: %s", out.Stdout())
		}

		// A table without a key along which it can be read holds up no other.
		s.cache("user:n7")
		source.Exec(t, "SET SESSION binlog_format = STATEMENT", "BEGIN", "INSERT INTO shop.guest VALUES ('a')",
			"UPDATE shop.user SET name = CONCAT(name, '') WHERE id = 7", "COMMIT")
		s.gone("user:n7")
		s.await("one doubt is left, which nothing answers", func(st *app.Status) bool {
			return len(st.Doubts) == 1 && st.Doubts[0].Stuck && slices.Equal(st.Doubts[0].Tables, []string{"shop.guest"})
		})
	})
}
