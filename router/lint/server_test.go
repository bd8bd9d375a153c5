package lint

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// What the page about mappings says of SQL is asked of the servers: which filters are the functions that they are
// called after, and what the names of all their collations mean.
func TestTheServersAgree(t *testing.T) {
	t.Parallel()
	functions := map[string]string{
		"crc32": "crc32(?)", "hex|upper": "hex(?)", "base64": "to_base64(?)", "sha256": "sha2(?, 256)",
	}
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		db := testbed.MySQL(t).DB()
		filtersAreFunctions(t, db, functions)
		collationsMeanTheirNames(t, db)
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		db := testbed.MariaDB(t).DB()
		filtersAreFunctions(t, db, functions)
		// MySQL 9.6 and later have these in a component only.
		filtersAreFunctions(t, db, map[string]string{"md5": "md5(?)", "sha1": "sha1(?)"})
		collationsMeanTheirNames(t, db)
	})
}

func keysOf(t *testing.T, template string, v event.Value) []string {
	t.Helper()
	r, table := mustNew(t, spectest.Keys(template)), spectest.Product()
	if _, err := r.Bind(table); err != nil {
		t.Fatal(err)
	}
	return keys(r, table, v)
}

func filtersAreFunctions(t *testing.T, db *sql.DB, functions map[string]string) {
	for _, x := range []string{"", "MySQL", "a b/ü", "-17", "日本"} {
		for filter, function := range functions {
			var want string
			if err := db.QueryRow("select cast("+function+" as char)", x).Scan(&want); err != nil {
				t.Fatal(err)
			}
			if got := keysOf(t, "{name|"+filter+"}", text(x)); got[0] != want {
				t.Errorf("%q|%s is %q, %s is %q", x, filter, got[0], function, want)
			}
		}
	}
	for _, n := range []int64{0, 17, -17, 1<<63 - 1, -1 << 63} {
		for _, by := range []int{1, 2, 7, 1e18} {
			var want string
			if err := db.QueryRow(fmt.Sprintf("select cast(mod(%d, %d) as char)", n, by)).Scan(&want); err != nil {
				t.Fatal(err)
			}
			if got := keysOf(t, fmt.Sprintf("{category_id|mod:%d}", by), number(n)); got[0] != want {
				t.Errorf("%d|mod:%d is %q, MOD is %q", n, by, got[0], want)
			}
		}
	}
}

func collationsMeanTheirNames(t *testing.T, db *sql.DB) {
	type collation struct{ name, charset string }
	rows, err := db.Query(`select collation_name, character_set_name from information_schema.collation_character_set_applicability
		where collation_name in (select collation_name from information_schema.collations)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []collation
	for rows.Next() {
		var c collation
		if err := rows.Scan(&c.name, &c.charset); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if len(all) < 200 || rows.Err() != nil {
		t.Fatalf("only %d collations, %v", len(all), rows.Err())
	}
	for _, c := range all {
		var caseless, padded bool
		q := fmt.Sprintf("select convert('a' using %[1]s) = convert('A' using %[1]s) collate `%[2]s`, convert('a' using "+
			"%[1]s) = convert('a ' using %[1]s) collate `%[2]s`", c.charset, c.name)
		if err := db.QueryRow(q).Scan(&caseless, &padded); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if caseInsensitive(c.name) != caseless || padSpace(c.name) != padded {
			t.Errorf("%s: taken for case-insensitive %v, padded %v, and is %v, %v", c.name, caseInsensitive(c.name),
				padSpace(c.name), caseless, padded)
		}
	}
}
