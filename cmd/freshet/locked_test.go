package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// crowd is a site with many mapped tables, of which a session has locked some.
type crowd struct {
	*site
	tables, locked int
	holder         *sql.Conn
}

func (c *crowd) name(n int) string { return fmt.Sprintf("t%03d", n) }

// lock has a session of its own lock tables, which it alone can write then.
func (c *crowd) lock(n int) {
	c.t.Helper()
	var all []string
	for i := range n {
		all = append(all, "shop."+c.name(i)+" WRITE")
	}
	c.locked = n
	c.held("LOCK TABLES " + strings.Join(all, ", "))
}

func (c *crowd) held(statement string) {
	c.t.Helper()
	_, err := c.holder.ExecContext(c.t.Context(), statement)
	testbed.Must(c.t, err)
}

// changes has a value cached of row 1 of each of some tables, and changes it. The keys of those that are not locked go;
// it returns how long that took.
func (c *crowd) changes(what string, value int) {
	c.t.Helper()
	last := c.tables - 1
	for _, n := range []int{0, c.locked / 2, c.locked, last} {
		c.cache(c.name(n) + ":1")
		statement := fmt.Sprintf("UPDATE shop.%s SET v = %d WHERE id = 1", c.name(n), value)
		if n < c.locked {
			c.held(statement)
		} else {
			c.source.Exec(c.t, statement)
		}
	}
	begun := time.Now()
	c.gone(c.name(c.locked) + ":1")
	c.gone(c.name(last) + ":1")
	c.t.Logf("%s: %d ms until the keys of tables that are not locked were deleted", what, time.Since(begun).Milliseconds())
}

// Hundreds of mapped tables, many of which are locked for hours: the others go on, whatever else happens, and once the
// lock is gone nothing is stale.
func TestTablesThatAreLockedHoldUpNoneOfManyOthers(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	for _, metadata := range testbed.Some(t, []string{"FULL", "MINIMAL"}) {
		for _, around := range testbed.Some(t, []bool{false, true}) {
			either(t, func(t *testing.T, source *testbed.Server) {
				t.Logf("metadata %s, around Kafka %t", metadata, around)
				source.Exec(t, "SET GLOBAL binlog_row_metadata = "+metadata)
				s := newSite(t, source)
				if around {
					s = s.around(t, kafka)
				}
				s.mappings = "[{table: shop.t*, keys: [\"{table}:{id}\"]}]"
				c := &crowd{site: s, tables: testbed.Cut(60, 500)}
				for n := range c.tables {
					source.Exec(t, "CREATE TABLE shop."+c.name(n)+" (id INT PRIMARY KEY, v INT UNSIGNED)",
						"INSERT INTO shop."+c.name(n)+" VALUES (1, 0)")
				}
				c.isHeldUp()
			})
		}
	}
}

func (c *crowd) isHeldUp() {
	t := c.t
	var err error
	c.holder, err = c.source.DB().Conn(t.Context())
	testbed.Must(t, err)
	defer func() { testbed.Must(t, c.holder.Close()) }()
	c.lock(c.tables / 2)
	begun := time.Now()
	r := c.run()
	t.Logf("%d ms until it reads", time.Since(begun).Milliseconds())
	c.changes("at a first start", 1)
	r.Kill9()
	c.cache(c.name(c.locked) + ":1")
	c.source.Exec(t, "UPDATE shop."+c.name(c.locked)+" SET v = 2 WHERE id = 1")
	r = c.start("run")
	begun = time.Now()
	c.gone(c.name(c.locked) + ":1")
	t.Logf("%d ms until it reads again after a kill", time.Since(begun).Milliseconds())
	c.changes("after a kill", 3)
	c.dropDumps()
	c.changes("after the connection was lost", 4)
	c.held("UNLOCK TABLES")
	c.await("it is fresh", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
	for n := range c.tables {
		if c.cached(c.name(n) + ":1") {
			t.Errorf("the key of %s is stale", c.name(n))
		}
	}
	r.Stop(t, patience)
}

func (c *crowd) dropDumps() {
	c.t.Helper()
	rows, err := c.source.DB().QueryContext(c.t.Context(),
		"SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
	testbed.Must(c.t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		testbed.Must(c.t, rows.Scan(&id))
		_, _ = c.source.DB().ExecContext(context.Background(), fmt.Sprint("KILL ", id))
	}
	testbed.Must(c.t, rows.Err())
}
