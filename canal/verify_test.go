package canal

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// altered returns the tables of which it is a doubt that a statement in no binlog altered them.
func altered(b *doubt.Book) []string {
	var out []string
	for _, d := range b.List() {
		if d.Cause == alarm.DefinitionChanged {
			out = append(out, strings.Join(d.Tables, " "))
		}
	}
	slices.Sort(out)
	return out
}

// unlogged are statements that are not in the binlog.
func unlogged(statements ...string) []string {
	return append(append([]string{"set session sql_log_bin=0"}, statements...), "set session sql_log_bin=1")
}

// Tables are altered past the binlog while nobody reads. Their keys are those of the right columns, and the doubt says
// which rows from before may have had others; where names come with the rows, only what they lack is in doubt.
func TestAnAlterThatIsInNoBinlogIsFoundAtTheStart(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.moved (id int primary key, a int, b int)",
				"create table DB.renamed (id int primary key, a int, b int)",
				"create table DB.grown (id int primary key, n int)", "create table DB.filled (id int primary key, n int unsigned)",
				"create table DB.same (id int primary key, n int)", "create table DB.gone (id int primary key)")
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.moved values (1,2,3)", "insert into DB.filled values (1,2)")
			r.wantRows(d, "insert DB.moved (id=1,a=2,b=3)", "insert DB.filled (id=1,n=2)")
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			d.exec(unlogged("alter table DB.moved modify column b int first",
				"alter table DB.renamed rename column a to c, rename column b to a",
				"alter table DB.grown add column x int first, modify column n bigint",
				"alter table DB.filled modify column n int(5) unsigned zerofill",
				"alter table DB.same add index (n)", "drop table DB.gone")...)
			d.exec("insert into DB.same values (1,2)", "insert into DB.moved (id,a,b) values (4,5,6)",
				"insert into DB.renamed (id,a,c) values (1,2,3)",
				"insert into DB.grown (id,n,x) values (1,2,3)", "insert into DB.filled values (2,3)")
			want := []string{d.name + ".filled", d.name + ".grown", d.name + ".moved", d.name + ".renamed"}
			if m.arg == "FULL" {
				want = want[:1]
			}
			again := startAt(r.pos)
			again.named = true
			r = reading(t, again, d.options())
			r.wantRows(d, "insert DB.same (id=1,n=2)", "insert DB.moved (b=6,id=4,a=5)", "insert DB.renamed (id=1,c=3,a=2)",
				"insert DB.grown (x=3,id=1,n=2)", "insert DB.filled (id=2,n=00003)")
			if got := altered(r.doubts); !slices.Equal(got, want) {
				t.Errorf("in doubt: %q, want %q", got, want)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			// What was taken over is saved, and nothing to doubt the next time.
			d.exec("insert into DB.moved (id,a,b) values (7,8,9)")
			last := startAt(r.pos)
			last.named = true
			r = reading(t, last, d.options())
			r.wantRows(d, "insert DB.moved (b=9,id=7,a=8)")
			if got := altered(r.doubts); len(got) > 0 {
				t.Errorf("in doubt again: %q", got)
			}
		})
	}
}

// The statements that lie ahead explain one table, and not the other, which was altered past the binlog before them.
func TestStatementsThatLieAheadAreToldFromThoseThatAreInNoBinlog(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if m.arg == "FULL" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.logged (id int primary key, a int, b int)",
				"create table DB.both (id int primary key, a int, b int)",
				"create table DB.lost (id int primary key, a int, b int)")
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			d.exec(unlogged("alter table DB.both modify column b int first", "alter table DB.lost modify column b int first")...)
			d.exec("insert into DB.logged values (1,2,3)", "insert into DB.both (id,a,b) values (1,2,3)",
				"insert into DB.lost (id,a,b) values (1,2,3)",
				"alter table DB.logged modify column b int first", "alter table DB.both add column c int first",
				"alter table DB.lost drop column a",
				"insert into DB.logged (id,a,b) values (4,5,6)", "insert into DB.both (id,a,b,c) values (4,5,6,7)",
				"insert into DB.lost (id,b) values (4,6)")
			again := startAt(r.pos)
			again.named = true
			r = reading(t, again, d.options())
			// What lost was before its last statement is written nowhere.
			r.wantRows(d, "insert DB.logged (id=1,a=2,b=3)", "insert DB.both (b=3,id=1,a=2)",
				"insert DB.logged (b=6,id=4,a=5)", "insert DB.both (c=7,b=6,id=4,a=5)", "insert DB.lost (b=6,id=4)")
			if got, want := altered(r.doubts), []string{d.name + ".both", d.name + ".lost"}; !slices.Equal(got, want) {
				t.Errorf("in doubt: %q, want %q", got, want)
			}
			if got, _ := inDoubt(r.doubts); !slices.Equal(got, []string{d.name + ".lost"}) {
				t.Errorf("not read: %q", got)
			}
		})
	}
}

// The tables of one server were altered before those of the other, as it is done to keep writing meanwhile.
func TestAnotherServerWhoseTablesDifferIsADoubt(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if m.arg == "FULL" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			p := newReplicas(t, m.start, strings.HasPrefix(m.name, "MariaDB"), "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, p.first, "create table DB.t (id int primary key, a int, b int)",
				"create table DB.u (id int primary key, n int)")
			line := proxy.Start(t, p.first.Addr)
			o := d.options()
			o.Address = line.Addr()
			var e elsewhere
			o.Dial = e.dial
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.t values (1,2,3)", "insert into DB.u values (1,2)")
			r.await(t, "the rows", func() bool { return len(r.rows) == 2 })
			p.replicate()
			p.hold()
			d2 := d.on(p.second)
			d2.exec(unlogged("alter table DB.t modify column b int first")...)
			e.use(p.second.Addr)
			line.Cut()
			d2.exec("insert into DB.u values (3,4)", "insert into DB.t (id,a,b) values (4,5,6)",
				"alter table DB.u modify column n int first", "insert into DB.u (id,n) values (5,6)")
			r.wantRows(d, "insert DB.t (id=1,a=2,b=3)", "insert DB.u (id=1,n=2)",
				"insert DB.u (id=3,n=4)", "insert DB.t (b=6,id=4,a=5)", "insert DB.u (n=6,id=5)")
			if got, want := altered(r.doubts), []string{d.name + ".t"}; !slices.Equal(got, want) {
				t.Errorf("in doubt: %q, want %q", got, want)
			}
		})
	}
}

// What servers make from statements in their own way (own keys, hidden columns, spellings of types) is no doubt.
func TestWhatServersMakeOfStatementsIsNoDoubt(t *testing.T) {
	t.Parallel()
	own := map[bool][]string{
		true: {
			"create table DB.g (a int, b text unique) with system versioning", "create table DB.s select 1 as x, 'a' as y",
			"create table DB.h (a int invisible default 5, b int as (a+1) stored, j json, u uuid, i inet6)",
			"alter table DB.h add system versioning", "alter table DB.h drop system versioning",
			"create table DB.z (id int primary key, s timestamp(6) generated always as row start invisible, " +
				"e timestamp(6) generated always as row end invisible, period for system_time(s,e)) with system versioning",
		},
		false: {
			"set session sql_generate_invisible_primary_key=1", "create table DB.g (a int, b varchar(5))",
			"create table DB.h (a int invisible, b int as (a+1) stored, j json, key((a+b)))",
			"create table DB.s select 1 as x, 'a' as y",
		},
	}
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.last (id int primary key)")
			r := reading(t, newRecorder(), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(own[s.Flavor == testbed.FlavorMariaDB]...)
			d.exec("create table DB.l (a varchar(10) character set latin1, e enum('x','y'), f float(7,3), t timestamp(3) "+
				"null, d datetime default now(), "+
				"c char(3) binary, n nchar(4), s serial, b bool, y year, bits bit(3), p point, m mediumtext)",
				"insert into DB.last values (1)")
			last := "insert " + d.name + ".last (1)"
			r.await(t, "the last row", func() bool { return slices.Contains(r.texts(), last) })
			testbed.Must(t, r.stop())
			d.exec("insert into DB.last values (2)")
			r = reading(t, startAt(r.pos), d.options())
			r.wantRows(d, "insert DB.last (2)")
			if got := altered(r.doubts); len(got) > 0 {
				t.Errorf("in doubt: %v", r.doubts.List())
			}
		})
	}
}
