package main

import (
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

const passGaps = "on_gap: invalidate\n"

// rowsBefore is how many products there are before a gap.
const rowsBefore = 50

// gapped is a site whose source has a gap while freshet is away.
type gapped struct {
	*site
	// saved is a copy of the source's files from before the last changes.
	saved string
	// file and pos are where the source's binlog ended before freshet read the last changes.
	file string
	pos  uint64
}

func newGapped(t *testing.T, source *testbed.Server) *gapped {
	s := newSite(t, source)
	s.extra = passGaps
	return &gapped{site: s}
}

// fill makes rows, and caches them, as readers do.
func (g *gapped) fill() {
	g.t.Helper()
	for id := range rowsBefore {
		g.write(id)
		g.cache(fmt.Sprintf("product:%d", id))
	}
	g.cache("other:1")
}

// change changes half of the rows, and takes some away.
func (g *gapped) change() {
	g.t.Helper()
	for id := range rowsBefore / 2 {
		g.write(id)
	}
	g.source.Exec(g.t, "DELETE FROM shop.product WHERE id < 5")
}

// files is where the source keeps its data.
func (g *gapped) files() string { return filepath.Join(g.source.Dir, "data") }

// down does something while the source is down.
func (g *gapped) down(f func()) {
	g.t.Helper()
	testbed.Must(g.t, g.source.Stop())
	f()
	testbed.Must(g.t, g.source.Start(g.t.Context()))
}

// backUp saves the source's files, next to them.
func (g *gapped) backUp() {
	g.t.Helper()
	g.saved = filepath.Join(g.source.Dir, "saved")
	g.down(func() { testbed.Must(g.t, os.CopyFS(g.saved, os.DirFS(g.files()))) })
}

// restore puts them back.
func (g *gapped) restore() {
	g.t.Helper()
	g.down(func() {
		testbed.Must(g.t, os.RemoveAll(g.files()))
		testbed.Must(g.t, os.Rename(g.saved, g.files()))
	})
}

// damage changes rows, and makes a change among them unreadable: its checksum is wrong.
func (g *gapped) damage() {
	g.t.Helper()
	g.write(1)
	file, pos := g.source.BinlogPosition(g.t)
	g.change()
	f, err := os.OpenFile(filepath.Join(g.files(), file), os.O_WRONLY, 0)
	testbed.Must(g.t, err)
	_, err = f.WriteAt([]byte("oops"), int64(pos)-4)
	testbed.Must(g.t, err)
	testbed.Must(g.t, f.Close())
}

// loseEvents changes rows, some of which have no events: the source cannot keep those of a statement without
// transactions, gives it up half done, and says in its binlog that it has lost events.
func (g *gapped) loseEvents() {
	g.t.Helper()
	g.change()
	g.source.Exec(g.t, "ALTER TABLE shop.product ADD note TEXT, ENGINE = MyISAM")
	const wide = "UPDATE shop.product SET price = 4711, note = REPEAT('n', 3000)"
	if err := g.source.ExecContext(g.t.Context(), wide); err == nil {
		g.t.Fatal("the statement was logged whole")
	}
	if n := g.source.QueryText(g.t, "SELECT COUNT(*) FROM shop.product WHERE price = 4711"); n == "0" {
		g.t.Fatal("no row was changed")
	}
}

// crash has the source lose the end of its binlog, which freshet has read, and give its numbers to other transactions.
func (g *gapped) crash() {
	g.t.Helper()
	testbed.Must(g.t, g.source.Kill())
	testbed.Must(g.t, os.Truncate(filepath.Join(g.files(), g.file), int64(g.pos)))
	testbed.Must(g.t, g.source.Start(g.t.Context()))
	g.change()
}

// passed starts freshet, and waits until it has found the gap, and has forgotten all that may be stale, and no more. It
// goes on reading.
func (g *gapped) passed() *testbed.Running {
	g.t.Helper()
	r := g.start("run")
	g.await("the gap is in doubt", func(st *app.Status) bool { return raised(st, alarm.BinlogGap) })
	g.forgotten()
	g.goesOn()
	return r
}

// raised reports whether there was an alarm.
func raised(st *app.Status, k alarm.Kind) bool {
	return slices.ContainsFunc(st.Alarms, func(a alarm.Record) bool { return a.Kind == k })
}

// forgotten waits until all keys are forgotten that may be stale.
func (g *gapped) forgotten() {
	g.t.Helper()
	for id := range rowsBefore {
		g.gone(fmt.Sprintf("product:%d", id))
	}
	g.freshAgain()
	g.kept("other:1")
}

// goesOn checks that changes are read.
func (g *gapped) goesOn() {
	g.t.Helper()
	g.cache("product:7")
	g.write(7)
	g.gone("product:7")
}

// withoutGTIDs is a MySQL that keeps none.
func withoutGTIDs(t *testing.T) *testbed.Server {
	return testbed.MySQL(t, append(slices.Clone(losesWide), "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")...)
}

// losesWide has a server lose the events of statements without transactions that change more than one page.
var losesWide = []string{"--max-binlog-stmt-cache-size=4096", "--binlog-stmt-cache-size=4096"}

// gapSources are servers that keep positions in each way.
var gapSources = []database{
	{"mysql", func(t *testing.T) *testbed.Server { return testbed.MySQL(t, losesWide...) }},
	{"mysql without gtids", withoutGTIDs},
	{"mariadb", func(t *testing.T) *testbed.Server { return testbed.MariaDB(t, losesWide...) }},
}

// losses are what the source may lose while freshet is away.
var losses = map[string]func(g *gapped){
	"purged": func(g *gapped) {
		g.change()
		g.source.PurgeBinlogs(g.t)
	},
	"begun again": func(g *gapped) {
		g.change()
		g.source.ResetBinlogs(g.t)
		for id := range rowsBefore { // its GTIDs, and its places, are those of other transactions now
			g.write(1000 + id)
			g.write(1000 + id)
		}
	},
	"restored": func(g *gapped) { g.restore() },
	"events lost": func(g *gapped) {
		g.loseEvents()
		g.source.Exec(g.t, "FLUSH BINARY LOGS")
	},
	"crashed": func(g *gapped) { g.crash() },
	"damaged": func(g *gapped) {
		g.damage()
		g.source.Exec(g.t, "FLUSH BINARY LOGS")
	},
}

// Whatever the source has lost while freshet was away: every key that may be stale is forgotten, those of rows that are
// gone included, and reading goes on.
func TestAGapIsAnsweredByForgettingAllKeys(t *testing.T) {
	t.Parallel()
	for what, lose := range losses {
		for _, source := range testbed.Some(t, gapSources) {
			t.Run(what+"/"+source.name, func(t *testing.T) {
				t.Parallel()
				g := newGapped(t, source.start(t))
				if what == "restored" {
					g.backUp()
				}
				r := g.run()
				g.fill()
				g.file, g.pos = g.source.BinlogPosition(t)
				g.finishedUpTo(rowsBefore + 1)
				if code := r.Stop(t, patience); code != exitDone {
					t.Fatalf("exit code %d", code)
				}
				for id := range rowsBefore {
					g.cache(fmt.Sprintf("product:%d", id))
				}
				lose(g)
				r = g.passed()
				if code := r.Stop(t, patience); code != exitDone {
					t.Fatalf("exit code %d", code)
				}
				if strings.Contains(r.Stderr(), "soon after another one") {
					t.Errorf("a gap came again:\n%s", r.Stderr())
				}
				g.run() // without a gap
				g.goesOn()
			})
		}
	}
}

// finishedUpTo writes a row, and waits until its key is finished.
func (g *gapped) finishedUpTo(id int) {
	g.t.Helper()
	key := fmt.Sprintf("product:%d", id)
	g.cache(key)
	g.write(id)
	g.gone(key)
	g.await("all is finished", func(st *app.Status) bool { return st.State == app.Fresh && st.InFlight+st.Pending == 0 })
}

func TestAnotherServerWithoutGTIDsIsAGapThatIsPassed(t *testing.T) {
	t.Parallel()
	g := newGapped(t, withoutGTIDs(t))
	r := g.run()
	g.fill()
	g.finishedUpTo(rowsBefore + 1)
	r.Stop(t, patience)
	for id := range rowsBefore {
		g.cache(fmt.Sprintf("product:%d", id))
	}
	other := withoutGTIDs(t)
	other.MayRead(t, "shop.*")
	other.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.product (id INT PRIMARY KEY, price INT NOT NULL)")
	g.source = other
	g.passed()
}

// The binlog is deleted under a freshet that reads it, and what is in hand then is written late: older values.
func TestWhatIsWrittenForChangesOfBeforeAGapIsForgottenToo(t *testing.T) {
	t.Parallel()
	for _, source := range testbed.Some(t, gapSources) {
		t.Run(source.name, func(t *testing.T) {
			t.Parallel()
			g := newGapped(t, source.start(t))
			g.mappings = `[{table: shop.product, second_delete: 1s, keys: ["product:{id}"],
  rebuild: {from: row, as: json, columns: [id, price]}}]`
			r := g.run()
			key := func(id int) string { return fmt.Sprintf("product:%d", id) }
			for id := range rowsBefore {
				g.write(id)
			}
			for id := range rowsBefore { // freshet knows the keys from here on, and writes each change at once
				testbed.Eventually(t, patience, "the row is cached", func() bool { return g.cached(key(id)) })
			}
			r.Stop(t, patience)
			for id := range rowsBefore {
				testbed.Must(t, g.redis.Client().Del(t.Context(), key(id)).Err())
			}
			g.mappings = strings.Replace(g.mappings, "second_delete", "rate_limit: 5, second_delete", 1)
			g.run()
			g.source.Exec(t, "UPDATE shop.product SET price = price + 1")
			g.await("the changes are in hand", func(st *app.Status) bool { return st.RateLimited > rowsBefore/2 })
			g.source.Exec(t, "SET sql_log_bin = 0", "DELETE FROM shop.product", "SET sql_log_bin = 1")
			g.source.ResetBinlogs(t)
			g.await("the gap is in doubt", func(st *app.Status) bool { return raised(st, alarm.BinlogGap) })
			g.freshAgain()
			g.await("all is finished", func(st *app.Status) bool { return st.InFlight+st.Pending == 0 })
			for id := range rowsBefore {
				if g.cached(key(id)) {
					t.Errorf("%s is cached, and its row is gone", key(id))
				}
			}
			// What is written from now on is newer than all that was.
			g.source.Exec(t, "INSERT INTO shop.product VALUES (1, 4711)")
			testbed.Eventually(t, patience, "the new row is cached", func() bool {
				return strings.Contains(g.redis.Client().Get(t.Context(), key(1)).Val(), "4711")
			})
		})
	}
}

// Killed at any step, it goes on where it was, or finds the gap once more.
func TestAGapThatFreshetIsKilledOverIsPassedAllTheSame(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		g := newGapped(t, source)
		g.extra += "scope_rate: 100\n"
		r := g.run()
		g.fill()
		g.finishedUpTo(rowsBefore + 1)
		r.Stop(t, patience)
		const keys = 1000
		for id := range keys {
			g.cache(fmt.Sprintf("product:%d", id))
		}
		g.change()
		g.source.ResetBinlogs(t)
		for _, step := range []string{
			"has a gap after", "has a gap after", "reading goes on at its end", "first of two passes", "first of two passes",
		} {
			r := g.start("run")
			testbed.Eventually(t, patience, step, func() bool {
				said := r.Stderr()
				moved := strings.Contains(said, "reading the source") // it was killed too late the last time
				if strings.Contains(said, step) || moved && !strings.Contains(step, "passes") {
					return true
				}
				st := g.status()
				return st != nil && slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool {
					return d.Cause == alarm.BinlogGap && strings.Contains(d.Answer, step)
				})
			})
			r.Kill9()
		}
		g.start("run")
		for id := range keys {
			g.gone(fmt.Sprintf("product:%d", id))
		}
		g.freshAgain()
		g.kept("other:1")
		g.goesOn()
	})
}

// What an XA transaction had changed that was prepared before the gap says nothing about one that has its XID after it.
func TestAnXATransactionThatWasPreparedWithinTheGapIsInDoubt(t *testing.T) {
	eitherLog(t,
		anXATransactionThatWasPreparedWithinTheGapIsInDoubt, anXATransactionThatWasPreparedWithinTheGapIsInDoubtAroundKafka)
}

func anXATransactionThatWasPreparedWithinTheGapIsInDoubt(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		g := newGapped(t, source)
		r := g.run()
		g.write(1)
		g.write(2)
		g.prepare("UPDATE shop.product SET price = 99 WHERE id = 1")
		g.finishedUpTo(3)
		r.Stop(t, patience)
		g.source.Exec(t, "XA COMMIT 'a'")
		g.prepare("UPDATE shop.product SET price = 99 WHERE id = 2")
		g.source.PurgeBinlogs(t)
		g.start("run")
		g.await("the gap is in doubt", func(st *app.Status) bool { return raised(st, alarm.BinlogGap) })
		g.freshAgain()
		g.cache("product:2")
		g.source.Exec(t, "XA COMMIT 'a'")
		g.gone("product:2")
		g.freshAgain()
	})
}

// prepare prepares the XA transaction a.
func (s *site) prepare(statement string) {
	s.t.Helper()
	conn, err := s.source.DB().Conn(s.t.Context())
	testbed.Must(s.t, err)
	for _, q := range []string{"XA START 'a'", statement, "XA END 'a'", "XA PREPARE 'a'"} {
		_, err := conn.ExecContext(s.t.Context(), q)
		testbed.Must(s.t, err)
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that it is closed
}

// Without GTIDs reading begins at the beginning of the file, where the damage is found again: now and then, and never
// without a doubt, until there is another file.
func TestDamageThatStaysIsNoLoop(t *testing.T) {
	t.Parallel()
	g := newGapped(t, withoutGTIDs(t))
	r := g.run()
	g.fill()
	g.finishedUpTo(rowsBefore + 1)
	r.Stop(t, patience)
	for id := range rowsBefore {
		g.cache(fmt.Sprintf("product:%d", id))
	}
	g.damage()
	r = g.start("run")
	testbed.Eventually(t, patience, "it says that the gap is there again", func() bool {
		return strings.Contains(r.Stderr(), "soon after another one")
	})
	g.await("it is in doubt", func(st *app.Status) bool { return st.State != app.Fresh && len(st.Doubts) == 1 })
	g.source.Exec(t, "FLUSH BINARY LOGS")
	g.forgotten()
	g.goesOn()
	if n := strings.Count(r.Stderr(), "the source cannot be read on from the position"); n > 20 {
		t.Errorf("it tried %d times", n)
	}
}

func TestAGapIsAnsweredInTheRedisOfEachGroup(t *testing.T) {
	t.Parallel()
	for what, lose := range testbed.SomeOf(t, map[string]func(source *testbed.Server, t testing.TB){
		"purged":      func(source *testbed.Server, t testing.TB) { source.PurgeBinlogs(t) },
		"begun again": func(source *testbed.Server, t testing.TB) { source.ResetBinlogs(t) },
	}) {
		t.Run(what, func(t *testing.T) {
			either(t, func(t *testing.T, source *testbed.Server) {
				s := newSite(t, source).around(t, testbed.SharedKafka(t))
				s.extra = passGaps
				reader, a := s.part("reader"), s.part("invalidator")
				b := s.otherGroup()
				all := []*site{reader, a, b}
				var running *testbed.Running
				for _, p := range all {
					r := p.start(p.role)
					if p == reader {
						running = r
					}
				}
				for _, p := range all {
					p.awaitFresh()
				}
				for _, p := range []*site{a, b} {
					for id := range rowsBefore {
						p.cache(fmt.Sprintf("product:%d", id))
					}
					p.cache("other:1")
				}
				running.Stop(t, patience)
				g := &gapped{site: reader}
				g.change()
				lose(source, t)
				reader.start("reader")
				for _, p := range []*site{a, b} {
					for id := range rowsBefore {
						p.gone(fmt.Sprintf("product:%d", id))
					}
				}
				undoubted(all...)
				a.kept("other:1")
				b.kept("other:1")
				a.cache("product:7")
				b.cache("product:7")
				g.write(7)
				a.gone("product:7")
				b.gone("product:7")
			})
		})
	}
}

// What was cached before a first start is forgotten, if that is asked for.
func TestAFirstStartForgetsWhatWasCachedBefore(t *testing.T) {
	t.Parallel()
	const forget = "on_first_start: invalidate\n"
	t.Run("in one process", func(t *testing.T) {
		s := newSite(t, testbed.MariaDB(t))
		s.extra = forget
		for _, k := range append(lookalikes(), "product:1") {
			s.cache(k)
		}
		s.start("run")
		s.gone("product:1")
		s.freshAgain()
		s.kept(lookalikes()...)
	})
	t.Run("around Kafka", func(t *testing.T) {
		s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
		s.extra = forget
		reader, a := s.part("reader"), s.part("invalidator")
		b := s.otherGroup()
		for _, p := range []*site{a, b} {
			for _, k := range append(lookalikes(), "product:1") {
				p.cache(k)
			}
			p.start("invalidator")
		}
		reader.start("reader")
		for _, p := range []*site{a, b} {
			p.gone("product:1")
		}
		undoubted(reader, a, b)
		a.kept(lookalikes()...)
		b.kept(lookalikes()...)
	})
}
