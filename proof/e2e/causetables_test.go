package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// shelved is a mapped table. Each row has a number, and a value that readers cache under NAME:NUMBER.
type shelved struct {
	name string // of the table in shop, and what its keys begin with
	// The rest has a default, in newShelved.
	schema  string
	columns string   // with the options of the table
	number  string   // an expression of its columns
	value   string   // likewise
	put     []string // what makes a row; %[1]d is its number, and %[2]d a value
	drop    string   // what deletes it
	// ends is how the template of its keys ends, and tail, if it is not nil, how the key of a row does.
	ends string
	tail func(number int) string
	// apart says that another database has the table than the source, on the server other.
	apart bool
	other *testbed.Server
}

// in is the server that has the table, of which one server of the source is given.
func (t *shelved) in(source *testbed.Server) *testbed.Server {
	if t.other != nil {
		return t.other
	}
	return source
}

func newShelved(t shelved) *shelved {
	or := func(a *string, b string) {
		if *a == "" {
			*a = b
		}
	}
	or(&t.schema, "shop")
	or(&t.columns, plainColumns)
	or(&t.number, "id")
	or(&t.value, "v")
	or(&t.drop, "DELETE FROM "+t.full()+" WHERE "+t.number+" = %[1]d")
	if t.put == nil {
		t.put = []string{"REPLACE INTO " + t.full() + " (id, v) VALUES (%[1]d, %[2]d)"}
	}
	return &t
}

const plainColumns = "(id INT PRIMARY KEY, v INT NOT NULL)"

func (t *shelved) full() string { return t.schema + "." + t.name }

func (t *shelved) create() string { return "CREATE TABLE " + t.full() + " " + t.columns }

func (t *shelved) key(number int) string {
	key := fmt.Sprintf("%s:%d", t.name, number)
	if t.tail != nil {
		key += t.tail(number)
	}
	return key
}

// keyed returns the number of the row whose key this is.
func (t *shelved) keyed(key string) (number int, is bool) {
	_, err := fmt.Sscanf(key, t.name+":%d", &number)
	return number, err == nil && t.key(number) == key
}

func (t *shelved) mapping(more string) string {
	return fmt.Sprintf("  - {table: %s, keys: [\"%s:{%s}%s\"]%s}\n", t.full(), t.name, t.number, t.ends, more)
}

// cause is something that leaves keys stale of which no row event tells.
type cause struct {
	name   string
	tables []*shelved
	// make makes what else there must be. The tables themselves are made after it.
	make []string
	// again is what is done, again and again, on one connection. It always leaves rows.
	again []string
	// only is the one kind of server that has such a statement.
	only testbed.Flavor
}

// plain is a cause that is about one plain table, which stands for TABLE1 in its statements.
func plain(name, table string, again ...string) cause {
	t := newShelved(shelved{name: table})
	for i := range again {
		again[i] = strings.ReplaceAll(again[i], "TABLE1", t.full())
	}
	return cause{name: name, tables: []*shelved{t}, again: again}
}

// asStatements has the statements logged as statements. The connection is used again by others.
func asStatements(statements ...string) []string {
	return append(append([]string{"SET SESSION binlog_format = STATEMENT"}, statements...),
		"SET SESSION binlog_format = ROW")
}

// causes are all that statements of clients can do.
func causes(source *testbed.Server) []cause {
	all := slices.Concat(replacements(), rewrites(source), partitions(), cascades())
	return slices.DeleteFunc(all, func(c cause) bool { return c.only != "" && c.only != source.Flavor })
}

// replacements are causes by which a table is another one, or none.
func replacements() []cause {
	crate := newShelved(shelved{name: "crate", schema: "depot"})
	left, right := newShelved(shelved{name: "left_one"}), newShelved(shelved{name: "right_one"})
	replaced := plain("CREATE OR REPLACE TABLE", "replaced", "CREATE OR REPLACE TABLE TABLE1 "+plainColumns)
	replaced.only = testbed.FlavorMariaDB
	return []cause{
		plain("TRUNCATE", "truncated", "TRUNCATE TABLE TABLE1"),
		plain("DROP TABLE", "dropped", "DROP TABLE TABLE1", "CREATE TABLE TABLE1 (v INT NOT NULL, id INT PRIMARY KEY)"),
		replaced,
		{
			name: "DROP DATABASE", tables: []*shelved{crate}, make: []string{"CREATE DATABASE depot"},
			again: []string{"DROP DATABASE depot", "CREATE DATABASE depot", crate.create()},
		},
		plain("RENAME and back", "renamed", "RENAME TABLE TABLE1 TO shop.away", "UPDATE shop.away SET v = v + 1000",
			"DELETE FROM shop.away WHERE id % 2 = 0", "RENAME TABLE shop.away TO TABLE1"),
		{
			name: "RENAME, a swap of two", tables: []*shelved{left, right},
			again: []string{
				// So that no row has the value of the other one with its number.
				"UPDATE shop.left_one SET v = v + 1 WHERE v = (SELECT v FROM shop.right_one r WHERE r.id = left_one.id)",
				"RENAME TABLE shop.left_one TO shop.between, shop.right_one TO shop.left_one, shop.between TO shop.right_one",
			},
		},
	}
}

// rewrites are causes by which rows change that stay where they are.
func rewrites(source *testbed.Server) []cause {
	decimal := newShelved(shelved{
		name: "rounded", columns: "(id INT PRIMARY KEY, v DECIMAL(12,2) NOT NULL)",
		put: []string{"REPLACE INTO shop.rounded (id, v) VALUES (%[1]d, %[2]d + 0.55)"},
	})
	coded := newShelved(shelved{
		name: "coded", columns: "(id INT PRIMARY KEY, code INT NOT NULL, v INT NOT NULL)", number: "code",
		put: []string{"REPLACE INTO shop.coded (id, code, v) VALUES (%[1]d + 7, %[1]d, %[2]d)"},
	})
	file := filepath.Join(source.Dir, "rows-")
	return []cause{
		plain("DML logged as statements", "logged", asStatements("UPDATE TABLE1 SET v = v + 1000",
			"DELETE FROM TABLE1 WHERE id % 2 = 0")...),
		plain("LOAD DATA logged as a statement", "loaded", asStatements(
			"SELECT id, v + 1000 INTO OUTFILE '"+file+"N' FROM TABLE1",
			"LOAD DATA INFILE '"+file+"N' REPLACE INTO TABLE TABLE1 (id, v)",
		)...),
		{
			name: "ALTER TABLE that rounds", tables: []*shelved{decimal}, again: []string{
				"ALTER TABLE shop.rounded MODIFY v DECIMAL(12,0) NOT NULL", "ALTER TABLE shop.rounded MODIFY v DECIMAL(12,2) NOT NULL",
			},
		},
		{
			name: "binlog_row_image=MINIMAL", tables: []*shelved{coded}, again: []string{
				"SET SESSION binlog_row_image = MINIMAL", "UPDATE shop.coded SET v = v + 1000",
				"SET SESSION binlog_row_image = FULL",
			},
		},
	}
}

// partitions are causes by which a part of a table goes. Rows from 30 on are in the partition.
func partitions() []cause {
	table := func(name string) *shelved {
		return newShelved(shelved{
			name: name, columns: plainColumns + " PARTITION BY RANGE (id) (PARTITION small VALUES LESS THAN (30), " +
				"PARTITION large VALUES LESS THAN MAXVALUE)",
		})
	}
	exchanged := newShelved(shelved{
		name: "exchanged", put: []string{"REPLACE INTO shop.exchanged (id, v) VALUES (GREATEST(%[1]d, 30), %[2]d)"},
	})
	return []cause{
		{
			name: "DROP PARTITION", tables: []*shelved{table("part_dropped")}, again: []string{
				"ALTER TABLE shop.part_dropped DROP PARTITION large",
				"ALTER TABLE shop.part_dropped ADD PARTITION (PARTITION large VALUES LESS THAN MAXVALUE)",
			},
		},
		{
			name: "TRUNCATE PARTITION", tables: []*shelved{table("part_truncated")},
			again: []string{"ALTER TABLE shop.part_truncated TRUNCATE PARTITION large"},
		},
		{
			name: "EXCHANGE PARTITION", tables: []*shelved{table("part_exchanged"), exchanged},
			again: []string{
				"UPDATE shop.exchanged SET v = v + 1 WHERE v = (SELECT v FROM shop.part_exchanged p WHERE p.id = exchanged.id)",
				"ALTER TABLE shop.part_exchanged EXCHANGE PARTITION large WITH TABLE shop.exchanged",
			},
		},
	}
}

// cascades are causes by which foreign keys change rows. Owners, sellers and hosts are not mapped.
func cascades() []cause {
	pet := newShelved(shelved{
		name: "pet", columns: "(id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES shop.owner (id) ON DELETE CASCADE)",
		put: []string{"INSERT IGNORE INTO shop.owner VALUES (%[1]d)", "REPLACE INTO shop.pet VALUES (%[1]d, %[1]d)"},
	})
	toy := newShelved(shelved{
		name: "toy", columns: "(id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES shop.pet (id) ON DELETE CASCADE)",
		put: append(slices.Clone(pet.put), "REPLACE INTO shop.toy VALUES (%[1]d, %[1]d)"),
	})
	offer := newShelved(shelved{
		name: "offer", columns: "(id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES shop.seller (code) ON UPDATE CASCADE)",
		put: []string{
			"INSERT IGNORE INTO shop.seller VALUES (%[1]d, %[1]d)",
			"REPLACE INTO shop.offer SELECT id, code FROM shop.seller WHERE id = %[1]d",
		},
	})
	guest := newShelved(shelved{
		name: "guest", columns: "(id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES shop.host (id) ON DELETE SET NULL)",
		value: "COALESCE(v, 0)",
		put:   []string{"INSERT IGNORE INTO shop.host VALUES (%[1]d)", "REPLACE INTO shop.guest VALUES (%[1]d, %[1]d)"},
	})
	return []cause{
		{
			name: "ON DELETE CASCADE, two levels", tables: []*shelved{pet, toy},
			make:  []string{"CREATE TABLE shop.owner (id INT PRIMARY KEY)"},
			again: []string{"DELETE FROM shop.owner WHERE id > 20"},
		},
		{
			name: "ON UPDATE CASCADE", tables: []*shelved{offer},
			make:  []string{"CREATE TABLE shop.seller (id INT PRIMARY KEY, code INT UNIQUE)"},
			again: []string{"UPDATE shop.seller SET code = code + 100000 ORDER BY code DESC"},
		},
		{
			name: "ON DELETE SET NULL", tables: []*shelved{guest},
			make:  []string{"CREATE TABLE shop.host (id INT PRIMARY KEY)"},
			again: []string{"DELETE FROM shop.host WHERE id > 20"},
		},
	}
}

// statements are what is done this time: a file has a name that no other has.
func (c *cause) statements() []string {
	all, file := slices.Clone(c.again), fmt.Sprintf("rows-%d'", time.Now().UnixNano())
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "rows-N'", file)
	}
	return all
}
