package charset

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// flavored is a server with a table of all bytes to join.
type flavored struct {
	flavor event.Flavor
	*testbed.Server
}

func servers(t *testing.T) []flavored {
	all := []flavored{{event.MySQL, testbed.SharedMySQL(t)}, {event.MariaDB, testbed.SharedMariaDB(t)}}
	for _, s := range all {
		s.Exec(t, "drop database if exists charset_test", "create database charset_test",
			"create table charset_test.bytes (n int primary key, b varbinary(1))",
			"insert into charset_test.bytes with recursive r(n) as (select 0 union all select n+1 from r where n<255)"+
				" select n, unhex(lpad(hex(n),2,'0')) from r")
	}
	return all
}

// sequences says which sequences of bytes to ask for: for each byte the lowest and highest, and the step.
type sequences [][3]int

// full covers every sequence up to the longest of each character set, of gb18030 only with FRESHET_SOAK set.
func full(name string, longest int) []sequences {
	any, high := [3]int{0, 255, 1}, [3]int{128, 255, 1}
	switch {
	case name == "gb18030":
		step := 7 // all of them take a minute
		if os.Getenv("FRESHET_SOAK") != "" {
			step = 1
		}
		return []sequences{{any}, {high, any}, {{0x81, 0xfe, 1}, {0x30, 0x39, 1}, {0x81, 0xfe, step}, {0x30, 0x39, 1}}}
	case name == "utf8mb3":
		return []sequences{{any}, {high, any}, {{0xe0, 0xef, 1}, {0x80, 0xbf, 1}, {0x80, 0xbf, 1}}}
	case name == "ucs2", name == "utf16", name == "utf16le":
		s := []sequences{{any, any}}
		if longest == 4 {
			s = append(s, sequences{{0xd8, 0xdf, 1}, {0, 255, 15}, {0xd8, 0xdf, 1}, {0, 255, 17}})
		}
		return s
	case name == "utf32":
		return []sequences{{{0, 0, 1}, {0, 0x11, 1}, {0, 255, 1}, {0, 255, 7}}}
	case longest == 3:
		return []sequences{{any}, {high, any}, {{0x8f, 0x8f, 1}, high, any}}
	case longest == 2:
		return []sequences{{any}, {high, any}}
	}
	return []sequences{{any}}
}

// Every sequence of bytes is what the servers say that it is, in every character set.
func TestConversionsAreTheServers(t *testing.T) {
	for _, s := range servers(t) {
		rows, err := s.DB().QueryContext(t.Context(),
			"select character_set_name, maxlen from information_schema.character_sets")
		testbed.Must(t, err)
		sets := map[string]int{}
		for rows.Next() {
			var name string
			var longest int
			testbed.Must(t, rows.Scan(&name, &longest))
			sets[name] = longest
		}
		testbed.Must(t, rows.Err())
		if len(sets) < 40 {
			t.Fatalf("%s has only %d character sets", s.flavor, len(sets))
		}
		for name, longest := range sets {
			if name == "binary" || name == "utf8mb4" { // not converted, whatever it holds
				continue
			}
			c, ok := Find(name, s.flavor)
			if !ok || c.Name() != name || c.MaxBytes() != longest {
				t.Errorf("%s: character set %s with %d bytes: found %+v", s.flavor, name, longest, c)
				continue
			}
			for _, q := range full(name, longest) {
				s.compare(t, c, q)
			}
		}
	}
}

// compare asks for all sequences that q says.
func (s flavored) compare(t *testing.T, c *Charset, q sequences) {
	t.Helper()
	var from, where, bytes []string
	for i, r := range q {
		from = append(from, fmt.Sprintf("charset_test.bytes t%d", i))
		where = append(where, fmt.Sprintf("t%[1]d.n between %[2]d and %[3]d and (t%[1]d.n-%[2]d) %% %[4]d = 0", i, r[0], r[1],
			r[2]))
		bytes = append(bytes, fmt.Sprintf("t%d.b", i))
	}
	in := "concat(" + strings.Join(bytes, ",") + ")"
	rows, err := s.DB().QueryContext(t.Context(), fmt.Sprintf(
		"select hex(%s), hex(convert(convert(%[1]s using %s) using utf8mb4)) from %s where %s",
		in, c.Name(), strings.Join(from, ","), strings.Join(where, " and "),
	))
	testbed.Must(t, err)
	defer rows.Close()
	asked, answered, wrong := 0, 0, 0
	for rows.Next() {
		var h, want sql.NullString
		testbed.Must(t, rows.Scan(&h, &want))
		asked++
		// NULL: no text in this character set, it cannot be in a column. MySQL's eucjpms answers with nothing at all
		// where a character is cut off.
		if !want.Valid || want.String == "" {
			continue
		}
		answered++
		b, err := hex.DecodeString(h.String)
		testbed.Must(t, err)
		got := strings.ToUpper(hex.EncodeToString(c.Append(nil, b)))
		if got != want.String {
			if wrong++; wrong <= 5 {
				t.Errorf("%s: %s %s is %s, want %s", s.flavor, c.Name(), h.String, got, want.String)
			}
		}
	}
	testbed.Must(t, rows.Err())
	if answered == 0 {
		t.Errorf("%s: %s %v: %d asked, none answered", s.flavor, c.Name(), q, asked)
	}
	if wrong > 0 {
		t.Errorf("%s: %s %v: %d of %d wrong", s.flavor, c.Name(), q, wrong, answered)
	}
}

// The collations of the servers are known without asking, and asking gives the same.
func TestCollationsAreTheServers(t *testing.T) {
	for _, s := range servers(t) {
		queries := []string{QueryCollations}
		if s.flavor == event.MariaDB {
			queries = append(queries, QueryCollationsMariaDB)
		}
		n, unknown := 0, 0
		for _, q := range queries {
			rows, err := s.DB().QueryContext(t.Context(), q)
			testbed.Must(t, err)
			for rows.Next() {
				var c Collation
				testbed.Must(t, rows.Scan(&c.ID, &c.Name, &c.Charset))
				n++
				byID, ok := (*Collations)(nil).ByID(c.ID)
				if !ok {
					unknown++
				} else if byID.Charset != c.Charset {
					t.Errorf("%s: collation %+v: known as %+v", s.flavor, c, byID)
				}
				if asked, ok := NewCollations([]Collation{c}).ByName(c.Name); !ok || asked != c {
					t.Errorf("%s: collation %+v: found as %+v", s.flavor, c, asked)
				}
			}
			testbed.Must(t, rows.Err())
		}
		// Another version than those that the list was made of may have a few more.
		if n < 250 || unknown > n/20 {
			t.Errorf("%s: %d of %d collations are not known", s.flavor, unknown, n)
		}
	}
}
