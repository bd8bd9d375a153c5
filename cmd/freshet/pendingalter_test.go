package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// An XA transaction is prepared that changes a table, an ALTER TABLE waits for it, and a session that changes the table
// waits for that. freshet is killed meanwhile, and has never seen the table before. Other tables are fresh; and
// once the transaction is committed, so is this one, though columns have moved.
func TestAnAlterThatWaitsForAnXATransactionLeavesNoStaleKey(t *testing.T) {
	t.Parallel()
	mysql, mariadb := testbed.MySQL, testbed.MariaDB
	for how, kind := range testbed.SomeOf(t, map[string]struct {
		start func(testing.TB, ...string) *testbed.Server
		arg   string
	}{
		"mysql":                         {mysql, "--binlog-row-metadata=MINIMAL"},
		"mysql, with names":             {mysql, "--binlog-row-metadata=FULL"},
		"mariadb":                       {mariadb, "--binlog-row-metadata=NO_LOG"},
		"mariadb, with names":           {mariadb, "--binlog-row-metadata=FULL"},
		"mariadb, two phases of alters": {mariadb, "--binlog-alter-two-phase=ON"},
	}) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.start(t, kind.arg))
			s.source.Exec(t, "CREATE TABLE shop.other (id INT PRIMARY KEY, price INT NOT NULL)", "INSERT INTO shop.other VALUES (1,1)")
			s.mappings = `
  - {table: shop.product, keys: ["product:{id}", "price:{price}"]}
  - {table: shop.product, keys: ["row:{id}"], rebuild: {from: row, as: json}}
  - {table: shop.other, keys: ["other:{id}"]}`
			for id := range 3 {
				s.write(id)
			}
			r := s.run()
			xa, err := s.source.DB().Conn(t.Context())
			testbed.Must(t, err)
			for _, q := range []string{
				"XA START 'a'", "UPDATE shop.product SET price = 100 WHERE id = 1", "XA END 'a'", "XA PREPARE 'a'",
			} {
				_, err := xa.ExecContext(t.Context(), q)
				testbed.Must(t, err)
			}
			waits := make(chan error, 2)
			waiting := func(statement string, n int) {
				go func() { waits <- s.source.ExecContext(context.Background(), statement) }()
				testbed.Eventually(t, patience, statement+" waits", func() bool {
					return s.source.QueryText(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE "+
						"'Waiting for table metadata lock%'") == fmt.Sprint(n)
				})
			}
			waiting("ALTER TABLE shop.product ADD COLUMN first INT NOT NULL DEFAULT 7 FIRST, ADD COLUMN name VARCHAR(9) AFTER id", 1)
			waiting("UPDATE shop.product SET price = 200 WHERE id = 2", 2)
			others := func() {
				t.Helper()
				s.cache("other:1")
				s.source.Exec(t, "UPDATE shop.other SET price = price + 1")
				s.gone("other:1")
			}
			others()
			r.Kill9()
			r = s.start("run")
			others()
			keys := []string{"product:1", "product:2", "price:1", "price:100", "price:200", "row:1", "row:2"}
			for _, key := range keys {
				s.cache(key)
			}
			_, err = xa.ExecContext(t.Context(), "XA COMMIT 'a'")
			testbed.Must(t, err)
			testbed.Must(t, xa.Close())
			for range 2 {
				testbed.Must(t, <-waits)
			}
			for _, key := range keys[:5] {
				s.gone(key)
			}
			now := time.Now()
			s.await("all is finished", func(st *app.Status) bool {
				return st.State == app.Fresh && st.FreshAsOf.After(now) && st.InFlight+st.Pending == 0
			})
			for _, key := range keys {
				switch got := s.redis.Client().Get(t.Context(), key).Val(); {
				case got == "old":
					t.Errorf("%s is as it was", key)
				case key == "row:2" && got != "" && got != `{"first":7,"id":2,"name":null,"price":200}`:
					t.Errorf("%s is %s", key, got)
				}
			}
			if st := s.status(); len(st.Doubts) > 0 {
				t.Errorf("in doubt %+v", st.Doubts)
			}
			r.Stop(t, patience)
		})
	}
}
