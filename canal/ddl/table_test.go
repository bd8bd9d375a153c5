package ddl

import (
	"fmt"
	"testing"
)

func TestCreateTable(t *testing.T) {
	checkBoth(t, []example{
		{"CREATE TABLE t (id INT PRIMARY KEY)", "ddl; create d.t (id int)"},
		{
			"CREATE TABLE IF NOT EXISTS `s`.`t` (`id` int(11) unsigned NOT NULL AUTO_INCREMENT COMMENT 'a, (b)',\n" +
				"  `n` varchar(20) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'x)',\n  PRIMARY KEY (`id`),\n" +
				"  UNIQUE KEY `u` (`n`(3)), KEY k ((n + 1)), FULLTEXT KEY f (n), CONSTRAINT `c` FOREIGN KEY (`id`) REFERENCES " +
				"`o` (`id`) ON DELETE SET NULL, CHECK (id > 0)\n) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8 COMMENT='x'",
			"ddl; create s.t if (id int unsigned, n varchar(20) charset=latin1 collate=latin1_bin) charset=utf8mb3",
		},
		{"CREATE TABLE t (id INT) SECONDARY_ENGINE_ATTRIBUTE='{\"a\": 1}'", "ddl; create d.t (id int)"},
		{
			"create table t (a serial, b bool, c tinyint(1), d tinyint(4), e tinyint(1) unsigned, f int zerofill, g bigint(5) zerofill)",
			"ddl; create d.t (a bigint unsigned, b tinyint(1), c tinyint(1), d tinyint, e tinyint unsigned, " +
				"f int(10) unsigned zerofill, g bigint(5) unsigned zerofill)",
		},
		{
			"create table t (a dec, b numeric(5), c fixed(5,2) unsigned, d float, e float(24), f float(25), g float(7,3), h real, i double precision(5,1), j bit, k bit(64))",
			"ddl; create d.t (a decimal(10,0), b decimal(5,0), c decimal(5,2) unsigned, d float, e float, f double, g float(7,3), " +
				"h double, i double(5,1), j bit(1), k bit(64))",
		},
		{
			"create table t (a char, b char(5) binary, c character varying(9), d national char(3), e nvarchar(4), f nchar varying(4), " +
				"g national varchar(5) binary, h varchar(5) ascii, i char(3) unicode, j char(4) byte, k long, l long varbinary, m national character varying(2))",
			"ddl; create d.t (a char(1), b char(5) bin, c varchar(9), d char(3) charset=utf8mb3, e varchar(4) charset=utf8mb3, " +
				"f varchar(4) charset=utf8mb3, g varchar(5) bin charset=utf8mb3, h varchar(5) charset=latin1, i char(3) charset=ucs2, " +
				"j char(4) charset=binary, k mediumtext, l mediumblob, m varchar(2) charset=utf8mb3)",
		},
		{
			"create table t (a text(500), b text, c tinytext binary, d blob(300), e blob(70000), f longblob, g binary, h varbinary(5))",
			"ddl; create d.t (a text[500], b text, c tinytext bin, d blob, e mediumblob, f longblob, g binary(1), h varbinary(5))",
		},
		{
			"create table t (a date, b time, c time(3), d datetime(0), e timestamp(6) default current_timestamp(6) on update current_timestamp(6), f year, g year(4))",
			"ddl; create d.t (a date, b time, c time(3), d datetime, e timestamp(6), f year, g year)",
		},
		{
			"create table t (a enum('x','y ') charset utf8mb4 default 'x', b set('it''s','a\\'b') collate latin1_bin)",
			"ddl; create d.t (a enum('x','y') charset=utf8mb4, b set('it''s','a''b') collate=latin1_bin)",
		},
		{
			"create table t (a point not null srid 4326, b geomcollection, c vector(3))",
			"ddl; create d.t (a point, b geometrycollection, c vector(3))",
		},
		{
			"create table t (a int generated always as (b+(1)) stored, b int invisible, `period` int, first int, after int)",
			"ddl; create d.t (a int, b int, period int, first int, after int)",
		},
		{"create table t (a frob(1,2) unsigned, b int)", "ddl; create d.t (a, b int)"},
		{"CREATE TABLE t LIKE s.u", "ddl; create like d.t -> s.u"},
		{"CREATE TABLE IF NOT EXISTS t (LIKE u)", "ddl; create like d.t -> d.u if"},
		{"CREATE TABLE `t` (\n  `a` int NOT NULL DEFAULT '0'\n) START TRANSACTION", "ddl; create d.t (a int)"},
		{"CREATE TABLE t SELECT 1", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (a INT) ENGINE=InnoDB AS SELECT 1", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (SELECT 1)", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (a INT) IGNORE SELECT 1", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (a INT) PARTITION BY HASH (a) SELECT 1", "ddl; create d.t rows unclear"},
		{
			"CREATE TABLE t (a INT) CHARSET latin1 COLLATE='latin1_bin' ROW_FORMAT DYNAMIC, STATS_PERSISTENT=1 UNION=(a,b) DATA DIRECTORY '/x'" +
				"\n/*!50100 PARTITION BY RANGE (a)\n(PARTITION p0 VALUES LESS THAN (6) ENGINE = InnoDB) */",
			"ddl; create d.t (a int) charset=latin1 collate=latin1_bin",
		},
		{"CREATE TABLE t (a INT", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (a INT) FROB", "ddl; create d.t rows unclear"},
		{"CREATE TABLE t (a INT, b)", "ddl; create d.t rows unclear"},
	})
}

func TestCreateTableOfMariaDB(t *testing.T) {
	check(t, Session{MariaDB: true}, []example{
		{
			"CREATE OR REPLACE TABLE t (a UUID, b INET6, c INET4, d JSON, e VARCHAR(10) COMPRESSED=zlib CHARACTER SET latin1, f BLOB COMPRESSED)",
			"ddl; create d.t replace rows (a uuid, b inet6, c inet4, d longtext charset=utf8mb4 collate=utf8mb4_bin, " +
				"e varchar(10) /*M!100301 COMPRESSED*/ charset=latin1, f blob /*M!100301 COMPRESSED*/)",
		},
		{"CREATE TABLE t (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, " +
			"PERIOD FOR SYSTEM_TIME(s,e)) WITH SYSTEM VERSIONING", "ddl; create d.t (a int, s timestamp(6), e timestamp(6))"},
		{
			"CREATE TABLE t (a INT DEFAULT nextval(s), VECTOR INDEX (v) M=8, v VECTOR(3) NOT NULL) ENGINE=InnoDB `page_compressed`=1",
			"ddl; create d.t (a int, v vector(3))",
		},
		{"CREATE TABLE t (a INT) ENGINE=InnoDB `page_compressed` 1", "ddl; create d.t rows unclear"},
		{
			"CREATE TABLE t (a INT, VECTOR INDEX (v) M=8, v VECTOR(3) NOT NULL) ENGINE=InnoDB page_compressed=1 DEFAULT COLLATE=uca1400_ai_ci",
			"ddl; create d.t (a int, v vector(3)) collate=uca1400_ai_ci",
		},
	})
	check(t, Session{MariaDB: true, SQLMode: modeOracle}, []example{
		{"CREATE TABLE t (a DATE, b VARCHAR2(5))", "ddl; create d.t (a, b)"},
	})
	check(t, Session{SQLMode: modeRealAsFloat},
		[]example{{"CREATE TABLE t (a REAL, b JSON, c UUID)", "ddl; create d.t (a float, b json, c)"}})
}

func TestAlterTable(t *testing.T) {
	checkBoth(t, []example{
		{"ALTER TABLE t ADD c INT", "ddl; alter d.t [add c int]"},
		{
			"ALTER TABLE `s`.`t` ADD COLUMN `c` int(11) NOT NULL DEFAULT '0' COMMENT 'after x' AFTER `b`, ADD d DATETIME(3) FIRST",
			"ddl; alter s.t [add c int after b] [add d datetime(3) first]",
		},
		{
			"ALTER TABLE t ADD COLUMN (a INT, b VARCHAR(5), INDEX (a), CONSTRAINT CHECK (a > 0))",
			"ddl; alter d.t [add a int] [add b varchar(5)]",
		},
		{
			"ALTER TABLE t DROP a, DROP COLUMN `b`, DROP PRIMARY KEY, DROP KEY k, DROP INDEX i, DROP FOREIGN KEY f, DROP CHECK c, DROP CONSTRAINT d",
			"ddl; alter d.t [drop a] [drop b]",
		},
		{
			"ALTER TABLE t CHANGE a b BIGINT UNSIGNED NOT NULL AFTER c, MODIFY COLUMN d TEXT FIRST, CHANGE COLUMN `x y` `z` BLOB",
			"ddl; alter d.t [change a: b bigint unsigned after c] [change d: d text first] [change x y: z blob]",
		},
		{
			"ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, RENAME INDEX i TO j, RENAME KEY k TO l",
			"ddl; alter d.t [rename a: b] [rename b: a]",
		},
		{"ALTER TABLE t RENAME TO s.u", "ddl; alter d.t; rename d.t -> s.u"},
		{"ALTER TABLE t ADD c INT, RENAME u", "ddl; alter d.t [add c int]; rename d.t -> d.u"},
		{"ALTER TABLE t RENAME AS u, ALGORITHM=INPLACE, LOCK=NONE", "ddl; alter d.t; rename d.t -> d.u"},
		{"ALTER TABLE t RENAME TO u, RENAME TO v", "ddl; alter d.t; rename d.t -> d.v"},
		{"ALTER TABLE t RENAME = `u`", "ddl; alter d.t; rename d.t -> d.u"},
		{
			"ALTER TABLE t ADD INDEX (a), ADD UNIQUE KEY u (b, c), ADD CONSTRAINT x PRIMARY KEY (a), ADD FULLTEXT (c), ADD FOREIGN KEY (a) REFERENCES o (a)",
			"ddl; alter d.t",
		},
		{
			"ALTER TABLE t ALTER COLUMN a SET DEFAULT (1), ALTER b DROP DEFAULT, ALTER INDEX i INVISIBLE, ENGINE=InnoDB, FORCE, AUTO_INCREMENT 5, COMMENT 'a, DROP b'",
			"ddl; alter d.t",
		},
		{"ALTER TABLE t ENGINE = InnoDB ROW_FORMAT=DYNAMIC, KEY_BLOCK_SIZE 8", "ddl; alter d.t"},
		{"ALTER TABLE t COMMENT 'x', ENGINE=Blackhole", "ddl; alter d.t rows"},
		{"ALTER TABLE t ENGINE 'MRG_MyISAM' UNION=(a,b)", "ddl; alter d.t rows"},
		{"ALTER TABLE t UNION (`a`, s.b) INSERT_METHOD=LAST", "ddl; alter d.t rows"},
		{"ALTER TABLE t ADD COLUMN engine INT, ADD `union` INT", "ddl; alter d.t [add engine int] [add union int]"},
		{"ALTER TABLE t ORDER BY a, b DESC", "ddl; alter d.t"},
		{"ALTER TABLE t DISABLE KEYS", "ddl; alter d.t"},
		{
			"ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
			"ddl; alter d.t convert charset=utf8mb4 collate=utf8mb4_bin",
		},
		{"ALTER TABLE t CONVERT TO CHARSET DEFAULT", "ddl; alter d.t convert charset=default"},
		{"ALTER TABLE t DEFAULT CHARACTER SET = latin1, ADD c CHAR(3)", "ddl; alter d.t [add c char(3)] charset=latin1"},
		{"ALTER TABLE t COLLATE latin1_bin", "ddl; alter d.t collate=latin1_bin"},
		{"ALTER TABLE t DROP PARTITION p0, p1", "ddl; alter d.t rows"},
		{"ALTER TABLE t TRUNCATE PARTITION ALL", "ddl; alter d.t rows"},
		{"ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (5))", "ddl; alter d.t"},
		{
			"ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION a VALUES IN (1), PARTITION b VALUES IN (2))",
			"ddl; alter d.t",
		},
		{"ALTER TABLE t EXCHANGE PARTITION p WITH TABLE s.u WITHOUT VALIDATION", "ddl; alter d.t rows; write s.u rows"},
		{"ALTER TABLE t PARTITION BY KEY (a) PARTITIONS 4", "ddl; alter d.t"},
		{"ALTER TABLE t ADD c INT PARTITION BY HASH (c) PARTITIONS 4", "ddl; alter d.t [add c int]"},
		{"ALTER TABLE t REMOVE PARTITIONING", "ddl; alter d.t"},
		{"ALTER TABLE t IMPORT TABLESPACE", "ddl; alter d.t rows"},
		{"ALTER TABLE t", "ddl; alter d.t"},
		{"ALTER TABLE t FROB a", "ddl; alter d.t unclear"},
		{"ALTER TABLE t ADD c INT, 5", "ddl; alter d.t unclear"},
		{"ALTER TABLE t ADD", "ddl; alter d.t unclear"},
		{"ALTER TABLE", "ddl; unclear in d"},
	})
}

func TestAlterTableOfMariaDB(t *testing.T) {
	check(t, Session{MariaDB: true}, []example{
		{
			"ALTER ONLINE IGNORE TABLE IF EXISTS t WAIT 5 ADD COLUMN IF NOT EXISTS c INT AFTER a, DROP COLUMN IF EXISTS d, MODIFY IF EXISTS e INT, " +
				"CHANGE COLUMN IF EXISTS f g INT, RENAME COLUMN IF EXISTS h TO i",
			"ddl; alter d.t if rows [add if c int after a] [drop if d] [change if e: e int] [change if f: g int] [rename if h: i]",
		},
		{"ALTER TABLE t NOWAIT ADD SYSTEM VERSIONING", "ddl; alter d.t"},
		{"ALTER TABLE t DROP SYSTEM VERSIONING, DROP PERIOD FOR p", "ddl; alter d.t"},
		{
			"ALTER TABLE t DROP PERIOD IF EXISTS FOR p, ADD PERIOD IF NOT EXISTS FOR q(a,b), DROP COLUMN period, ADD period INT",
			"ddl; alter d.t [drop period] [add period int]",
		},
		{"ALTER TABLE t ENCRYPTED='yes' `encryption_key_id`=1, ADD a INT", "ddl; alter d.t [add a int]"},
		{"ALTER TABLE t `option` 1, ADD a INT", "ddl; alter d.t unclear"},
		{
			"ALTER TABLE t ADD PERIOD FOR p(a,b), ADD CONSTRAINT IF NOT EXISTS c CHECK (1), ADD INDEX IF NOT EXISTS (a)",
			"ddl; alter d.t",
		},
		{"ALTER TABLE t CONVERT PARTITION p TO TABLE u", "ddl; alter d.t rows; create like d.u -> d.t rows"},
		{"ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)", "ddl; alter d.t rows; drop d.u rows"},
		{"ALTER TABLE t page_compressed=1 ADD c UUID", "ddl; alter d.t [add c uuid]"},
		{"ALTER TABLE t ADD c TIMESTAMP(6) AS ROW START", "ddl; alter d.t [add c timestamp(6)]"},
	})
}

func TestTypesDependOnTheCharacterSet(t *testing.T) {
	for _, e := range []struct{ sql, charset, want string }{
		{"varchar(10)", "utf8mb4", "varchar(10)"},
		{"varchar(10)", "binary", "varbinary(10)"},
		{"char(3)", "binary", "binary(3)"},
		{"text", "binary", "blob"},
		{"enum('a')", "binary", "enum('a')"},
		{"text(63)", "utf8mb4", "tinytext"},
		{"text(64)", "utf8mb4", "text"},
		{"text(64)", "latin1", "tinytext"},
		{"text(21846)", "utf8mb3", "mediumtext"},
		{"text(5000000)", "utf8mb4", "longtext"},
		{"text(5)", "", "?"},
		{"text(5)", "frob", "?"},
		{"text", "", "text"},
		{"varchar(16383)", "utf8mb4", "varchar(16383)"},
		{"varchar(16384)", "utf8mb4", "?"},
		{"int", "frob", "int"},
		{"frob", "latin1", "?"},
	} {
		typ, ok := ParseType(e.sql, false)
		if !ok {
			t.Fatalf("%s cannot be read", e.sql)
		}
		got, ok := typ.In(e.charset)
		if !ok {
			got = "?"
		}
		if got != e.want {
			t.Errorf("%s in %s: got %s, want %s", e.sql, e.charset, got, e.want)
		}
	}
}

func TestCollationsTellTheirCharacterSet(t *testing.T) {
	for collation, want := range map[string]string{
		"utf8mb4_0900_ai_ci": "utf8mb4", "utf8_general_ci": "utf8mb3", "utf8mb3_bin": "utf8mb3", "binary": "binary",
		"latin1_swedish_ci": "latin1", "uca1400_ai_ci": "", "": "", "frob_ci": "",
	} {
		if got := CharsetOf(collation); got != want {
			t.Errorf("%s: got %q, want %q", collation, got, want)
		}
	}
}

func TestForeignKeysThatAreMadeAndDropped(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE TABLE t (id INT, FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)":        "[d.p] []",
		"CREATE TABLE x.t (id INT REFERENCES `p` (`id`) on update set null ON DELETE CASCADE)": "[x.p] []",
		"CREATE TABLE x.t (id INT, FOREIGN KEY (id) REFERENCES y.p (id) ON DELETE SET NULL)":   "[y.p] []",
		"CREATE TABLE t (id INT REFERENCES p (id) ON DELETE RESTRICT, b INT REFERENCES q (b))": "[] []",
		"CREATE TABLE t (id INT REFERENCES p (id), s TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)":   "[] []",
		"CREATE TABLE t (id INT COMMENT 'REFERENCES p ON DELETE CASCADE')":                     "[] []",
		"CREATE TABLE t LIKE p": "[] []",
		"ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p(a) MATCH FULL ON UPDATE CASCADE, DROP a":  "[d.p] []",
		"ALTER TABLE t DROP FOREIGN KEY `f`, DROP CONSTRAINT IF EXISTS g, DROP INDEX h, DROP i":   "[] [f g]",
		"ALTER TABLE t ADD x INT /*!50000 REFERENCES p (id) */ ON DELETE CASCADE, RENAME TO u":    "[d.p] []",
		"ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p(a) ON DELETE NO ACTION ON UPDATE CASCADE": "[d.p] []",
	} {
		st := Parse([]byte(sql), &Session{Schema: []byte("d")})
		f := st.Actions[0].ForeignKeys
		if got := fmt.Sprint(f.Parents, f.Dropped); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
}
