package main

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// A binlog that began again gives the same GTIDs to other transactions.
func TestAStampOfABinlogThatBeganAgainSaysNothing(t *testing.T) {
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
	both(t, func(t *testing.T, source *testbed.Server) {
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
	first, second := testbed.MySQL(t), testbed.MySQL(t)
	second.Exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', "+
		"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1", first.Port), "START REPLICA")
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
