package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// walkers are the invalidators of a group that have the source, and their reader.
type walkers struct {
	*site
	reader  *site
	members []*site
	running map[*site]*testbed.Running
}

// walkers starts them, and waits until the members share the partitions.
func (s *site) walkers() *walkers {
	s.t.Helper()
	w := &walkers{site: s, reader: s.part("reader"), running: map[*site]*testbed.Running{}}
	w.running[w.reader] = w.reader.start("reader")
	for range 2 {
		m := s.part("invalidator")
		m.readsRows = true
		w.members = append(w.members, m)
		w.running[m] = m.start("invalidator")
	}
	s.given(w.members...)
	w.reader.awaitFresh()
	for _, m := range w.members {
		m.awaitFresh()
	}
	return w
}

// leads returns the member that has partition 0, and the other.
func (w *walkers) leads() (leader, other *site) {
	w.t.Helper()
	if of := w.given(w.members...); of[0][0] {
		return w.members[0], w.members[1]
	}
	return w.members[1], w.members[0]
}

// While a group fills its Redis from a table, the table is written, and the member that reads the rows is killed.
func TestATableIsWalkedByTheNextMemberToo(t *testing.T) {
	t.Parallel()
	// On a busy machine some twenty rows a second are walked, and on an idle one the walk must not be over at once.
	const rows = 1500
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	// What cannot be written within D/2 of its reading is left out, so D is long enough for a busy machine.
	s.mappings, s.extra = strings.Replace(rebuilt, "1s", "4s", 1), "scope_rate: 250\n"
	s.fill(rows)
	w := s.walkers()
	b := s.otherGroup()
	b.start("invalidator")
	b.awaitFresh()
	stop := s.keepWriting(func() int { return rand.IntN(rows / 2) })
	leader, other := w.leads()
	other.ask("warm", "--table", "shop.product")
	far := int64(0)
	for _, m := range []*site{leader, other} {
		m.await("rows are walked", func(st *app.Status) bool { return len(st.WarmUps) == 1 && st.WarmUps[0].Rows > rows/5 })
		far = max(far, m.status().WarmUps[0].Rows)
	}
	before := other.status().WarmUps[0].Rows
	w.running[leader].Kill9()
	other.await("the next member goes on", func(st *app.Status) bool {
		if len(st.WarmUps) == 1 && st.WarmUps[0].Rows < before {
			t.Errorf("%d rows were walked, and by the next member %d", before, st.WarmUps[0].Rows)
		}
		return len(st.WarmUps) == 0 || st.WarmUps[0].Rows > far
	})
	w.running[leader] = leader.start("invalidator")
	for _, m := range w.members {
		m.await("it is done, wherever that is asked", func(st *app.Status) bool {
			return len(st.WarmUps) == 0 && len(st.EndedWarmUps) == 1 && st.EndedWarmUps[0].Done
		})
	}
	stop()
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
	walked := 0
	for id := range cached {
		if id >= rows/2 {
			walked++
		}
	}
	// What is late is forgotten instead of written, so how many there are is the machine's matter.
	if walked == 0 {
		t.Errorf("of %d rows that nobody wrote none is cached", rows/2)
	}
	for id := range b.prices() {
		if id >= rows/2 {
			t.Fatalf("product:%d is cached for a group that did not ask for it", id)
		}
	}
	for _, p := range append(w.members, w.reader, b) {
		p.awaitFresh()
	}
}

// All that rows are read for, with Kafka.
func TestRowsAreReadAroundKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	s.source.Exec(t, "CREATE TABLE shop.user (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL)",
		"CREATE TABLE shop.slow (id INT PRIMARY KEY)", "CREATE TABLE shop.counted (id INT PRIMARY KEY)")
	for id := range 30 {
		s.source.Exec(t, fmt.Sprintf("INSERT INTO shop.user VALUES (%d, 'n%d')", id, id))
	}
	s.mappings, s.extra = rebuilt+`
  - {table: shop.user, keys: ["user:{name}"], scope: rows}
  - {table: shop.slow, keys: ["slow:{id}"]}
  - {table: shop.counted, incr: "counter"}
`, "scope_rate: 100\n"
	s.fill(20)
	s.source.Exec(t, "INSERT INTO shop.slow SELECT a.id * 400 + b.id * 20 + c.id FROM shop.product a, shop.product b, "+
		"shop.product c WHERE a.id < 5")
	w := s.walkers()
	b := s.otherGroup()
	b.start("invalidator")
	b.awaitFresh()
	leader, other := w.leads()

	out := other.start("warm", "--table", "shop.product", "--dry-run", "--where", "id < 3")
	code := out.Wait(t, patience)
	if code != exitDone || !strings.HasPrefix(out.Stdout(), "would write or delete 3 keys\n") {
		t.Errorf("a dry run: %d %s", code, out.Stdout())
	}
	for _, m := range w.members { // whichever is asked
		m.warmed(20, "shop.product", "")
		for id, price := range m.prices() {
			if price != 1 || id >= 20 {
				t.Errorf("product:%d: %d", id, price)
			}
		}
		testbed.Must(t, s.redis.Client().Del(t.Context(), s.allCached()...).Err())
	}
	b.nothingCached()

	// Some rows are forgotten, in one Redis, and that is given again to a Redis that comes back without it.
	for id := range 20 {
		for _, p := range []*site{s, b} {
			p.cache(fmt.Sprintf("product:%d", id))
		}
	}
	other.ask("invalidate", "--table", "shop.product", "--where", "id >= 10", "--wait")
	for id := range 20 {
		if key := fmt.Sprintf("product:%d", id); s.cached(key) != (id < 10) || !b.cached(key) {
			t.Errorf("%s: cached %v, and for the other group %v", key, s.cached(key), b.cached(key))
		}
	}
	undoubted(append(w.members, w.reader, b)...)

	// What cannot be looked for in Redis is found by the rows, for each group that can read them.
	for _, p := range []*site{s, b} {
		for _, key := range []string{"user:n1", "user:n29", "user:stranger"} {
			p.cache(key)
		}
	}
	s.source.Exec(t, "SET SESSION binlog_format = STATEMENT", "UPDATE shop.user SET name = CONCAT(name, '') WHERE id < 5")
	s.gone("user:n1")
	s.gone("user:n29")
	b.await("it says what is missing", func(st *app.Status) bool {
		return len(st.Doubts) == 1 && st.Doubts[0].Stuck && strings.Contains(st.Doubts[0].Answer, "has no source")
	})
	s.kept("user:stranger")
	b.kept("user:n1", "user:stranger")
	b.ask("doubts", "dismiss", b.status().Doubts[0].ID)
	undoubted(append(w.members, w.reader, b)...)

	// Any member can be asked to end one, and knows that it has ended.
	other.ask("warm", "--table", "shop.slow")
	id := ""
	for _, m := range w.members {
		m.await("rows are walked", func(st *app.Status) bool { return len(st.WarmUps) == 1 && st.WarmUps[0].Rows > 0 })
		id = m.status().WarmUps[0].ID
	}
	other.ask("warm", "--cancel", id)
	for _, m := range w.members {
		m.await("it was cancelled", func(st *app.Status) bool {
			e := st.EndedWarmUps
			return len(st.WarmUps) == 0 && !e[0].Done && e[0].Cancelled && e[0].Answer == "it was cancelled"
		})
	}
	other.refused(exitFailed, []string{"no such warm-up"}, "warm", "--cancel", id)
	for table, words := range map[string]string{"shop.none": "no mapping is for", "shop.counted": "only raise counters"} {
		other.refused(exitUsage, []string{words}, "warm", "--table", table)
	}
	leader.refused(exitUsage, []string{"syntax"}, "warm", "--table", "shop.product", "--where", "id >")
	leader.refused(exitUsage, []string{"syntax"}, "invalidate", "--table", "shop.product", "--where", "id >")
	w.reader.refused(exitFailed, []string{"ask an invalidator"}, "warm", "--table", "shop.product")
	b.refused(exitFailed, []string{"write source, as the reader's file has it"}, "warm", "--table", "shop.product")
	w.running[other].Stop(t, patience)
	other.env = append(other.env, "FRESHET_SOURCE_NAME=crm")
	other.start("invalidator")
	other.await("it runs", func(*app.Status) bool { return true })
	other.refused(exitFailed, []string{"the reader of source crm has not kept its mappings", "source.name"}, "warm", "--table",
		"shop.product")
}

// Rows are read from the server that the reader reads, for only of that one it is known what everybody sees.
func TestRowsAreReadFromTheServerThatTheReaderReads(t *testing.T) {
	t.Parallel()
	first, second := testbed.MySQL(t), testbed.MySQL(t)
	second.Follow(t, first)
	s := newSite(t, first).around(t, testbed.SharedKafka(t))
	s.mappings = rebuilt
	s.fill(20)
	caughtUp := func() {
		testbed.Eventually(t, patience, "the replica has all", func() bool { return second.GTIDs(t) == first.GTIDs(t) })
	}
	caughtUp()
	reader, a := s.part("reader"), s.part("invalidator")
	a.readsRows, a.source = true, second
	reading := reader.start("reader")
	a.start("invalidator")
	a.awaitFresh()
	reader.awaitFresh()
	// The replica has not all that everybody sees.
	second.Exec(t, "STOP REPLICA")
	s.source.Exec(t, "UPDATE shop.product SET price = 2")
	a.ask("warm", "--table", "shop.product")
	a.await("it waits for the right server", func(st *app.Status) bool {
		return len(st.WarmUps) == 1 && strings.Contains(st.WarmUps[0].Answer, "source.addresses must name that one")
	})
	second.Exec(t, "START REPLICA")
	caughtUp()
	reading.Kill9()
	second.Exec(t, "STOP REPLICA", "RESET REPLICA ALL")
	testbed.Must(t, first.Kill())
	s.source, reader.source = second, second
	reader.start("reader")
	a.await("it is done once the reader reads that server", func(st *app.Status) bool {
		return len(st.EndedWarmUps) == 1 && st.EndedWarmUps[0].Done && st.EndedWarmUps[0].Rows == 20
	})
	for id, price := range a.warmed(20, "shop.product", "") {
		if !strings.HasSuffix(price, `"price":2}`) {
			t.Errorf("%s: %s", id, price)
		}
	}
}
