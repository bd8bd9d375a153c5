package schema

import (
	"testing"

	"github.com/freshet/freshet/canal/ddl"
)

// rewrites is [Tracker.Rewrites] of table a, on a server of which no table has a column that an expression makes.
func rewrites(tr *Tracker, a *ddl.Alter, typeOf func(string) string) string {
	name, _ := tr.Rewrites(ddl.Name{Schema: "shop", Table: "a"}, a, typeOf, func() (string, error) { return "", nil })
	return name
}

func notKnown(string) string { return "" }

// A type that holds all values of another one, and prints them the same, rewrites none.
func TestATypeThatHoldsAllThatAnotherDidRewritesNothing(t *testing.T) {
	for _, e := range []struct {
		old, now string
		rewrites bool
	}{
		{"int", "int(11)", false},
		{"int", "bigint", false},
		{"bigint", "int", true},
		{"int unsigned", "bigint", false},
		{"int unsigned", "int", true},
		{"int", "int unsigned", true},
		{"int(5) unsigned zerofill", "int(5) unsigned zerofill", false},
		{"int(5) unsigned zerofill", "bigint(5) unsigned zerofill", false},
		{"int(5) unsigned zerofill", "int(6) unsigned zerofill", true},
		{"int unsigned", "int(5) unsigned zerofill", true},
		{"int(5) unsigned zerofill", "bigint", true},
		{"int", "varchar(20)", true},
		{"decimal(5,2)", "decimal(12,2)", false},
		{"decimal(12,2)", "decimal(5,2)", true},
		{"decimal(5,2)", "decimal(6,3)", true},
		{"varchar(5)", "varchar(6)", false},
		{"varchar(6)", "varchar(5)", true},
		{"char(5)", "varchar(5)", false},
		{"varchar(5)", "char(5)", true},
		{"varchar(50)", "text", false},
		{"text", "varchar(50)", true},
		{"text", "longtext", false},
		{"longtext", "text", true},
		{"blob", "mediumblob", false},
		{"text", "blob", true},
		{"varbinary(5)", "varbinary(6)", false},
		{"binary(5)", "binary(6)", true},
		{"enum('a','b')", "enum('a','b','c')", false},
		{"enum('a','b')", "enum('b','a')", true},
		{"set('a')", "set('a','b')", false},
		{"enum('a')", "enum('ab')", true},
		{"datetime", "datetime(3)", true},
		{"date", "datetime", true},
		{"float", "double", true},
		{"float(7,3)", "float(7,3)", false},
		{"json", "json", false},
	} {
		f := &fakeSource{
			tables: now(), log: []string{"ALTER TABLE a MODIFY n " + e.now + " NOT NULL FIRST"}, sqlMode: strictTransTables,
		}
		tr := tracker(t, f)
		st := f.parse(f.log[0])
		if got := rewrites(tr, st.Actions[0].Alter, notKnown); got != "n" {
			t.Errorf("%s: %q is rewritten though nothing is known of it", e.now, got)
		}
		given := func(string) string { return e.old }
		if got := rewrites(tr, st.Actions[0].Alter, given) != ""; got != e.rewrites {
			t.Errorf("%s to %s by the rows' word: %v", e.old, e.now, got)
		}
		apply(f, tr, "CREATE TABLE a (id INT, n "+e.old+")")
		if got := rewrites(tr, st.Actions[0].Alter, notKnown) != ""; got != e.rewrites {
			t.Errorf("%s to %s: %v", e.old, e.now, got)
		}
	}
}

// strictTransTables is STRICT_TRANS_TABLES.
const strictTransTables = 1 << 21

// A session that is not strict makes another value of NULL where a column becomes NOT NULL. In a strict one the
// statement fails.
func TestAColumnThatBecomesNotNullIsRewrittenUnlessTheSessionIsStrict(t *testing.T) {
	for _, e := range []struct {
		clause   string
		sqlMode  uint64
		rewrites string
	}{
		{"MODIFY n INT NOT NULL", 0, "n"},
		{"CHANGE n n INT NOT NULL DEFAULT 5", 0, "n"},
		{"MODIFY n INT PRIMARY KEY", 0, "n"},
		{"ADD PRIMARY KEY (n)", 0, "(of the primary key)"},
		{"ADD CONSTRAINT x PRIMARY KEY (n), ADD m INT", 0, "(of the primary key)"},
		{"ADD UNIQUE KEY (n), ADD `primary` INT", 0, ""},
		{"ADD PRIMARY KEY (n)", strictTransTables, ""},
		{"MODIFY n INT NULL", 0, ""},
		{"MODIFY n INT CHECK (n IS NOT NULL)", 0, ""},
		{"ADD m INT NOT NULL", 0, ""},
		{"MODIFY n INT NOT NULL", strictTransTables, ""},
		{"MODIFY n INT NOT NULL", 1 << 22, ""}, // STRICT_ALL_TABLES
	} {
		f := &fakeSource{tables: now(), sqlMode: e.sqlMode}
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (id INT, n INT)")
		st := f.parse("ALTER TABLE a " + e.clause)
		got := rewrites(tr, st.Actions[0].Alter, notKnown)
		if got != e.rewrites {
			t.Errorf("%s with sql_mode %d: %q, want %q", e.clause, e.sqlMode, got, e.rewrites)
		}
	}
}

// MariaDB gives a TIMESTAMP that becomes NOT NULL the present time for NULL, also in a strict session.
func TestATimestampThatBecomesNotNullIsRewrittenOnMariaDB(t *testing.T) {
	for _, e := range []struct {
		clause   string
		sqlMode  uint64
		rewrites map[bool]string // by whether it is MariaDB
	}{
		{"MODIFY n TIMESTAMP NOT NULL", strictTransTables, map[bool]string{true: "n"}},
		{"MODIFY n TIMESTAMP DEFAULT CURRENT_TIMESTAMP", strictTransTables, map[bool]string{true: "n"}},
		{"MODIFY n TIMESTAMP", 0, map[bool]string{true: "n", false: "n"}},
		{"MODIFY n TIMESTAMP NULL", 0, nil},
		{"MODIFY n TIMESTAMP DEFAULT NULL FIRST", strictTransTables, nil},
		{"ADD m TIMESTAMP NOT NULL", 0, nil},
	} {
		for _, mariaDB := range []bool{true, false} {
			f := &fakeSource{tables: now(), sqlMode: e.sqlMode, mariaDB: mariaDB}
			tr := tracker(t, f)
			apply(f, tr, "CREATE TABLE a (id INT, n TIMESTAMP NULL)")
			got := rewrites(tr, f.parse("ALTER TABLE a " + e.clause).Actions[0].Alter, notKnown)
			if want := e.rewrites[mariaDB]; got != want {
				t.Errorf("%s, MariaDB %v, sql_mode %d: %q, want %q", e.clause, mariaDB, e.sqlMode, got, want)
			}
		}
	}
}

// What an expression gives for a column may be another value once the column has another type, character set or
// collation, though what the column holds is the same: HEX(n), n = 'x'.
func TestWhatAnExpressionMakesOfAColumnIsRewrittenWithIt(t *testing.T) {
	const table = "CREATE TABLE a (id INT, n VARCHAR(9) CHARACTER SET latin1, h VARCHAR(99) AS (HEX(n))) CHARSET latin1"
	const plain = "CREATE TABLE a (id INT, n VARCHAR(9) CHARACTER SET latin1, h VARCHAR(99)) CHARSET latin1"
	for clause, want := range map[string]string{
		"MODIFY n VARCHAR(9) CHARACTER SET utf8mb4":                   "h",
		"MODIFY n VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin": "h",
		"MODIFY id BIGINT":                                              "h",
		"CONVERT TO CHARACTER SET utf8mb4":                              "h",
		"CONVERT TO CHARACTER SET latin1":                               "h",
		"CHANGE n m VARCHAR(9) CHARACTER SET latin1":                    "",
		"MODIFY id INT COMMENT 'x'":                                     "",
		"DEFAULT CHARACTER SET utf8mb4":                                 "",
		"ADD m INT, RENAME COLUMN id TO i, ADD UNIQUE (n), ENGINE=Aria": "",
	} {
		f := &fakeSource{tables: now()}
		a := f.parse("ALTER TABLE a " + clause).Actions[0].Alter
		for statement, want := range map[string]string{table: want, plain: ""} {
			tr := tracker(t, f)
			apply(f, tr, "CREATE DATABASE shop", statement)
			if got := rewrites(tr, a, notKnown); got != want {
				t.Errorf("%s after %s: %q, want %q", clause, statement, got, want)
			}
		}
		// Where the table is not known the server is asked.
		typeOf := func(name string) string { return map[string]string{"id": "int", "n": "varchar(9)"}[name] }
		got, err := tracker(t, f).Rewrites(ddl.Name{Schema: "shop", Table: "a"}, a, typeOf,
			func() (string, error) { return "asked", nil })
		if err != nil || want != "" && got == "" {
			t.Errorf("%s where the table is not known: %q, %v, want %q", clause, got, err, want)
		}
	}
}

// IF EXISTS says that the column may not be there. Then nothing is rewritten, if that is known.
func TestAColumnThatIsNotThereIsNotRewritten(t *testing.T) {
	f := &fakeSource{tables: now(), mariaDB: true, log: []string{"ALTER TABLE a MODIFY COLUMN IF EXISTS z INT FIRST"}}
	tr := tracker(t, f)
	a := f.parse(f.log[0]).Actions[0].Alter
	rewritten := func() string { return rewrites(tr, a, notKnown) }
	if got := rewritten(); got != "z" {
		t.Errorf("of a table of which nothing is known: %q", got)
	}
	apply(f, tr, "CREATE TABLE a (id INT)")
	if got := rewritten(); got != "" {
		t.Errorf("of a table without the column: %q", got)
	}
	apply(f, tr, "DROP TABLE a", "CREATE TABLE a (id INT, z BIGINT)")
	if got := rewritten(); got != "z" {
		t.Errorf("of a table with the column: %q", got)
	}
}
