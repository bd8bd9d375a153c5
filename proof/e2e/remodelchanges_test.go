package e2e

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/freshet/freshet/proof/testbed"
)

// change is what comes to the definition of a table. Rows are written between any two of its statements. In its end the
// table has all columns that the mapping names.
type change struct {
	name string
	// do are the statements, on one connection. TABLE1 is the table; one that begins with ! may be refused.
	do []string
	// run is what is done before them, where statements are not enough.
	run func(a *alteration)
	// doubts are the causes of doubts that it may leave about the table.
	doubts []string
	// columns, keys and options are those of the table, if they are not the usual ones.
	columns, keys, options string
	// loose says that columns change their meaning, so that a value may hold what another column held.
	loose bool
	// only is the one kind of server that has such statements.
	only testbed.Flavor
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// table is the name of its table.
func (c *change) table() string {
	return strings.Trim(notWord.ReplaceAllString(strings.ToLower(c.name), "_"), "_")
}

func (c *change) definition() string {
	return "(" + cmp.Or(c.columns, modelColumns) + cmp.Or(c.keys, modelKeys) + ") " + c.options
}

// modelOnly is a regular expression of FRESHET_CHANGES: which changes come, nil for those that chance has come.
func modelOnly() *regexp.Regexp {
	if s := os.Getenv("FRESHET_CHANGES"); s != "" {
		return regexp.MustCompile(s)
	}
	return nil
}

// What a doubt about a table can be.
var (
	goes      = []string{"table_truncated"}
	rewritten = []string{"statement_logged"}
	unseen    = []string{"definition_changed", "event_undecodable"}
)

// unread is what remains where a statement does not say what the columns are, and the table has others by the time that
// the source is asked.
var unread = []string{"event_undecodable"}

// modelChanges are all changes that a kind of server knows.
func modelChanges(flavor testbed.Flavor) []*change {
	var all []*change
	for _, of := range [][]change{
		columnsMove(), columnsTurn(), keysChange(), partsChange(), tablesSwap(), standIns(), ownFeatures(), pastTheBinlog(),
		asWritten(), tools(),
	} {
		for i := range of {
			all = append(all, &of[i])
		}
	}
	return slices.DeleteFunc(all, func(c *change) bool { return c.only != "" && c.only != flavor })
}

// columnsMove are columns that come, go, move and get other names.
func columnsMove() []change {
	return []change{
		{name: "add first", do: []string{"ALTER TABLE TABLE1 ADD COLUMN y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST"}},
		{name: "add between", do: []string{
			"ALTER TABLE TABLE1 ADD COLUMN y VARCHAR(20) NOT NULL DEFAULT 'y1' AFTER id, ADD COLUMN z INT NOT NULL DEFAULT 7 AFTER n",
			"ALTER TABLE TABLE1 ADD (v INT, w VARCHAR(20) DEFAULT 'w1')",
		}},
		{name: "add and drop", do: []string{
			"ALTER TABLE TABLE1 ADD COLUMN y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST",
			"ALTER TABLE TABLE1 ADD COLUMN z INT NOT NULL DEFAULT 7 AFTER a",
			"ALTER TABLE TABLE1 DROP COLUMN y", "ALTER TABLE TABLE1 DROP COLUMN z",
		}},
		{name: "drop and add again", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 DROP COLUMN x, ADD COLUMN x VARCHAR(20) NOT NULL DEFAULT 'x1' FIRST",
			"ALTER TABLE TABLE1 DROP x", "ALTER TABLE TABLE1 ADD x VARCHAR(20) NOT NULL DEFAULT 'x2' AFTER b",
		}},
		{name: "rename", do: []string{
			"ALTER TABLE TABLE1 RENAME COLUMN x TO y", "ALTER TABLE TABLE1 CHANGE y x VARCHAR(20) NOT NULL DEFAULT 'x0' FIRST",
		}},
		{name: "rename a mapped one", doubts: []string{"mapping_unfit", "statement_logged"}, do: []string{
			"ALTER TABLE TABLE1 RENAME COLUMN a TO z", "ALTER TABLE TABLE1 RENAME COLUMN z TO a",
		}},
		{name: "reorder", do: []string{
			"ALTER TABLE TABLE1 MODIFY b VARCHAR(20) NOT NULL DEFAULT 'bé0' FIRST",
			"ALTER TABLE TABLE1 MODIFY n INT NOT NULL DEFAULT 0 AFTER c, MODIFY a VARCHAR(20) NOT NULL DEFAULT 'a0' AFTER m",
			"ALTER TABLE TABLE1 CHANGE id id INT NOT NULL AFTER x",
		}},
		{name: "swap names", loose: true, doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 RENAME COLUMN n TO m, RENAME COLUMN m TO n",
		}},
		{name: "swap names by change", loose: true, doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 CHANGE n m INT NOT NULL DEFAULT 1000000001, CHANGE m n INT NOT NULL DEFAULT 0",
		}},
		{name: "drop and add a mapped one", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 DROP m, ADD m INT NOT NULL DEFAULT 1000000001 FIRST",
		}},
		{name: "drop a mapped one", doubts: []string{"mapping_unfit", "statement_logged"}, do: []string{
			"ALTER TABLE TABLE1 DROP m", "ALTER TABLE TABLE1 ADD m INT NOT NULL DEFAULT 1000000001",
		}},
		{name: "much at once", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 5 FIRST, DROP x, MODIFY b VARCHAR(40) NOT NULL DEFAULT 'bé0' AFTER id, " +
				"ADD x VARCHAR(20) NOT NULL DEFAULT 'x9' AFTER n, ADD INDEX (n), ALTER COLUMN c SET DEFAULT 2, COMMENT 'much'",
		}},
	}
}

// columnsTurn are columns that get another type or character set.
func columnsTurn() []change {
	text := func(name, to string, doubts ...string) change {
		return change{name: name, doubts: doubts, do: []string{
			"ALTER TABLE TABLE1 MODIFY a " + to + " NOT NULL", "ALTER TABLE TABLE1 MODIFY b " + to + " NOT NULL AFTER id",
		}}
	}
	latin := strings.ReplaceAll(modelColumns, "VARCHAR(20)", "VARCHAR(20) CHARACTER SET latin1")
	return []change{
		{name: "larger numbers", do: []string{
			"ALTER TABLE TABLE1 MODIFY n BIGINT NOT NULL DEFAULT 0 FIRST", "ALTER TABLE TABLE1 MODIFY m BIGINT NOT NULL DEFAULT 1000000001",
			"ALTER TABLE TABLE1 MODIFY c BIGINT NOT NULL DEFAULT 1",
		}},
		{name: "smaller numbers", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 MODIFY c SMALLINT NOT NULL DEFAULT 1", "ALTER TABLE TABLE1 MODIFY c TINYINT UNSIGNED NOT NULL DEFAULT 1",
			"ALTER TABLE TABLE1 MODIFY n MEDIUMINT NOT NULL DEFAULT 0",
		}},
		{name: "numbers as decimals", doubts: rewritten, do: []string{"ALTER TABLE TABLE1 MODIFY n DECIMAL(12,2) NOT NULL DEFAULT 0"}},
		{name: "numbers with zeros", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 MODIFY n INT(10) UNSIGNED ZEROFILL NOT NULL DEFAULT 0",
		}},
		{name: "numbers as text", doubts: rewritten, do: []string{"ALTER TABLE TABLE1 MODIFY n VARCHAR(20) NOT NULL DEFAULT '0'"}},
		text("longer text", "VARCHAR(300)"),
		text("shorter text", "VARCHAR(15)", "statement_logged"),
		text("text as text", "TEXT"),
		text("text as char", "CHAR(40)", "statement_logged"),
		text("text as bytes", "VARBINARY(80)", "statement_logged"),
		text("text of another charset", "VARCHAR(20) CHARACTER SET utf16"),
		{name: "text of latin", doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 MODIFY b VARCHAR(20) CHARACTER SET latin1 NOT NULL", "ALTER TABLE TABLE1 CONVERT TO CHARACTER SET latin1",
		}},
		{name: "convert to utf8mb4", columns: latin, options: "CHARACTER SET latin1", do: []string{
			"ALTER TABLE TABLE1 CONVERT TO CHARACTER SET utf8mb4",
		}},
		{name: "default charset", doubts: nil, do: []string{
			"ALTER TABLE TABLE1 DEFAULT CHARACTER SET latin1", "ALTER TABLE TABLE1 ADD y VARCHAR(20) NOT NULL DEFAULT 'yé' FIRST",
		}},
		{name: "charset of the schema", do: []string{
			"ALTER DATABASE shop CHARACTER SET latin1", "ALTER TABLE TABLE1 ADD y VARCHAR(20) DEFAULT 'yé' FIRST",
			"ALTER TABLE TABLE1 MODIFY b VARCHAR(30) NOT NULL", "ALTER DATABASE shop CHARACTER SET utf8mb4",
		}},
	}
}

// twoRows writes rows that no client deletes: a key of a column that has one value fails over them.
const twoRows = "REPLACE INTO TABLE1 (id) VALUES (1001), (1002)"

// keysChange are changes of the primary key.
func keysChange() []change {
	return []change{
		{name: "primary key of two", do: []string{"ALTER TABLE TABLE1 DROP PRIMARY KEY, ADD PRIMARY KEY (id, c), ADD UNIQUE (id)"}},
		{name: "primary key reordered", keys: ", PRIMARY KEY (c, id), UNIQUE (id), KEY (id, c)", do: []string{
			"ALTER TABLE TABLE1 DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)",
		}},
		{name: "no primary key", do: []string{
			"ALTER TABLE TABLE1 ADD UNIQUE KEY u (id), DROP PRIMARY KEY", "ALTER TABLE TABLE1 ADD PRIMARY KEY (id), DROP KEY u",
		}},
		{name: "larger primary key", do: []string{"ALTER TABLE TABLE1 MODIFY id BIGINT NOT NULL AUTO_INCREMENT"}},
		{name: "unsigned primary key", doubts: rewritten, do: []string{"ALTER TABLE TABLE1 MODIFY id INT UNSIGNED NOT NULL"}},
		{name: "another primary key", do: []string{
			"ALTER TABLE TABLE1 ADD UNIQUE KEY u (id), DROP PRIMARY KEY, ADD own INT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
		}},
		{
			name: "key that fails", do: []string{
				twoRows, "!ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST, ADD UNIQUE (y)",
			},
		},
	}
}

// partsChange are partitions.
func partsChange() []change {
	ranges := "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (25), " +
		"PARTITION p2 VALUES LESS THAN (10000))"
	return []change{
		{name: "partitions come and go", do: []string{
			"ALTER TABLE TABLE1 PARTITION BY HASH (id) PARTITIONS 3", "ALTER TABLE TABLE1 ADD PARTITION PARTITIONS 2",
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST", "ALTER TABLE TABLE1 COALESCE PARTITION 2",
			"ALTER TABLE TABLE1 REMOVE PARTITIONING",
		}},
		{name: "partitions reorganized", options: ranges, do: []string{
			"ALTER TABLE TABLE1 ADD PARTITION (PARTITION p3 VALUES LESS THAN MAXVALUE)",
			"ALTER TABLE TABLE1 REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (25))",
			"ALTER TABLE TABLE1 REBUILD PARTITION q", "ALTER TABLE TABLE1 OPTIMIZE PARTITION q",
			"ALTER TABLE TABLE1 ANALYZE PARTITION ALL", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST",
		}},
		{name: "partition dropped", options: ranges, doubts: goes, do: []string{
			"ALTER TABLE TABLE1 DROP PARTITION p1", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST",
		}},
		{name: "partition truncated", options: ranges, doubts: goes, do: []string{
			"ALTER TABLE TABLE1 TRUNCATE PARTITION p0, p2", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST",
		}},
		{name: "partition exchanged", options: ranges, doubts: goes, do: []string{
			"CREATE TABLE TABLE1_e LIKE TABLE1", "ALTER TABLE TABLE1_e REMOVE PARTITIONING",
			"INSERT INTO TABLE1_e (id, a, n, b, c) VALUES (12, 'a12', 12, 'bé12', 1), (24, 'a24', 24, 'bé24', 2)",
			"ALTER TABLE TABLE1 EXCHANGE PARTITION p1 WITH TABLE TABLE1_e", "DROP TABLE TABLE1_e",
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST",
		}},
	}
}

// reversed are the columns of the tables in another order, for a table that takes the place of another one.
const reversed = "c INT NOT NULL DEFAULT 1, m INT NOT NULL DEFAULT 1000000001, b VARCHAR(20) NOT NULL DEFAULT 'bé0', " +
	"n INT NOT NULL DEFAULT 0, x VARCHAR(20) NOT NULL DEFAULT 'x0', a VARCHAR(20) NOT NULL DEFAULT 'a0', id INT NOT NULL"

// fill copies the rows of TABLE1.
func fill(into string) string {
	return "INSERT IGNORE INTO " + into + " (id, a, x, n, b, m, c) SELECT id, a, x, n, b, m, c FROM TABLE1"
}

// tablesSwap are tables that get the name of another one.
func tablesSwap() []change {
	const swap = "RENAME TABLE TABLE1 TO TABLE1_old, TABLE1_new TO TABLE1"
	return []change{
		{name: "like", doubts: goes, do: []string{
			"CREATE TABLE TABLE1_new LIKE TABLE1", "ALTER TABLE TABLE1_new ADD y INT NOT NULL DEFAULT 4 FIRST", fill("TABLE1_new"), swap,
			"DROP TABLE TABLE1_old",
		}},
		{name: "like after drop", doubts: goes, do: []string{
			"CREATE TABLE TABLE1_kept LIKE TABLE1", "ALTER TABLE TABLE1_kept MODIFY b VARCHAR(20) NOT NULL DEFAULT 'bé0' FIRST",
			"DROP TABLE TABLE1", "CREATE TABLE TABLE1 LIKE TABLE1_kept", "DROP TABLE TABLE1_kept",
		}},
		{name: "select", doubts: goes, do: []string{
			"RENAME TABLE TABLE1 TO TABLE1_old",
			"CREATE TABLE TABLE1 (PRIMARY KEY (id), KEY (c)) SELECT c, b, m, id, a, x, n FROM TABLE1_old",
			"ALTER TABLE TABLE1 ALTER m SET DEFAULT 1000000001, ALTER x SET DEFAULT 'x0'", "DROP TABLE TABLE1_old",
		}},
		{name: "select with columns", doubts: goes, do: []string{
			"RENAME TABLE TABLE1 TO TABLE1_old",
			"CREATE TABLE TABLE1 (y INT NOT NULL DEFAULT 3, m BIGINT NOT NULL DEFAULT 1000000001, id INT NOT NULL PRIMARY KEY) " +
				"AS SELECT n, id, x, b, a, m, c FROM TABLE1_old",
			"ALTER TABLE TABLE1 ALTER x SET DEFAULT 'x0'", "DROP TABLE TABLE1_old",
		}},
		{name: "other order", doubts: goes, do: []string{
			"CREATE TABLE TABLE1_new (" + reversed + modelKeys + ")", fill("TABLE1_new"), swap, "DROP TABLE TABLE1_old",
		}},
		{name: "there and back", doubts: goes, do: []string{
			"CREATE TABLE TABLE1_new (" + reversed + modelKeys + ")", fill("TABLE1_new"),
			"RENAME TABLE TABLE1 TO TABLE1_t, TABLE1_new TO TABLE1, TABLE1_t TO TABLE1_new",
			"RENAME TABLE TABLE1 TO TABLE1_t, TABLE1_new TO TABLE1, TABLE1_t TO TABLE1_new",
		}},
		{name: "away and back", doubts: goes, do: []string{
			"ALTER TABLE TABLE1 RENAME TO TABLE1_away", "ALTER TABLE TABLE1_away ADD y INT NOT NULL DEFAULT 4 FIRST",
			"UPDATE TABLE1_away SET n = n + 2", "ALTER TABLE TABLE1_away RENAME TO TABLE1, DROP y",
			"RENAME TABLE TABLE1 TO attic.away_and_back_moved", "ALTER TABLE attic.away_and_back_moved ADD y VARCHAR(20) DEFAULT 'yé' FIRST",
			"RENAME TABLE attic.away_and_back_moved TO TABLE1",
		}},
		{name: "dropped", doubts: goes, do: []string{
			"DROP TABLE TABLE1", "CREATE TABLE TABLE1 (" + reversed + modelKeys + ")",
			"DROP TABLE IF EXISTS TABLE1, TABLE1_none", "CREATE TABLE IF NOT EXISTS TABLE1 (" + modelColumns + modelKeys + ")",
		}},
		{name: "truncated", doubts: goes, do: []string{"TRUNCATE TABLE1", "ALTER TABLE TABLE1 MODIFY n INT NOT NULL DEFAULT 0 FIRST"}},
		{name: "replaced", only: testbed.FlavorMariaDB, doubts: append(unread, goes...), do: []string{
			"CREATE OR REPLACE TABLE TABLE1 (" + reversed + modelKeys + ")", "CREATE TABLE TABLE1_k LIKE TABLE1",
			"ALTER TABLE TABLE1_k MODIFY x VARCHAR(20) NOT NULL DEFAULT 'x0' FIRST", "CREATE OR REPLACE TABLE TABLE1 LIKE TABLE1_k",
			"CREATE OR REPLACE TABLE TABLE1 (PRIMARY KEY (id)) SELECT b, a, id, x, n, c FROM TABLE1_k",
			"ALTER TABLE TABLE1 ADD m INT NOT NULL DEFAULT 1000000001 AFTER b, ALTER x SET DEFAULT 'x0'", "DROP TABLE TABLE1_k",
		}},
	}
}

// standIns are what is called like a table, and is none: statements that do nothing, views, temporary tables.
func standIns() []change {
	return []change{
		{name: "nothing done", do: []string{
			"CREATE TABLE IF NOT EXISTS TABLE1 (" + reversed + modelKeys + ")",
			"CREATE TABLE TABLE1_k (" + reversed + modelKeys + ")",
			"CREATE TABLE IF NOT EXISTS TABLE1 LIKE TABLE1_k",
			"CREATE TABLE IF NOT EXISTS TABLE1 SELECT b, a FROM TABLE1_k",
			"DROP TABLE TABLE1_k", "DROP TABLE IF EXISTS TABLE1_k", "!ALTER TABLE TABLE1 DROP COLUMN y",
			"!CREATE TABLE TABLE1 (id INT)",
		}},
		{name: "views", do: []string{
			"CREATE VIEW TABLE1_v AS SELECT n, id, a, x, b, m, c FROM TABLE1", "UPDATE TABLE1_v SET n = n + 2 WHERE id < 20",
			"CREATE OR REPLACE VIEW TABLE1_v AS SELECT b, id, n FROM TABLE1", "DELETE FROM TABLE1_v WHERE id < 5",
			"INSERT IGNORE INTO TABLE1_v (id, n, b) VALUES (3, 4, 'bé3')", "DROP VIEW TABLE1_v",
		}},
		{name: "a view in its place", doubts: goes, do: []string{
			"RENAME TABLE TABLE1 TO TABLE1_base", "CREATE VIEW TABLE1 AS SELECT n, id, a, x, b, m, c FROM TABLE1_base",
			"UPDATE TABLE1 SET n = n + 2 WHERE id < 20", "ALTER TABLE TABLE1_base ADD y INT NOT NULL DEFAULT 4 FIRST",
			"DROP VIEW TABLE1", "RENAME TABLE TABLE1_base TO TABLE1",
		}},
		{name: "temporary", do: []string{
			"CREATE TEMPORARY TABLE TABLE1 (" + reversed + modelKeys + ")", "INSERT INTO TABLE1 (id) VALUES (1), (2)",
			"ALTER TABLE TABLE1 ADD y INT FIRST", "TRUNCATE TABLE1", "DROP TEMPORARY TABLE TABLE1",
			"CREATE TEMPORARY TABLE TABLE1 (id INT)", "DROP TABLE TABLE1",
			"!CREATE TEMPORARY TABLE TABLE1 SELECT * FROM TABLE1_none", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 4 FIRST",
		}},
		{name: "like a temporary one", doubts: goes, do: []string{
			"CREATE TEMPORARY TABLE TABLE1_t (" + reversed + modelKeys + ")", "DROP TABLE TABLE1",
			"CREATE TABLE TABLE1 LIKE TABLE1_t", "DROP TEMPORARY TABLE TABLE1_t",
		}},
	}
}

// ownFeatures are columns of special kinds.
func ownFeatures() []change {
	const my, maria = testbed.FlavorMySQL, testbed.FlavorMariaDB
	return []change{
		{name: "instant", do: []string{
			"ALTER TABLE TABLE1 ADD y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST, ALGORITHM=INSTANT",
			"ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 3 AFTER a, ALGORITHM=INSTANT", "ALTER TABLE TABLE1 DROP COLUMN y, ALGORITHM=INSTANT",
			"ALTER TABLE TABLE1 RENAME COLUMN z TO y, ALGORITHM=INSTANT",
		}},
		{name: "copy and in place", do: []string{
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST, ALGORITHM=COPY, LOCK=SHARED",
			"ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 3 AFTER a, ALGORITHM=INPLACE, LOCK=NONE", "ALTER TABLE TABLE1 FORCE",
			"ALTER TABLE TABLE1 ENGINE=InnoDB", "OPTIMIZE TABLE TABLE1", "ANALYZE TABLE TABLE1", "FLUSH TABLES TABLE1",
		}},
		{name: "another engine", do: []string{
			"ALTER TABLE TABLE1 ENGINE=MyISAM", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST, ENGINE=InnoDB",
		}},
		{name: "generated", do: []string{
			"ALTER TABLE TABLE1 ADD y INT AS (n + 1) VIRTUAL FIRST", "ALTER TABLE TABLE1 ADD z VARCHAR(40) AS (CONCAT(a, x)) STORED AFTER a",
			"ALTER TABLE TABLE1 ADD INDEX i (y)", "ALTER TABLE TABLE1 DROP y", "ALTER TABLE TABLE1 DROP z",
		}},
		{name: "a mapped one is generated", doubts: []string{"mapping_unfit", "statement_logged"}, do: []string{
			"ALTER TABLE TABLE1 DROP m, ADD m INT AS (1000000001 + n) STORED FIRST", "UPDATE TABLE1 SET n = n + 2",
			"ALTER TABLE TABLE1 DROP m, ADD m INT NOT NULL DEFAULT 1000000001",
		}},
		{name: "a mapped one is virtual", doubts: []string{"mapping_unfit", "statement_logged"}, do: []string{
			"ALTER TABLE TABLE1 DROP m, ADD m INT AS (1000000001 + n) VIRTUAL AFTER a", "UPDATE TABLE1 SET n = n + 2",
			"ALTER TABLE TABLE1 DROP m, ADD m INT NOT NULL DEFAULT 1000000001",
		}},
		{name: "functional index", only: my, do: []string{
			"ALTER TABLE TABLE1 ADD INDEX f ((n + m))", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST", "ALTER TABLE TABLE1 DROP INDEX f",
		}},
		{name: "hash index", only: maria, do: []string{
			"ALTER TABLE TABLE1 ADD y TEXT FIRST", "ALTER TABLE TABLE1 ADD UNIQUE u (y)", "ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 3 AFTER a",
			"ALTER TABLE TABLE1 DROP INDEX u",
		}},
		{name: "invisible", only: my, do: []string{
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 INVISIBLE FIRST", "ALTER TABLE TABLE1 ALTER x SET INVISIBLE",
			"ALTER TABLE TABLE1 ALTER y SET VISIBLE, ALTER m SET INVISIBLE", "ALTER TABLE TABLE1 ALTER m SET VISIBLE",
		}},
		{name: "invisible in mariadb", only: maria, do: []string{
			"ALTER TABLE TABLE1 ADD y INT NOT NULL INVISIBLE DEFAULT 3 FIRST", "ALTER TABLE TABLE1 MODIFY x VARCHAR(20) INVISIBLE DEFAULT 'x0'",
			"ALTER TABLE TABLE1 MODIFY m INT NOT NULL INVISIBLE DEFAULT 1000000001 AFTER id",
		}},
		{name: "invisible primary key", only: my, doubts: goes, do: []string{
			"SET SESSION sql_generate_invisible_primary_key = ON", "DROP TABLE TABLE1",
			"CREATE TABLE TABLE1 (" + modelColumns + ", UNIQUE (id))", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST",
		}},
		{name: "versioned", only: maria, do: []string{
			"ALTER TABLE TABLE1 ADD SYSTEM VERSIONING", "SET SESSION system_versioning_alter_history = KEEP",
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST", "ALTER TABLE TABLE1 DROP SYSTEM VERSIONING",
		}},
		{name: "two phases", only: maria, do: []string{
			"SET SESSION binlog_alter_two_phase = ON", "ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST",
			twoRows, "!ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 3 FIRST, ADD UNIQUE (y)",
			"ALTER TABLE TABLE1 MODIFY b VARCHAR(20) NOT NULL DEFAULT 'bé0' FIRST",
		}},
		{name: "if it is there", only: maria, doubts: rewritten, do: []string{
			"ALTER TABLE TABLE1 ADD COLUMN IF NOT EXISTS x INT FIRST", "ALTER TABLE TABLE1 DROP COLUMN IF EXISTS y",
			"ALTER TABLE TABLE1 ADD COLUMN IF NOT EXISTS y INT NOT NULL DEFAULT 3 FIRST, DROP COLUMN IF EXISTS z",
			"ALTER TABLE IF EXISTS TABLE1_none ADD y INT", "ALTER TABLE TABLE1 MODIFY COLUMN IF EXISTS z INT FIRST",
			"ALTER TABLE TABLE1 RENAME COLUMN IF EXISTS z TO w, CHANGE COLUMN IF EXISTS y w INT NOT NULL DEFAULT 3 AFTER a",
		}},
	}
}

// pastTheBinlog are changes that no binlog has.
func pastTheBinlog() []change {
	unlogged := func(name string, statements ...string) change {
		return change{
			name: name, doubts: unseen,
			do: append(append([]string{"SET SESSION sql_log_bin = 0"}, statements...), "SET SESSION sql_log_bin = 1"),
		}
	}
	return []change{
		unlogged("unlogged column", "ALTER TABLE TABLE1 ADD y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST"),
		unlogged("unlogged order", "ALTER TABLE TABLE1 MODIFY b VARCHAR(20) NOT NULL DEFAULT 'bé0' FIRST"),
		unlogged("unlogged there and back", "ALTER TABLE TABLE1 MODIFY n INT NOT NULL DEFAULT 0 FIRST",
			"ALTER TABLE TABLE1 MODIFY n INT NOT NULL DEFAULT 0 AFTER x"),
		unlogged("unlogged, then logged", "ALTER TABLE TABLE1 ADD y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST",
			"SET SESSION sql_log_bin = 1", "ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 2 AFTER y", "ALTER TABLE TABLE1 DROP x"),
		unlogged("unlogged index", "ALTER TABLE TABLE1 ADD INDEX (n)", "ANALYZE TABLE TABLE1"),
	}
}

// asWritten are statements that are hard to read.
func asWritten() []change {
	const maria = testbed.FlavorMariaDB
	return []change{
		{name: "in comments", do: []string{
			"/* first */ ALTER /* second */ TABLE TABLE1 -- third\n ADD y /*! INT */ NOT NULL /*!40000 DEFAULT 3 */ FIRST # fourth",
			"/*!50000 ALTER TABLE TABLE1 MODIFY x VARCHAR(20) NOT NULL DEFAULT 'x, FIRST' FIRST */",
			"ALTER TABLE TABLE1 COMMENT 'ADD z INT FIRST; DROP COLUMN a', ADD z INT COMMENT 'it''s \\' FIRST' AFTER a",
		}},
		{name: "quoted", do: []string{
			"SET SESSION sql_mode = 'ANSI_QUOTES'", `ALTER TABLE TABLE1 ADD "y;--" INT DEFAULT 3 FIRST, ADD "a b" VARCHAR(9) DEFAULT 'x' AFTER a`,
			"SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'", `ALTER TABLE TABLE1 ADD z VARCHAR(9) DEFAULT '\' FIRST`,
			"SET SESSION sql_mode = DEFAULT", "ALTER TABLE TABLE1 CHANGE `a b` `select` VARCHAR(9) DEFAULT 'é' FIRST",
		}},
		{name: "by name alone", do: []string{
			"USE shop", "ALTER TABLE `by_name_alone` ADD y INT NOT NULL DEFAULT 3 FIRST",
			"ALTER TABLE by_name_alone MODIFY n INT NOT NULL DEFAULT 0 FIRST",
		}},
		{name: "prepared", do: []string{
			"SET @s = 'ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST'", "PREPARE s FROM @s", "EXECUTE s", "DEALLOCATE PREPARE s",
			"CREATE PROCEDURE TABLE1_p() BEGIN ALTER TABLE TABLE1 ADD z INT NOT NULL DEFAULT 3 AFTER a; " +
				"UPDATE TABLE1 SET n = n + 2; ALTER TABLE TABLE1 DROP y; END", "CALL TABLE1_p()", "DROP PROCEDURE TABLE1_p",
		}},
		{name: "in a transaction", run: func(a *alteration) {
			a.do("BEGIN") // and no rows of others between, which would wait for it
			a.do(a.table.in("UPDATE TABLE1 SET n = n + 2 WHERE id < 9"))
			a.do(a.table.in("ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST"))
		}, do: []string{"COMMIT"}},
		{name: "for one statement", only: maria, do: []string{
			"SET STATEMENT lock_wait_timeout=50 FOR ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3 FIRST",
			"SET STATEMENT sql_mode='ANSI_QUOTES' FOR ALTER TABLE TABLE1 DROP y", "ALTER ONLINE TABLE TABLE1 WAIT 50 ADD z INT FIRST",
		}},
	}
}

// tools are programs that copy a table and have the copy take its name.
func tools() []change {
	return []change{
		{name: "gh-ost adds", doubts: goes, run: migrate("ADD COLUMN y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST, MODIFY n BIGINT NOT NULL DEFAULT 0 AFTER b", nil)},
		{name: "gh-ost drops", doubts: goes, columns: "w INT NOT NULL DEFAULT 5, " + modelColumns, run: migrate("DROP COLUMN w, MODIFY b VARCHAR(40) NOT NULL DEFAULT 'bé0' FIRST, ADD INDEX (n)", nil)},
		{name: "gh-ost renames", doubts: goes, run: migrate("CHANGE COLUMN x y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST, ADD COLUMN x VARCHAR(20) NOT NULL DEFAULT 'x0' AFTER id",
			map[string]string{"x": "y"})},
		{name: "pt-osc adds", doubts: goes, run: copyWithTriggers("ADD COLUMN y VARCHAR(20) NOT NULL DEFAULT 'y1' FIRST, MODIFY n BIGINT NOT NULL DEFAULT 0 AFTER b",
			"id", "a", "x", "n", "b", "m", "c")},
		{name: "pt-osc converts", doubts: goes, run: copyWithTriggers("CONVERT TO CHARACTER SET utf8mb4, MODIFY a VARCHAR(60) NOT NULL DEFAULT 'a0' AFTER c, DROP COLUMN x, ADD COLUMN x VARCHAR(20) DEFAULT 'x0' AFTER id",
			"id", "a", "n", "b", "m", "c")},
	}
}
