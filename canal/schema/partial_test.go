package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
)

// unsigned makes columns of a TABLE_MAP unsigned.
func unsigned(m *binlog.TableMap, columns ...int) *binlog.TableMap {
	m.HasSignedness = true
	for _, c := range columns {
		m.Columns[c].Unsigned = true
	}
	return m
}

// widths returns what a definition says of the columns: the width that ZEROFILL fills up to, or ? if it is not known.
func widths(d *binlog.Definition, err error) string {
	if err != nil {
		return err.Error()
	}
	var out []string
	for i := range d.Columns {
		w := fmt.Sprint(d.Columns[i].Zerofill)
		if d.Columns[i].Unknown != nil {
			w = "?"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

// Under binlog_row_metadata=FULL names and signs stand in the binlog, and zero-filling does not: with statements
// between the rows and the look at the table it is what it was, or not known.
func TestZerofillIsWhatItWasOrNotKnown(t *testing.T) {
	zero, plain := "int(4) unsigned zerofill", "int unsigned"
	rows := func() *binlog.TableMap { return unsigned(named(tableMap("a", long, long, long), "id", "c", "e"), 1, 2) }
	for _, e := range []struct {
		now   string // the types of id, c and e, or other columns as name=type
		since []string
		want  string
	}{
		{"int " + zero + "," + plain, []string{"COMMIT"}, "0 4 0"},
		{"id=int,c=" + zero, []string{"ALTER TABLE a DROP COLUMN e"}, "0 4 ?"},
		{"id=int,c=int", []string{"ALTER TABLE a MODIFY c INT, DROP COLUMN e"}, "0 ? ?"},
		{"id=int,c=int,e=" + plain, []string{"ALTER TABLE a MODIFY COLUMN c INT"}, "0 ? 0"},
		{"id=int,c=" + zero + ",e=" + plain + ",f=int", []string{"ALTER TABLE a ADD f INT"}, "0 4 0"},
		{"id=int,x=" + zero + ",e=" + plain, []string{"ALTER TABLE a RENAME COLUMN c TO x"}, "0 4 0"},
		{"id=int,e=" + zero + ",c=" + plain, []string{"ALTER TABLE a RENAME COLUMN c TO e, RENAME COLUMN e TO c"}, "0 4 0"},
		{"id=int,x=" + zero + ",e=" + plain, []string{"ALTER TABLE a CHANGE c x INT(4) ZEROFILL"}, "0 ? 0"},
		{
			"id=int,c=" + zero + ",e=" + plain,
			[]string{"ALTER TABLE a DROP c", "ALTER TABLE a ADD c INT(4) ZEROFILL"},
			"0 ? 0",
		},
		{"id=int,c=" + zero + ",e=" + plain, []string{"ALTER TABLE a DROP c, ADD c INT(4) ZEROFILL"}, "0 ? 0"},
		{"id=int,c=" + zero + ",e=" + plain, []string{"ALTER TABLE a MODIFY IF EXISTS c INT(4) ZEROFILL"}, "0 ? 0"},
		{"id=int,c=" + zero + ",e=" + plain, []string{"ALTER TABLE a ADD IF NOT EXISTS f INT"}, "0 4 0"},
		{"id=int,c=" + zero + ",e=" + plain, []string{"ALTER TABLE a CONVERT TO CHARACTER SET latin1"}, "0 4 0"},
		{"", []string{"ALTER TABLE a ADD f INT", "DROP TABLE a"}, "0 ? ?"},
		{
			"id=int,c=" + zero + ",e=" + plain,
			[]string{"DROP TABLE a", "CREATE TABLE a (id INT, c INT(4) ZEROFILL, e INT UNSIGNED)"},
			"0 ? ?",
		},
		{"id=int,c=" + zero + ",e=" + plain, []string{"RENAME TABLE a TO c, _a_gho TO a"}, "0 ? ?"},
		{"id=int,c=" + zero + ",e=" + plain, []string{"ALTER TABLE a FROB"}, "0 ? ?"},
		{"id=int,c=" + zero + ",e=" + plain, []string{"FROB"}, "0 ? ?"},
		{"id=int,c=bigint unsigned,e=" + plain, []string{"COMMIT"}, "0 ? ?"}, // altered without a trace
	} {
		f := &fakeSource{tables: map[string][][3]string{}, log: e.since, mariaDB: true}
		if e.now != "" {
			now := strings.ReplaceAll(e.now, "int "+zero, "id=int,c="+zero)
			now = strings.ReplaceAll(now, zero+","+plain, zero+",e="+plain)
			for _, c := range strings.Split(now, ",") {
				name, typ, _ := strings.Cut(c, "=")
				f.tables["shop.a"] = append(f.tables["shop.a"], [3]string{name, typ, ""})
			}
		}
		tr := tracker(t, f)
		if got := widths(resolve(t, f, tr, 0, rows())); got != e.want {
			t.Errorf("%q, now %s: got %s, want %s", e.since, e.now, got, e.want)
		}
		scans := f.scans
		saved, err := Decode(tr.Encode(), tr.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := widths(tr.Describe(rows())); got != e.want || f.scans != scans {
			t.Errorf("%q, again: %s, want %s", e.since, got, e.want)
		}
		if got := widths(resolve(t, f, saved, 0, rows())); got != e.want {
			t.Errorf("%q, after a restart: %s, want %s", e.since, got, e.want)
		}
	}
}

// What is known of some columns is followed over statements, and saved.
func TestColumnsThatAreKnownByNameAreFollowed(t *testing.T) {
	f := &fakeSource{tables: map[string][][3]string{}, mariaDB: true, log: []string{
		"ALTER TABLE a MODIFY c INT(3) ZEROFILL", "ALTER TABLE a RENAME COLUMN c TO x",
		"ALTER TABLE a ADD c INT(6) ZEROFILL, DROP e", "DROP TABLE a",
	}}
	tr := tracker(t, f)
	for i, e := range []struct {
		names string
		want  string
	}{{"id c e", "0 ? ?"}, {"id c e", "0 3 ?"}, {"id x e", "0 3 ?"}, {"id x c", "0 3 6"}} {
		m := unsigned(named(tableMap("a", long, long, long), strings.Fields(e.names)...), 1, 2)
		d, err := tr.Describe(m)
		if errors.Is(err, ErrDoubt) {
			d, err = resolve(t, f, tr, uint64(i), m)
		}
		if got := widths(d, err); got != e.want {
			t.Errorf("before %s: %s, want %s", f.log[i], got, e.want)
		}
		if tr, err = Decode(tr.Encode(), tr.o); err != nil {
			t.Fatal(err)
		}
		apply(f, tr, f.log[i])
	}
}

// The server is asked once about what it cannot know, until something changes.
func TestWhatCannotBeKnownIsNotAskedAgain(t *testing.T) {
	f := &fakeSource{tables: map[string][][3]string{}, log: []string{"DROP TABLE a"}}
	tr := tracker(t, f)
	m := tableMap("a", long)
	if _, err := resolve(t, f, tr, 0, m); !errors.Is(err, ErrUnknownSchema) {
		t.Fatal(err)
	}
	apply(f, tr, "ALTER TABLE b ADD x INT", "CREATE TABLE z (x INT)")
	if _, err := tr.Describe(m); !errors.Is(err, ErrUnknownSchema) || errors.Is(err, ErrDoubt) {
		t.Errorf("the same again: %v", err)
	}
	for what, change := range map[string]func(){
		"other columns":    func() { m = tableMap("a", long, long) },
		"a statement":      func() { apply(f, tr, "ALTER TABLE a ADD x INT") },
		"a new connection": tr.Retry,
	} {
		change()
		if _, err := tr.Describe(m); !errors.Is(err, ErrDoubt) {
			t.Errorf("after %s: %v", what, err)
		}
		if _, err := resolve(t, f, tr, 0, m); !errors.Is(err, ErrUnknownSchema) {
			t.Fatal(err)
		}
	}
	apply(f, tr, "DROP TABLE a", "CREATE TABLE a (id INT)")
	if d, err := tr.Describe(tableMap("a", long)); err != nil || names(d) != "id" {
		t.Errorf("after a definition that is known: %v", err)
	}
}

// The labels of an ENUM or SET that are ASCII are the same in every character set, and that of a schema is asked for
// even if it has no table yet.
func TestTablesThatAreMadeAndDroppedAreFollowed(t *testing.T) {
	m := tableMap("a", long, binlog.ColumnLongLong, binlog.ColumnSet)
	m.Columns[2].Meta = 1
	text := tableMap("b", varchar)
	for _, asked := range []bool{false, true} {
		f := &fakeSource{tables: map[string][][3]string{}, mariaDB: true}
		tr := tracker(t, f)
		if asked {
			if _, err := resolve(t, f, tr, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		apply(f, tr, "CREATE TABLE a (c0 int, c1 bigint, c2 set('sweet'), key (c2,c1,c0), key(c0)) engine=myisam partition "+
			"by hash (c0) partitions 5",
			"CREATE TABLE b (v VARCHAR(20))")
		if d, err := tr.Describe(m); err != nil || names(d) != "c0 c1 c2" || d.Columns[2].Labels[0] != "sweet" {
			t.Errorf("asked %t: %v", asked, err)
		}
		if _, err := tr.Describe(text); (err == nil) != asked {
			t.Errorf("asked %t: a text: %v", asked, err)
		}
	}
}
