package operate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/proof/testbed"
)

// What can be seen only by comparison with the tables as they are, and what could be seen without, is warned of.
func TestCheckWarnsOfValuesThatSeveralRowsShare(t *testing.T) {
	source := testbed.MariaDB(t)
	source.Exec(t, "CREATE DATABASE shop",
		"CREATE TABLE shop.review (id INT PRIMARY KEY, product_id INT, place INT, UNIQUE (product_id, place))",
		"CREATE TABLE shop.log (product_id INT)")
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
  - {table: shop.review, keys: ["one:{id}", "place:{product_id}:{place}", "many:{product_id}"], rebuild: {from: row}}
  - {table: shop.log, keys: ["log:{product_id}"], rebuild: {query: "SELECT 1 AS one"}}
  - {table: shop.log, set: {key: "logs", member: "{product_id}"}}
`), CheckMappings)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	checkSource(t.Context(), c, &r)
	var warned []string
	for _, f := range r.Findings {
		if f.Grade == Fail {
			t.Errorf("%+v", f)
		}
		if f.Grade == Warn && strings.HasPrefix(f.What, "freshet.yaml") {
			place, _, _ := strings.Cut(f.What, ": ")
			what, _, _ := strings.Cut(strings.TrimPrefix(f.What, place+": "), ":")
			warned = append(warned, place+" "+what)
		}
	}
	want := "freshet.yaml:6:69 shop.log, freshet.yaml:5:76 shop.review, freshet.yaml:7:35 shop.log"
	if got := strings.Join(warned, ", "); got != want {
		t.Errorf("warned of %s, want %s", got, want)
	}
}

// What foreign keys change is warned of also where the user may read what is mapped, and no more.
func TestCheckWarnsOfRowsThatForeignKeysChange(t *testing.T) {
	source := testbed.MariaDB(t)
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.customer (id INT PRIMARY KEY)",
		"CREATE TABLE shop.purchase (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES shop.customer (id) ON DELETE CASCADE)",
		"CREATE TABLE shop.line (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES shop.purchase (id) ON DELETE SET NULL)",
		"CREATE TABLE shop.strict (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES shop.customer (id))",
		"CREATE USER few@'%' IDENTIFIED BY 'few'", "GRANT SELECT ON shop.purchase TO few@'%'",
		"GRANT SELECT ON shop.line TO few@'%'", "GRANT SELECT ON shop.strict TO few@'%'")
	for on, then := range map[string]string{"invalidate": "forgets all keys", "ignore": "stay stale"} {
		c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: few, password: few}
redis: {addresses: ["127.0.0.1:1"]}
on_cascade: `+on+`
mappings:
  - {table: shop.line, keys: ["line:{id}"]}
  - {table: shop.strict, keys: ["strict:{id}"]}
`), CheckMappings)
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		checkSource(t.Context(), c, &r)
		var warned []string
		for _, f := range r.Findings {
			if strings.Contains(f.What, "foreign keys") {
				warned = append(warned, f.What)
			}
		}
		if got := strings.Join(warned, "\n"); len(warned) != 3 || !strings.Contains(got, "rows of shop.line when a row of "+
			"shop.customer is deleted") || !strings.Contains(got, "a row of shop.purchase is deleted") ||
			!strings.Contains(got, "may not read shop.customer") || !strings.Contains(got, then) {
			t.Errorf("on_cascade %s: %s", on, got)
		}
	}
}

// A mapped table that the user may see and not read is said to be one, and so is one whose rows are in others.
func TestCheckNamesMappedTablesOfWhichNotAllIsSeen(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *testbed.Server{
		"MySQL": testbed.MySQL, "MariaDB": testbed.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			source := start(t)
			source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY) ENGINE=MyISAM",
				"CREATE TABLE shop.product (id INT PRIMARY KEY)", "CREATE TABLE shop.review (id INT PRIMARY KEY)",
				"CREATE TABLE shop.log (id INT PRIMARY KEY)", "CREATE TABLE shop.secret (id INT PRIMARY KEY)",
				"CREATE TABLE shop.merged (id INT, KEY (id)) ENGINE=MERGE UNION=(shop.a)",
				"CREATE USER few@'%' IDENTIFIED BY 'few'", "GRANT SELECT ON shop.product TO few@'%'",
				"GRANT TRIGGER ON shop.* TO few@'%'", "GRANT UPDATE ON shop.log TO few@'%'",
				"GRANT SELECT ON shop.merged TO few@'%'")
			c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: few, password: few}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
  - {table: shop.product, keys: ["product:{id}"]}
  - {table: shop.review, keys: ["review:{id}"]}
  - {table: shop.log, keys: ["log:{id}"]}
  - {table: shop.merged, keys: ["merged:{id}"]}
`), CheckMappings)
			if err != nil {
				t.Fatal(err)
			}
			var r Report
			checkSource(t.Context(), c, &r)
			var found []string
			for _, f := range r.Findings {
				if strings.Contains(f.What, "may not read mapped") || strings.Contains(f.What, "rows are in other tables") {
					found = append(found, fmt.Sprint(f.Grade, " ", f.What, " ", f.Fix))
				}
			}
			if len(found) != 3 || !strings.Contains(found[0], "GRANT SELECT ON `shop`.`log` TO `few`@`%`;") ||
				!strings.Contains(found[1], "GRANT SELECT ON `shop`.`review`") || !strings.Contains(found[2], "shop.merged") {
				t.Errorf("found\n%s", strings.Join(found, "\n"))
			}
		})
	}
}

// A view is there, and no mapping can be for it.
func TestCheckSaysThatAMappedTableIsAView(t *testing.T) {
	source := testbed.MariaDB(t)
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.product (id INT PRIMARY KEY)",
		"CREATE VIEW shop.cheap AS SELECT id FROM shop.product")
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
  - {table: shop.cheap, keys: ["cheap:{id}"]}
  - {table: shop.dear, keys: ["dear:{id}"]}
  - {table: "shop.*", keys: ["any:{id}"]}
`), CheckMappings)
	testbed.Must(t, err)
	var r Report
	checkSource(t.Context(), c, &r)
	var failed []string
	for _, f := range r.Findings {
		if f.Grade == Fail {
			failed = append(failed, f.What+" -> "+f.Fix)
		}
	}
	if len(failed) != 2 || !strings.HasSuffix(failed[0], " -> shop.cheap is a view, whose changes are in the binlog under the "+
		"names of its tables: map those") || !strings.HasSuffix(failed[1], " -> ") {
		t.Errorf("%s", strings.Join(failed, "\n"))
	}
}

// The statement that is advised is one, whatever the names of the table and the user hold.
func TestCheckGivesRightsToTablesOfAnyName(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *testbed.Server{
		"MySQL": testbed.MySQL, "MariaDB": testbed.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			source := start(t)
			source.Exec(t, "CREATE DATABASE `my-db`", "CREATE TABLE `my-db`.`odd ``table` (id INT PRIMARY KEY)",
				"CREATE TABLE `my-db`.`select` (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES `odd ``table` (id) "+
					"ON DELETE CASCADE)", "CREATE USER `a-few`@'%' IDENTIFIED BY 'few'", "GRANT TRIGGER ON `my-db`.* TO `a-few`@'%'")
			c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: a-few, password: few}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: "my-db.select", keys: ["s:{id}"]}]
`), CheckMappings)
			testbed.Must(t, err)
			grants := func() (all []string) {
				var r Report
				checkSource(t.Context(), c, &r)
				for _, f := range r.Findings {
					if strings.HasPrefix(f.Fix, "GRANT ") {
						all = append(all, f.Fix)
					}
				}
				return all
			}
			first := grants()
			if len(first) == 0 {
				t.Error("nothing is advised")
			}
			source.Exec(t, first...)
			source.Exec(t, grants()...)
			if left := grants(); len(left) > 0 {
				t.Errorf("after all was granted: %q", left)
			}
		})
	}
}
