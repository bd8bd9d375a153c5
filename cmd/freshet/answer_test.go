package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// freshAgain waits until nothing is in doubt any more.
func (s *site) freshAgain() {
	s.t.Helper()
	s.await("nothing is in doubt", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
}

// kept reports which of the keys are no longer cached, though they should be.
func (s *site) kept(keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		if !s.cached(k) {
			s.t.Errorf("%q is gone", k)
		}
	}
}

// what looks like a key of the site's mapping, and is none.
func lookalikes() []string {
	return []string{
		"product:1:reviews", "product:x", "product:", "product:01", "product:-0", "product:99999999999", "Product:1",
		"old:product:1", "product", "products:1", "product:1 ", "product:1\n", "product:١",
	}
}

func TestTheKeysOfATruncatedTableAreForgotten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.run()
		s.write(1)
		others := lookalikes()
		for _, k := range append(others, "product:1", "product:-2147483648", "product:2147483647") {
			s.cache(k)
		}
		s.source.Exec(t, "TRUNCATE shop.product")
		for _, k := range []string{"product:1", "product:-2147483648", "product:2147483647"} {
			s.gone(k)
		}
		s.freshAgain()
		s.kept(others...)
	})
}

// The store is that of one source, whatever its name was when a doubt came.
func TestADoubtOfBeforeTheSourceWasRenamedIsAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	r := s.run()
	s.write(1)
	s.cache("product:1")
	testbed.Must(t, s.redis.Pause())
	s.source.Exec(t, "TRUNCATE shop.product")
	s.awaitDoubts(1)
	r.Kill9()
	testbed.Must(t, s.redis.Resume())
	s.sourceMore = ", name: renamed"
	s.start("run")
	s.gone("product:1")
	s.freshAgain()
}

func TestAnAnswerOutlivesAKill(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.extra = "scope_rate: 200\n"
	r := s.run()
	const keys = 3000
	for id := range keys {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.source.Exec(t, "DROP TABLE shop.product")
	left := func() int { return len(s.allCached()) }
	for range 3 {
		before := left()
		testbed.Eventually(t, patience, "keys are forgotten", func() bool { return left() < before-100 })
		r.Kill9()
		r = s.start("run")
	}
	testbed.Eventually(t, patience, "all keys are forgotten", func() bool { return left() == 1 })
	s.await("the doubt is answered", func(st *app.Status) bool {
		return !slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool { return d.Cause == alarm.TruncatedTable })
	})
	s.kept("other:1")
}

func TestKeysAreForgottenByHand(t *testing.T) {
	eitherLog(t, keysAreForgottenByHand, keysAreForgottenByHandAroundKafka)
}

func keysAreForgottenByHand(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	s.source.Exec(t, "CREATE TABLE shop.review (id INT PRIMARY KEY, product_id INT NOT NULL)")
	s.keys = []string{"product:{id}", "price:{price}"}
	r := s.run()
	others := lookalikes()
	fill := func() {
		for _, k := range append(others, "product:1", "product:2", "price:7", "stray") {
			s.cache(k)
		}
	}
	fill()
	lines := slices.Sorted(strings.Lines(s.ask("invalidate", "--all", "--dry-run"))) // Redis has its own order
	if got := strings.Join(lines, ""); got != "  \"price:7\"\n  \"product:1\"\n  \"product:2\"\n  3 of shop.product\n"+
		"for example\nwould forget 3 keys\n" {
		t.Errorf("a dry run: %s", got)
	}
	for id := 100; id < 125; id++ {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	out := s.ask("invalidate", "--all", "--dry-run")
	if shown := strings.Count(out, "\n  \""); shown != 20 || !strings.HasPrefix(out, "would forget 28 keys\n") {
		t.Errorf("a dry run shows %d keys: %s", shown, out)
	}
	if out := s.ask("invalidate", "product:1", "stray"); out != "forgot 2 keys\n" {
		t.Errorf("by name: %s", out)
	}
	if s.cached("product:1") || s.cached("stray") {
		t.Error("keys that were named are cached")
	}
	s.kept(append(others, "product:2", "price:7")...)

	s.ask("invalidate", "--mapping", "product:{id}", "--wait")
	if s.cached("product:2") {
		t.Error("product:2 is cached")
	}
	s.kept(append(others, "price:7")...)

	fill()
	s.ask("invalidate", "--table", "shop.product", "--pattern", "pr*:[12]", "--wait")
	if s.cached("product:1") || s.cached("product:2") {
		t.Error("keys that match the pattern are cached")
	}
	s.kept(append(others, "price:7", "stray")...)

	s.ask("invalidate", "--all", "--wait")
	if s.cached("price:7") {
		t.Error("price:7 is cached")
	}
	s.kept(append(others, "stray")...)
	s.freshAgain()

	s.refused(exitUsage, []string{"shop.review"}, "invalidate", "--table", "shop.review")
	s.refused(exitUsage, []string{"all stands alone"}, "invalidate", "--all", "product:1")
	s.token = "guessed-token"
	s.refused(exitFailed, []string{"401"}, "invalidate", "product:1")
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// A doubt that freshet leaves to its operator is answered when the operator says so, also if that is said while freshet
// is down.
func TestADoubtIsAnsweredOnceSomebodyAsks(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	r := s.run()
	r.Stop(t, patience)
	s.cache("product:1")
	s.cache("price:1")
	s.keys = append(s.keys, "price:{price}") // which is in doubt for what was cached before
	r = s.start("run")
	s.await("the mappings are in doubt", func(st *app.Status) bool { return len(st.Doubts) == 1 })
	id := s.status().Doubts[0].ID
	s.kept("product:1", "price:1")
	r.Stop(t, patience)
	s.ask("doubts", "answer", id)
	s.run()
	s.gone("price:1")
	s.freshAgain()
	s.kept("product:1") // what its template names was kept fresh all the time
}

// answered waits until what the statements put in doubt is fresh again.
func (s *site) answered(statements ...string) {
	s.t.Helper()
	s.source.Exec(s.t, statements...)
	s.await("something was in doubt", func(st *app.Status) bool { return len(st.Alarms) > 0 })
	s.freshAgain()
	ended := s.status().EndedDoubts
	if len(ended) == 0 || ended[0].How != doubt.HowAnswered || !strings.Contains(ended[0].Answer, "keys forgotten") {
		s.t.Errorf("the status does not say how it ended: %+v", ended)
	}
}

func TestTheKeysOfADroppedSchemaAreForgotten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.run()
		s.write(1)
		s.cache("product:5")
		s.answered("DROP DATABASE shop")
		if s.cached("product:5") {
			t.Error("product:5 is still cached")
		}
	})
}

func TestTheKeysOfNamesWithDotsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.mappings = "[{table: '`my.shop`.`pro.duct`', keys: ['product:{id}']}]"
	s.source.Exec(t, "CREATE DATABASE `my.shop`", "CREATE TABLE `my.shop`.`pro.duct` (id INT PRIMARY KEY)")
	s.source.MayRead(t, "`my.shop`.*")
	s.run()
	s.cache("product:7")
	s.answered("TRUNCATE `my.shop`.`pro.duct`")
	if s.cached("product:7") {
		t.Error("product:7 is still cached")
	}
}

// No more is forgotten than what the actions of the mapping do, also of the key by which an answer learns that slow
// readers are over.
func TestAnAnswerForgetsOfAKeyWhatItsActionDoes(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		mapping string
		cache   [][]any
		still   []any
		want    string
	}{
		"the field that a template makes": {
			`hash: {key: products, field: "{id}"}`,
			[][]any{{"HSET", "products", "1", "a", "title", "b"}},
			[]any{"HKEYS", "products"},
			"[title]",
		},
		"the field that has a name": {
			`hash: {key: "p:{id}", field: price}`,
			[][]any{{"HSET", "p:1", "price", "a", "title", "b"}},
			[]any{"HKEYS", "p:1"},
			"[title]",
		},
		"nothing of a field elsewhere": {
			`hash: {key: "p:{id}", field: price}`, [][]any{{"HSET", "p:1", "title", "b"}}, []any{"HKEYS", "p:1"}, "[title]",
		},
		"how long it lives": {
			`expire: {keys: ["p:{id}"], in: 1h}`, [][]any{{"SET", "p:1", "a"}}, []any{"GET", "p:1"}, "a",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MariaDB(t))
			s.mappings = "[{table: shop.product, " + c.mapping + "}]"
			s.run()
			for _, words := range c.cache {
				s.redis.Do(t, words...)
			}
			s.answered("TRUNCATE shop.product")
			if got := fmt.Sprint(s.redis.Do(t, c.still...)); got != c.want {
				t.Errorf("%v: %s, want %s", c.still, got, c.want)
			}
		})
	}
}

func TestAnAnswerRaisesCountersAndNeverBeginsThemAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.mappings = `[{table: shop.product, incr: "gen:{id}"}]`
	s.run()
	const high = 99_999_999_999_999 // no clock begins there
	for _, key := range []string{"gen:1", "gen:2"} {
		s.redis.Do(t, "SET", key, high)
	}
	s.answered("TRUNCATE shop.product")
	for _, key := range []string{"gen:1", "gen:2"} {
		n, err := s.redis.Client().Get(t.Context(), key).Int64()
		testbed.Must(t, err)
		if n <= high {
			t.Errorf("%s is %d, and was %d", key, n, int64(high))
		}
	}
}

func TestOnlyKeysThatMatchThePatternAreForgottenByHand(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.run()
	s.cache("product:1")
	s.cache("product:9")
	s.ask("invalidate", "--pattern", "product:9*", "--wait")
	if s.cached("product:9") {
		t.Error("product:9 is still cached")
	}
	s.kept("product:1")
}

func TestATemplateIsForgottenByHandThoughItsNeighborCannotBe(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.source.Exec(t, "ALTER TABLE shop.product ADD name VARCHAR(20)")
	s.keys = []string{"product:{id}", "name:{name}"}
	s.run()
	s.cache("product:1")
	s.ask("invalidate", "--mapping", "product:{id}", "--wait")
	if s.cached("product:1") {
		t.Error("product:1 is still cached")
	}
	s.freshAgain()
}

func TestTheKeysOfEachDefinitionThatATableHadAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	s.source.Exec(t, "DROP TABLE shop.product", "CREATE TABLE shop.product (id INT(5) ZEROFILL PRIMARY KEY, price INT)")
	s.run()
	s.write(1)
	s.cache("product:00007")
	s.cache("product:70000")
	s.cache("product:700000")
	s.answered("DROP TABLE shop.product", "CREATE TABLE shop.product (id INT PRIMARY KEY, price INT)",
		"INSERT INTO shop.product VALUES (9, 9)", "DROP TABLE shop.product")
	for _, key := range []string{"product:00007", "product:70000", "product:700000"} {
		if s.cached(key) {
			t.Errorf("%s is still cached", key)
		}
	}
}

// The updates wait for their turn when the table is truncated, and write their values after that.
func TestWhatIsWrittenForOlderChangesIsForgottenToo(t *testing.T) {
	eitherLog(t, whatIsWrittenForOlderChangesIsForgottenToo, whatIsWrittenForOlderChangesIsForgottenTooAroundKafka)
}

func whatIsWrittenForOlderChangesIsForgottenToo(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	const rows = 100
	s.mappings = `[{table: shop.product, second_delete: 1s, keys: ["product:{id}"],
  rebuild: {from: row, as: json, columns: [id, price]}}]`
	r := s.run()
	for id := range rows {
		s.write(id)
	}
	key := func(id int) string { return fmt.Sprintf("product:%d", id) }
	for id := range rows { // freshet knows the keys from here on, and writes each change at once
		testbed.Eventually(t, patience, "the row is cached", func() bool { return s.cached(key(id)) })
	}
	r.Stop(t, patience)
	for id := range rows {
		testbed.Must(t, s.redis.Client().Del(t.Context(), key(id)).Err())
	}
	s.mappings = strings.Replace(s.mappings, "second_delete", "rate_limit: 20, second_delete", 1)
	s.run()
	s.answered("UPDATE shop.product SET price = price + 1", "TRUNCATE shop.product")
	s.await("all is finished", func(st *app.Status) bool { return st.InFlight+st.Pending == 0 })
	for id := range rows {
		if s.cached(key(id)) {
			t.Errorf("%s is cached", key(id))
		}
	}
}

// Of the table that is gone, nobody knows what its keys were.
func TestATableOfAPatternThatNobodyKnowsAnyMoreStaysInDoubt(t *testing.T) {
	t.Parallel()
	for what, drop := range map[string]string{
		"a table": "DROP TABLE shop1.product", "a schema": "DROP DATABASE shop1",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MariaDB(t))
			s.mappings = `[{table: "shop*.product", keys: ["{schema}:product:{id}"]}]`
			s.source.MayRead(t, "`shop%`.*")
			create := func(schema string) {
				s.source.Exec(t, "CREATE DATABASE "+schema, "CREATE TABLE "+schema+".product (id INT PRIMARY KEY)")
			}
			create("shop2")
			r := s.run()
			s.cache("shop1:product:7")
			s.cache("shop2:product:7")
			r.Stop(t, patience)
			create("shop1") // which freshet never sees
			s.source.Exec(t, drop, "TRUNCATE shop2.product")
			s.start("run")
			s.gone("shop2:product:7")
			s.await("one doubt is left", func(st *app.Status) bool { return len(st.Doubts) == 1 && st.Doubts[0].Stuck })
			if st := s.status(); st.State != app.Doubtful || !strings.Contains(st.Doubts[0].Answer, "shop1") {
				t.Errorf("%s: %+v", st.State, st.Doubts)
			}
		})
	}
}

// A wildcard for the schema is none for the table.
func TestADoubtAboutOneTableIsNoneAboutAnotherMapping(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.source.Exec(t, "CREATE TABLE shop.review (id INT PRIMARY KEY)", "CREATE DATABASE `my.shop`",
			"CREATE TABLE `my.shop`.product (id INT PRIMARY KEY)")
		s.source.MayRead(t, "`my.shop`.*")
		s.mappings = `[{table: "*.product", keys: ["{schema}:product:{id}"]}, {table: shop.review, keys: ["review:{id}"]}]`
		s.run()
		all := []string{"review:1", "shop:product:1", "my.shop:product:1"}
		for _, c := range []struct{ statement, gone string }{
			{"TRUNCATE shop.review", all[0]},
			{"TRUNCATE shop.product", all[1]},
			{"TRUNCATE `my.shop`.product", all[2]},
			{"DROP DATABASE `my.shop`", all[2]},
		} {
			for _, key := range all {
				s.cache(key)
			}
			s.source.Exec(t, c.statement)
			s.gone(c.gone)
			s.freshAgain()
			s.kept(slices.DeleteFunc(slices.Clone(all), func(key string) bool { return key == c.gone })...)
		}
	})
}

// The name in between is that of a table which nobody has ever seen.
func TestTheKeysOfTablesThatSwapTheirNamesAreForgotten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.mappings = `[{table: "shop.*", keys: ["{table}:{id}"]}]`
		s.source.Exec(t, "CREATE TABLE shop.copy (id INT PRIMARY KEY)", "CREATE TABLE shop.other (id INT PRIMARY KEY)")
		s.run()
		for _, key := range []string{"product:1", "copy:1", "other:1"} {
			s.cache(key)
		}
		s.answered("RENAME TABLE shop.product TO shop.tmp, shop.copy TO shop.product, shop.tmp TO shop.copy")
		for _, key := range []string{"product:1", "copy:1"} {
			if s.cached(key) {
				t.Errorf("%s is still cached", key)
			}
		}
		s.kept("other:1")
	})
}

// Its keys had five digits when they were cached, and no row was read since.
func TestTheKeysOfATableThatWasAlteredWhileFreshetWasDownAreForgotten(t *testing.T) {
	t.Parallel()
	for what, change := range map[string][]string{
		"altered":        {"ALTER TABLE shop.wide MODIFY id INT", "INSERT INTO shop.wide VALUES (8)"},
		"made once more": {"DROP TABLE shop.wide", "CREATE TABLE shop.wide (id INT PRIMARY KEY)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MariaDB(t))
			s.mappings = `[{table: shop.wide, keys: ["wide:{id}"]}]`
			s.source.Exec(t, "CREATE TABLE shop.wide (id INT(5) ZEROFILL PRIMARY KEY)")
			r := s.run()
			s.cache("wide:00007")
			r.Stop(t, patience)
			s.source.Exec(t, change...)
			s.run()
			s.gone("wide:00007")
		})
	}
}

// A mapped table that is gone at a start is in doubt until there is one again.
func TestAMappingIsInDoubtUntilThereIsATableForIt(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		const create = "CREATE TABLE shop.late (id INT PRIMARY KEY)"
		source.Exec(t, create)
		s.mappings = `[{table: shop.product, keys: ["product:{id}"]}, {table: shop.late, keys: ["late:{id}"]}]`
		r := s.run()
		r.Stop(t, patience)
		source.Exec(t, "DROP TABLE shop.late")
		s.cache("late:7")
		s.cache("product:7")
		s.start("run")
		s.await("the mapping is in doubt, and nothing else any more", func(st *app.Status) bool {
			return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.MappingUnfit
		})
		source.Exec(t, create, "INSERT INTO shop.late VALUES (1)")
		s.gone("late:7")
		s.freshAgain()
		s.kept("product:7")
	})
}

// Nobody knows when the next row comes, so what does not fit, or cannot be looked for, is tried again without one.
func TestWhatFitsAgainIsAnsweredThoughNoRowComes(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.mappings = `[{table: "shop.part_*", keys: ["{table}:{sku}"]}, {table: shop.late, keys: ["late:{id}"]}]`
		source.Exec(t, "CREATE TABLE shop.late (id INT PRIMARY KEY)",
			"CREATE TABLE shop.part_a (id INT PRIMARY KEY, sku INT)", "INSERT INTO shop.part_a VALUES (1, 1)")
		r := s.run()
		has := func(what string, cause alarm.Kind, stuck bool) {
			t.Helper()
			s.await(what, func(st *app.Status) bool {
				return slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool { return d.Cause == cause && d.Stuck == stuck })
			})
		}
		source.Exec(t, "ALTER TABLE shop.part_a RENAME COLUMN sku TO elsewhere", "UPDATE shop.part_a SET elsewhere = 2")
		has("the column is missed", alarm.MappingUnfit, false)
		s.cache("part_a:7")
		source.Exec(t, "ALTER TABLE shop.part_a RENAME COLUMN elsewhere TO sku")
		s.gone("part_a:7")
		s.freshAgain()
		source.Exec(t, "CREATE TABLE shop.part_b (id INT PRIMARY KEY)", "INSERT INTO shop.part_b VALUES (1)")
		has("another one is missed", alarm.MappingUnfit, false)
		source.Exec(t, "TRUNCATE TABLE shop.part_b")
		has("nobody knows its keys", alarm.TruncatedTable, true)
		s.cache("part_b:7")
		source.Exec(t, "ALTER TABLE shop.part_b ADD COLUMN sku INT")
		s.gone("part_b:7")
		s.freshAgain()
		r.Stop(t, patience)
		source.Exec(t, "DROP TABLE shop.late")
		s.start("run")
		has("a table is missed", alarm.MappingUnfit, false)
		s.cache("late:7")
		source.Exec(t, "CREATE TABLE shop.late (id INT PRIMARY KEY)")
		s.gone("late:7")
		s.freshAgain()
	})
}
