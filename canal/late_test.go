package canal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// What a number prints depends on what stands in no binlog: ZEROFILL and its width, the decimals of FLOAT(M,D). Read
// late, after the table was altered or dropped, it prints as it was; or, by a reader that was not there before, the
// table is in doubt. The rows in between come whatever they are.
func TestNumbersReadLatePrintAsTheyWereOrAreInDoubt(t *testing.T) {
	types := []string{
		"int zerofill", "int(25) zerofill", "float(7,3)", "decimal(8,2) zerofill", "double(9,2) zerofill",
		"bigint unsigned",
	}
	for _, m := range testbed.Some(t, metadata) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			var columns []string
			for i, typ := range types {
				columns = append(columns, fmt.Sprintf("c%d %s", i, typ))
			}
			def := " (id int primary key, " + strings.Join(columns, ", ") + ", e int)"
			d := newDatabase(t, s, "create table DB.t"+def, "create table DB.u (id int primary key)")
			rec := newRecorder()
			rec.named = true
			live := reading(t, rec, d.options())
			live.await(t, "a first mark", func() bool { return len(live.marks) > 0 })
			begin := live.Position()
			row := "(1,1,2,1.5,3,4,5,6)"
			value := "c0=0000000001,c1=0000000000000000000000002,c2=1.500,c3=000003.00,c4=000004.00,c5=5"
			d.exec("insert into DB.t values "+row, "alter table DB.t drop column e",
				"insert into DB.t values (2,1,2,1.5,3,4,5)",
				"alter table DB.t modify c0 int, modify c1 int, modify c2 float, modify c3 int, modify c4 double",
				"insert into DB.t values (3,1,2,1.5,3,4,5)", "insert into DB.u values (1)", "drop table DB.t",
				"create table DB.t"+def, "insert into DB.t values "+row, "alter table DB.t add column f int first",
				"drop table DB.t",
				"insert into DB.u values (2)")
			want := []string{
				"insert DB.t (id=1," + value + ",e=6)", "insert DB.t (id=2," + value + ")",
				"insert DB.t (id=3,c0=1,c1=2,c2=1.5,c3=3,c4=4,c5=5)",
				"insert DB.u (id=1)", "insert DB.t (id=1," + value + ",e=6)", "insert DB.u (id=2)",
			}
			live.wantRows(d, want...)
			if err := live.stop(); err != nil {
				t.Fatal(err)
			}
			// Again, late: from the checkpoint of a first start, and by one who knows nothing from before.
			for _, known := range []bool{true, false} {
				for i := range live.ends {
					p := begin
					p.GTIDs = begin.GTIDs.Clone()
					for _, e := range live.ends[:i] {
						p.Advance(e)
					}
					if !known {
						p.State = nil
					}
					rec := startAt(p)
					rec.named = true
					o := d.options()
					o.UntilCaughtUp, o.Doubts = true, newBook(t)
					late := reading(t, rec, o)
					if err := late.wait(); err != nil {
						t.Fatalf("from %s: %v", p.String(), err)
					}
					tables, _ := inDoubt(o.Doubts)
					missing := compareLate(t, late.texts(), tail(live.texts(), len(live.rows)-rowsBefore(live.recorder, i)))
					if doubted := slices.Equal(tables, []string{d.name + ".t"}); doubted != missing || missing && known || !doubted &&
						tables != nil {
						t.Errorf("known %t, from end %d: in doubt %q, missing %t", known, i, tables, missing)
					}
				}
			}
		})
	}
}

// rowsBefore returns how many of the rows came before the i-th end.
func rowsBefore(r *recorder, i int) (n int) {
	if i == 0 {
		return 0
	}
	for _, c := range r.rows {
		if c.version.File < fileNumber(r, i) || c.version.File == fileNumber(r, i) && c.version.Pos < r.ends[i-1].Pos {
			n++
		}
	}
	return n
}

func fileNumber(r *recorder, i int) uint32 {
	p, err := binlogPosOf(r.ends[i-1].File, r.ends[i-1].Pos)
	if err != nil {
		panic(err)
	}
	return p.number
}

// compareLate compares rows that were read late with what they were. A row may be missing, or a value be absent, but
// none may be another one. It reports whether any is missing.
func compareLate(t *testing.T, got, want []string) (missing bool) {
	t.Helper()
	for _, w := range want {
		if len(got) > 0 && got[0] == w {
			got = got[1:]
			continue
		}
		missing = true
		if len(got) > 0 && sameButAbsent(got[0], w) {
			got = got[1:]
		}
	}
	if len(got) > 0 {
		t.Errorf("a row that there was not: %s, of %v", got[0], want)
	}
	return missing
}

func sameButAbsent(got, want string) bool {
	g, w := strings.Split(got, ","), strings.Split(want, ",")
	if len(g) != len(w) || !strings.Contains(got, "=?") {
		return false
	}
	for i := range g {
		name, _, _ := strings.Cut(w[i], "=")
		if g[i] != w[i] && strings.TrimSuffix(g[i], ")") != name+"=?" {
			return false
		}
	}
	return true
}

// A table that is gone by the time that somebody looks is followed if its statements are, and else it is in doubt; all
// else is read on.
func TestTablesThatAreGoneStopNoOther(t *testing.T) {
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.u (id int primary key)")
			begin := here(t, s)
			// A schema without a wanted table at the start, and one with one.
			other := newDatabase(t, s)
			o := d.options()
			o.Wanted = func(schema, table string) bool { return schema == d.name || schema == other.name }
			rec := newRecorder()
			first := reading(t, rec, o)
			first.await(t, "a first mark", func() bool { return len(first.marks) > 0 })
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, x := range []*database{d, other} {
				engine := "innodb"
				partition := " partition by hash (c0) partitions 5"
				if x.Flavor == "mariadb" {
					engine = "myisam"
				}
				x.exec("create table DB.t1 (c0 int, c1 bigint, c2 set('sweet'), key (c2,c1,c0), key(c0)) engine="+engine+partition,
					"insert into DB.t1 values (1,2,'sweet')", "drop table DB.t1",
					"create table DB.t1 (e enum('a','b','c') default 'b', v varchar(20), s set('x','y') character set latin1)",
					"insert into DB.t1 values ('c','w','x,y')", "drop table DB.t1",
					"create table DB.t1 select 'x' as a, nullif(1,1) as n, cast('y' as char(5)) as c", "drop table DB.t1")
				want = append(want, "insert "+x.name+".t1 (1,2,sweet)", "insert "+x.name+".t1 (c,w,x,y)", "insert "+x.name+
					".t1 (x,NULL,y)")
			}
			d.exec("insert into DB.u values (1)")
			want = append(want, "insert DB.u (1)")
			o.UntilCaughtUp, o.Doubts = true, newBook(t)
			again := startAt(first.pos)
			r := reading(t, again, o)
			if err := r.wait(); err != nil {
				t.Fatal(err)
			}
			r.wantRows(d, want...)
			if tables, messages := inDoubt(o.Doubts); tables != nil {
				t.Errorf("in doubt: %q", messages)
			}
			// Made before anything was known, and gone since.
			o.Doubts = newBook(t)
			begin.State = nil
			blind := reading(t, startAt(begin), o)
			if err := blind.wait(); err != nil {
				t.Fatal(err)
			}
			if got := blind.texts(); len(got) == 0 || got[len(got)-1] != "insert "+d.name+".u (1)" {
				t.Errorf("rows %q", got)
			}
		})
	}
}

// A server's own columns, as that of an index over an expression, are no reason to doubt the others.
func TestHiddenColumnsAreNoDoubtUnderFullMetadata(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id bigint unsigned primary key, c int(4) zerofill, index x ((c + 1)))")
	o := d.options()
	o.Doubts = newBook(t)
	rec := newRecorder()
	r := reading(t, rec, o)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("insert into DB.t values (1,2)", "alter table DB.t add column e int unsigned",
		"insert into DB.t values (2,3,4)")
	r.await(t, "two rows", func() bool { return len(r.rows) == 2 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.texts(), " ")
	if tables, messages := inDoubt(o.Doubts); tables != nil || !strings.Contains(got, "(1,0002") ||
		!strings.Contains(got, "(2,0003") {
		t.Errorf("rows %s, in doubt %q", got, messages)
	}
}

// What MariaDB adds by itself is in the rows, and is marked as none of their values; what a table defines is not,
// though it be INVISIBLE or of the same kind.
func TestColumnsThatTheServerHidesAreMarked(t *testing.T) {
	onMariaDB(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s)
		rec := newRecorder()
		r := reading(t, rec, d.options())
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		d.exec("create table DB.a (id int primary key, b blob unique, v int invisible) with system versioning",
			"insert into DB.a values (1, 'x')",
			"create table DB.b (id int primary key, row_start timestamp(6) generated always as row start invisible, "+
				"row_end timestamp(6) generated always as row end invisible, period for system_time(row_start, row_end)) with system versioning",
			"insert into DB.b (id) values (1)", "create table DB.c (id int, DB_ROW_HASH_1 bigint unsigned)",
			"insert into DB.c values (1, 2)")
		r.await(t, "a row of each table", func() bool { return len(r.rows) == 3 })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		got := map[string]string{}
		for _, table := range r.tables {
			hidden := ""
			for _, c := range table.Columns {
				if c.Hidden {
					hidden += " " + c.Name
				}
			}
			got[table.Name] = hidden
		}
		if want := map[string]string{"a": " row_start row_end DB_ROW_HASH_1", "b": "", "c": ""}; !maps.Equal(got, want) {
			t.Errorf("hidden are %q, want %q", got, want)
		}
	})
}

// The hash that MariaDB keeps of a BLOB with a unique key stands in no definition of the table, and its name in the
// binlog.
func TestHashesOfUniqueBlobsAreNoDoubtUnderFullMetadata(t *testing.T) {
	t.Parallel()
	s := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key, b blob unique)")
	o := d.options()
	o.Doubts = newBook(t)
	rec := newRecorder()
	rec.named = true
	r := reading(t, rec, o)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("insert into DB.t values (1, 'x')", "alter table DB.t add c int", "insert into DB.t values (2, 'y', 3)")
	r.await(t, "two rows", func() bool { return len(r.rows) == 2 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if tables, messages := inDoubt(o.Doubts); tables != nil {
		t.Errorf("in doubt: %q", messages)
	}
	if got := r.texts(); len(got) != 2 || !strings.Contains(got[0], "(id=1,b=x,DB_ROW_HASH_1=") ||
		!strings.Contains(got[1], "(id=2,b=y,c=3,DB_ROW_HASH_1=") {
		t.Errorf("rows %q", got)
	}
}
