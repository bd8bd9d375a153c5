package canal

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// computedTables have a column v that is three times a, and one s that is five times a.
var computedTables = map[string]string{
	"key":        "id int primary key, a int, v int generated always as (a*3) virtual, s int generated always as (a*5) stored",
	"index":      "id int primary key, a int, v int generated always as (a*3) virtual, s int as (a*5) stored, key(v), key(s)",
	"unique":     "id int primary key, a int, v int generated always as (a*3) virtual unique, s int as (a*5) stored unique",
	"no_key":     "id int, a int, v int generated always as (a*3) virtual, s int generated always as (a*5) stored",
	"unique_a":   "id int, a int not null unique, v int generated always as (a*3) virtual, s int as (a*5) stored",
	"with_text":  "id int primary key, a int, v text generated always as (a*3) virtual, s text generated always as (a*5) stored",
	"with_check": "id int primary key, a int, v int generated always as (a*3) virtual, s int as (a*5) stored, check (v < 1000)",
}

// computedScript changes a table TAB in every way.
var computedScript = []string{
	"insert into TAB (id,a) values (1,2),(2,100)", "update TAB set a=7 where id=1", "update TAB set a=8 where v=21",
	"update TAB set a=9 where s=40", "update TAB x join TAB y on x.id=y.id set x.a=10 where y.v=27",
	"insert into TAB (id,a) values (1,10) on duplicate key update a=11", "replace into TAB (id,a) values (2,101)",
	"delete from TAB where v>300", "delete from TAB",
}

// What an image says of a column that an expression makes is what it was, whatever the server logs of it; or the column
// is absent. No server may have an update of one look as if it had left the column alone.
func TestAComputedColumnIsWhatItWasOrAbsent(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s)
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			for _, image := range rowImages(t, s) {
				statements := []string{"set session binlog_row_image=" + image}
				for name, columns := range computedTables {
					table := fmt.Sprintf("%s.%s_%s", d.name, name, image)
					statements = append(statements, "create table "+table+" ("+columns+")")
					for _, q := range computedScript {
						statements = append(statements, strings.ReplaceAll(q, "TAB", table))
					}
				}
				d.exec(append(statements, "set session binlog_row_image=default")...)
			}
			d.exec("create table DB.last (id int)", "insert into DB.last values (1)")
			r.await(t, "the last row", func() bool {
				return len(r.rows) > 0 && strings.HasPrefix(r.rows[len(r.rows)-1].text, "insert "+d.name+".last")
			})
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			checked := 0
			for _, row := range r.texts() {
				checked += checkComputed(t, row)
			}
			if checked == 0 {
				t.Error("no image has a computed column")
			}
		})
	}
}

// rowImages are the values of binlog_row_image that the server has.
func rowImages(t *testing.T, s *testbed.Server) []string {
	if s.Flavor != testbed.FlavorMariaDB {
		return []string{"full", "noblob", "minimal"}
	}
	return strings.Split(strings.ToLower(s.QueryText(t, "SELECT ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES "+
		"WHERE VARIABLE_NAME = 'BINLOG_ROW_IMAGE'")), ",")
}

// checkComputed holds the computed columns of a row's images against the column that they are made of, and returns how
// many it has seen.
func checkComputed(t *testing.T, row string) (seen int) {
	t.Helper()
	_, images, _ := strings.Cut(row, " (")
	for image := range strings.SplitSeq(images, "->") {
		of := map[string]string{}
		for pair := range strings.SplitSeq(strings.Trim(image, "()"), ",") {
			name, value, _ := strings.Cut(pair, "=")
			of[name] = value
		}
		a, err := strconv.Atoi(of["a"])
		for name, times := range map[string]int{"v": 3, "s": 5} {
			value, there := of[name]
			if !there || value == "?" || err != nil {
				continue
			}
			seen++
			if value != strconv.Itoa(a*times) {
				t.Errorf("%s: %s of %s is %s", row, name, image, value)
			}
		}
	}
	return seen
}
