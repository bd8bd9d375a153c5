package main

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// A binlog that began again gives the same GTIDs to other transactions.
func TestAStampOfABinlogThatBeganAgainSaysNothing(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.change()
	if code := o.freshet.Stop(t, patience); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	o.source.Exec(t, "RESET BINARY LOGS AND GTIDS")
	o.ask("position", "set", "now", "--skip")
	for id := range 30 {
		o.write(id)
	}
	o.freshet = o.run()
	for id := range 30 {
		o.write(id)
	}
	o.stamped()
	o.restart()
	o.back()
	for id := range changed {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.freshAgain()
	o.kept("other:1")
}

// The time of a transaction is when it was committed, not when its statement began.
func TestALongStatementIsWithinTheWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	s.redisMore = ", failover_window: 1h"
	o := &older{site: s}
	long := fmt.Sprintf("SET timestamp = %d", time.Now().Add(-2*time.Hour).Unix())
	s.source.Exec(t, long, "FLUSH BINARY LOGS", "SET timestamp = DEFAULT")
	file, _ := o.source.BinlogPosition(t)
	o.source.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
	o.freshet = s.run()
	for id := range changed {
		s.source.Exec(t, long, fmt.Sprintf("INSERT INTO shop.product VALUES (%d, 1)", id), "SET timestamp = DEFAULT")
	}
	s.stamped()
	for id := range changed + untouched {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	o.redis.Do(t, "save")
	o.restart()
	o.redone()
}

// Columns, tables and names of tables that changed since the data was written. With MINIMAL the binlog does not say how
// the columns of before were.
func TestTablesThatChangedSinceTheStamp(t *testing.T) {
	t.Parallel()
	const add = "ALTER TABLE shop.product ADD COLUMN first INT NOT NULL DEFAULT 1 FIRST"
	const create = "CREATE TABLE shop.product (price INT NOT NULL, id INT PRIMARY KEY)"
	another := []string{
		"CREATE TABLE shop.other (price INT NOT NULL, id INT PRIMARY KEY)",
		"RENAME TABLE shop.product TO shop.gone, shop.other TO shop.product",
	}
	for _, c := range []struct {
		name, metadata string
		ddl            []string
		dropped        bool
	}{
		{"add a column", "MINIMAL", []string{add}, false},
		{"add a column, not logged", "MINIMAL", []string{"SET sql_log_bin = 0", add, "SET sql_log_bin = 1"}, false},
		{"another table", "MINIMAL", another, false},
		{"another table", "FULL", another, false},
		{"drop", "MINIMAL", []string{"DROP TABLE shop.product"}, true},
		{"drop and create", "MINIMAL", []string{"DROP TABLE shop.product", create}, false},
	} {
		t.Run(c.metadata+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			o := newOlder(t, testbed.MySQL(t, "--binlog-row-metadata="+c.metadata))
			o.redis.Do(t, "save")
			o.change()
			o.source.Exec(t, c.ddl...)
			if !c.dropped {
				o.source.Exec(t, "INSERT INTO shop.product (id, price) VALUES (5000, 1)")
			}
			o.freshAgain()
			o.stamped()
			o.restart()
			o.back()
			for id := range changed {
				o.gone(fmt.Sprintf("product:%d", id))
			}
			o.freshAgain()
			o.kept("other:1")
		})
	}
}

// A transaction that was prepared before the stamp and committed after it.
func TestAPreparedTransactionAcrossTheStamp(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newOlder(t, source)
		o.write(7)
		conn, err := source.DB().Conn(t.Context())
		testbed.Must(t, err)
		exec := func(q string) {
			t.Helper()
			_, err := conn.ExecContext(t.Context(), q)
			testbed.Must(t, err)
		}
		exec("XA START 'a'")
		exec("UPDATE shop.product SET price = 99 WHERE id = 7")
		exec("XA END 'a'")
		exec("XA PREPARE 'a'")
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that it is closed
		o.write(8)
		o.gone("product:8")
		o.stamped()
		o.cache("product:7")
		o.redis.Do(t, "save")
		o.source.Exec(t, "XA COMMIT 'a'")
		o.gone("product:7")
		o.write(9)
		o.stamped()
		o.restart()
		o.back()
		o.gone("product:7")
		o.freshAgain()
		o.kept("other:1")
	})
}

// Another server took over since the data was written, and has other places in its binlog.
func TestTheSourceFailedOverSinceTheStamp(t *testing.T) {
	t.Parallel()
	first, second := testbed.MySQL(t), testbed.MySQL(t)
	second.Follow(t, first)
	o := newOlder(t, first)
	o.redis.Do(t, "save")
	for id := range changed / 2 {
		o.write(id)
	}
	o.stamped()
	testbed.Eventually(t, patience, "the replica has all", func() bool { return second.GTIDs(t) == first.GTIDs(t) })
	o.freshet.Stop(t, patience)
	second.Exec(t, "STOP REPLICA", "RESET REPLICA ALL")
	testbed.Must(t, first.Kill())
	o.source = second
	o.freshet = o.run()
	for id := changed / 2; id < changed; id++ {
		o.write(id)
	}
	all := strings.ReplaceAll(second.GTIDs(t), "\n", "")
	testbed.Eventually(t, patience, "redis is stamped", func() bool { return strings.Contains(o.stamp(), all) })
	o.restart()
	o.back()
	o.redone()
}

// What is no place says nothing about how old the data is.
func TestAStampThatMakesNoSense(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	key := o.redis.Client().Keys(t.Context(), "freshet:stamp:*").Val()[0]
	for _, text := range []string{"{}", "null", "garbage"} {
		o.cache("product:1")
		o.redis.Do(t, "set", key, text)
		o.gone("product:1")
		o.freshAgain()
		o.stamped()
	}
	o.kept("other:1")
}

// later returns a time that is later than all that was committed so far, to the second.
func (o *older) later() string {
	o.t.Helper()
	now := func() int64 {
		var seconds int64
		testbed.Must(o.t, o.source.DB().QueryRowContext(o.t.Context(), "SELECT UNIX_TIMESTAMP()").Scan(&seconds))
		return seconds
	}
	from := now()
	testbed.Eventually(o.t, patience, "the next second has begun", func() bool { return now() > from })
	return time.Unix(from+1, 0).UTC().Format(time.RFC3339)
}

// left returns how many keys of products are cached.
func (o *older) left() (n int) {
	for _, key := range o.allCached() {
		if strings.HasPrefix(key, "product:") {
			n++
		}
	}
	return n
}

func TestAnOperatorHasChangesDoneAgain(t *testing.T) {
	eitherLog(t, anOperatorHasChangesDoneAgain, anOperatorHasChangesDoneAgainAroundKafka)
}

func anOperatorHasChangesDoneAgain(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newOlder(t, source)
		for id := changed; id < changed+untouched; id++ {
			o.write(id)
		}
		since := o.later()
		o.change()
		for id := range changed + untouched {
			o.cache(fmt.Sprintf("product:%d", id))
		}
		want := fmt.Sprintf("would forget %d keys\n  %d of shop.product\nfor example\n  \"product:0\"\n", changed, changed)
		if out := o.ask("redo", "--since", since, "--dry-run"); !strings.HasPrefix(out, want) {
			t.Errorf("%s\nwant %s", out, want)
		}
		if n := o.left(); n != changed+untouched {
			t.Errorf("%d keys are left after a dry run", n)
		}
		if out := o.ask("redo", "--since", since, "--wait"); !strings.Contains(out, " is answered: ") {
			t.Error(out)
		}
		if n := o.left(); n != untouched {
			t.Errorf("%d keys are left, want %d", n, untouched)
		}
		o.redone()
	})
}

// An operator who asked for ten minutes does not mean the whole cache.
func TestChangesThatTheBinlogDoesNotHoldAreNotDoneAgain(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.refused(exitFailed, []string{"cannot be answered: the binlog does not hold these changes any more", "freshet invalidate"},
		"redo", "--since", "2h", "--wait")
	if n := o.left(); n != changed+untouched {
		t.Errorf("%d keys are left", n)
	}
	o.ask("doubts", "dismiss", o.status().Doubts[0].ID)
	o.freshAgain()
}

// What nobody waits for any more ends, whether it goes through the binlog or through Redis.
func TestAnAnswerEndsWithItsDoubt(t *testing.T) {
	t.Parallel()
	for name, command := range testbed.SomeOf(t, map[string][]string{
		"redo": {"redo", "--since", "1s"}, "scope": {"invalidate", "--table", "shop.product"},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MySQL(t))
			s.extra = "scope_rate: 20\n"
			o := &older{site: s}
			o.freshet = s.run()
			since := o.later()
			o.change()
			if name == "redo" {
				command[2] = since
				o.ask(append(command, "--wait")...) // which takes all that scope_rate allows for a while
			}
			for id := range 10 * changed { // the first page of a scope is forgotten at once
				o.cache(fmt.Sprintf("product:%d", id))
			}
			o.ask(command...)
			o.await("it is being answered", func(st *app.Status) bool {
				return len(st.Doubts) > 0 && st.Doubts[0].Answer != ""
			})
			o.ask("doubts", "dismiss", o.status().Doubts[0].ID)
			o.freshAgain()
			testbed.Eventually(t, patience, "no more keys are forgotten", func() bool {
				before := o.left()
				time.Sleep(time.Second)
				return o.left() == before
			})
			if o.left() == 0 {
				t.Error("it went on to its end")
			}
			o.write(changed - 1)
			o.gone(fmt.Sprintf("product:%d", changed-1))
		})
	}
}

// The times in the binlog are those of the source's clock, which may be behind ours.
func TestSinceIsNotLessWhereTheSourcesClockIsBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	at := func(ago time.Duration) string { return fmt.Sprintf("SET timestamp = %d", time.Now().Add(-ago).Unix()) }
	s.source.Exec(t, "CREATE USER 'late'@'127.0.0.1' IDENTIFIED BY 'late'",
		"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'late'@'127.0.0.1'",
		at(9*time.Hour), "FLUSH BINARY LOGS", "SET timestamp = DEFAULT")
	file, _ := s.source.BinlogPosition(t)
	s.source.Exec(t, "PURGE BINARY LOGS TO '"+file+"'",
		"SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() - 3600'") // which does not count for root
	s.user, s.password = "late", "late"
	s.run()
	write := func(id int, ago time.Duration) {
		s.source.Exec(t, at(ago), fmt.Sprintf("INSERT INTO shop.product VALUES (%d, 1)", id), "SET timestamp = DEFAULT")
	}
	write(1, 2*time.Hour)
	write(2, time.Hour)
	write(3, time.Hour)
	s.stamped()
	s.cache("product:1")
	s.cache("product:2")
	if out := s.ask("redo", "--since", "10m", "--dry-run"); !strings.HasPrefix(out, "would forget 2 keys\n") {
		t.Error(out)
	}
	s.ask("redo", "--since", "10m", "--wait")
	if s.cached("product:2") {
		t.Error("product:2 is cached: it was changed just now")
	}
	s.kept("product:1")
}

// Rows that foreign keys had changed are changes, too, though the foreign key is gone by the time that they are done
// again.
func TestARedoOverAForeignKeyThatIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	s.mappings = `[{table: shop.child, keys: ["child:{id}"]}, {table: shop.product, keys: ["product:{id}"]}]`
	s.source.Exec(t, "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
		"CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, "+
			"CONSTRAINT c FOREIGN KEY (p) REFERENCES shop.parent (id) ON DELETE CASCADE)",
		"INSERT INTO shop.parent VALUES (1)", "INSERT INTO shop.child VALUES (1, 1)")
	o := &older{site: s}
	o.freshet = s.run()
	s.cache("child:1")
	s.stamped()
	s.redis.Do(t, "save")
	s.source.Exec(t, "DELETE FROM shop.parent")
	s.gone("child:1")
	s.freshAgain()
	s.source.Exec(t, "ALTER TABLE shop.child DROP FOREIGN KEY c")
	s.write(1)
	s.stamped()
	o.restart()
	s.await("redis has changed", func(st *app.Status) bool { return raised(st, alarm.RedisChanged) })
	s.freshAgain()
	if s.cached("child:1") {
		t.Error("child:1 is cached, and its row is gone")
	}
}
