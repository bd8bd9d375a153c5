package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// silentServers are those that change rows by foreign keys without row events, with names of columns in the events and
// without.
var silentServers = []struct {
	name  string
	start func(testing.TB, ...string) *testbed.Server
	args  []string
}{
	{"MariaDB", testbed.MariaDB, []string{"--binlog-row-metadata=FULL"}},
	{"MariaDBWithoutNames", testbed.MariaDB, nil},
	{"MySQLNative", testbed.MySQL, []string{"--innodb-native-foreign-keys=ON", "--binlog-row-metadata=FULL"}},
	{"MySQLNativeWithoutNames", testbed.MySQL, []string{"--innodb-native-foreign-keys=ON"}},
}

// family are tables of which those beginning with w are wanted.
var family = []string{
	"create table DB.p (id int primary key, code int unique, name varchar(20))",
	"create table DB.wchild (id int primary key, p int, n int, " +
		"constraint child foreign key (p) references DB.p (id) on delete cascade on update cascade)",
	"create table DB.wgrand (id int primary key, c int, " +
		"constraint grand foreign key (c) references DB.wchild (id) on delete cascade)",
	"create table DB.mid (id int primary key, code int unique, " +
		"foreign key (code) references DB.p (code) on delete set null on update cascade)",
	"create table DB.wfar (id int primary key, code int, " +
		"foreign key (code) references DB.mid (code) on delete cascade on update cascade)",
	"create table DB.wself (id int primary key, up int, foreign key (up) references DB.wself (id) on delete cascade)",
	"create table DB.pair (a int, b int, c int, primary key (a, b))",
	"create table DB.wpair (id int primary key, a int, b int, " +
		"foreign key (a, b) references DB.pair (a, b) on delete set null on update cascade)",
	"create table DB.strict (id int primary key)",
	"create table DB.wstrict (id int primary key, s int, foreign key (s) references DB.strict (id))",
	"create table DB.alone (id int primary key, v int)",
	"create table DB.wsync (id int primary key auto_increment)",
}

// filled are statements that give the family rows.
func filled(id int) []string {
	return []string{
		fmt.Sprintf("insert into DB.p values (%d,%[1]d,'a')", id),
		fmt.Sprintf("insert into DB.wchild values (%d,%[1]d,0)", id),
		fmt.Sprintf("insert into DB.wgrand values (%d,%[1]d)", id), fmt.Sprintf("insert into DB.mid values (%d,%[1]d)", id),
		fmt.Sprintf("insert into DB.wfar values (%d,%[1]d)", id),
	}
}

// cascadeReader reads the wanted tables of a family.
type cascadeReader struct {
	*running
	d *database
}

func readFamily(t *testing.T, d *database, rec *recorder) *cascadeReader {
	t.Helper()
	o := d.options()
	o.Wanted = func(schema, table string) bool {
		return strings.HasPrefix(schema, d.name) && (table == "" || table[0] == 'w')
	}
	return &cascadeReader{reading(t, rec, o), d}
}

// synced waits until all that was done has been read.
func (r *cascadeReader) synced() {
	r.t.Helper()
	r.mu.Lock()
	n := r.syncs()
	r.mu.Unlock()
	r.d.exec("insert into DB.wsync values ()")
	r.await(r.t, "the last statement", func() bool { return r.syncs() > n })
}

func (r *cascadeReader) syncs() (n int) {
	for i := range r.rows {
		if strings.HasPrefix(r.rows[i].text, "insert "+r.d.name+".wsync") {
			n++
		}
	}
	return n
}

// doubted returns the tables of which rows are in doubt since it was last asked, without their schema.
func (r *cascadeReader) doubted() string {
	r.t.Helper()
	r.synced()
	var tables []string
	for _, d := range r.doubts.List() {
		if d.Cause == alarm.RowsCascaded {
			if d.At.IsZero() {
				r.t.Errorf("it has no place: %+v", d)
			}
			tables = append(tables, d.Tables...)
		}
		if err := r.doubts.Dismiss(r.t.Context(), d.ID, time.Time{}); err != nil && !errors.Is(err, doubt.ErrUnknown) {
			r.t.Fatal(err)
		}
	}
	slices.Sort(tables)
	return strings.ReplaceAll(strings.Join(slices.Compact(tables), " "), r.d.name+".", "")
}

func TestRowsThatForeignKeysChangeWithoutEventsAreADoubt(t *testing.T) {
	t.Parallel()
	const all = "wchild wfar wgrand"
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := k.start(t, k.args...)
			d := newDatabase(t, s, family...)
			r := readFamily(t, d, newRecorder())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			id := 0
			fill := func() int {
				id++
				d.exec(filled(id)...)
				return id
			}
			for _, c := range []struct {
				name, statement string // %d: a row of the family
				want            string
			}{
				{"an unmapped parent is deleted", "delete from DB.p where id=%d", all},
				{"what nobody refers to is changed", "update DB.p set name='b' where id=%d", ""},
				{"the key is changed", "update DB.p set id=id+1000 where id=%d", "wchild"},
				{"an unmapped child is between", "update DB.p set code=code+1000 where id=%d", "wfar"},
				{"a mapped parent is deleted", "delete from DB.wchild where id=%d", "wgrand"},
				{"a mapped parent is changed", "update DB.wchild set n=n+1 where id=%d", ""},
				{"a rule that refuses", "insert into DB.strict values (%d)", ""},
				{"nothing refers to it", "insert into DB.alone values (%d,1)", ""},
				{"the session checks no foreign keys", "set foreign_key_checks=0; delete from DB.p where id=%d", ""},
				{"rolled back", "begin; delete from DB.p where id=%d; rollback", ""},
				{"replace", "replace into DB.p values (%d,5000,'c')", all},
				{"on duplicate key", "insert into DB.p values (%d,0,'d') on duplicate key update id=id+1000", "wchild"},
				{"several tables", "use DB; delete p, a from p left join alone a on a.id=p.id where p.id=%d", all},
				{"minimal images", "set binlog_row_image=MINIMAL; update DB.p set name='e' where id=%d", ""},
				{"minimal images of a key", "set binlog_row_image=MINIMAL; update DB.p set code=code+2000 where id=%d", "wfar"},
				{"minimal images of a row", "set binlog_row_image=MINIMAL; delete from DB.p where id=%d", all},
				{"a statement", "set binlog_format=STATEMENT; delete from DB.p where id=%d", all},
			} {
				d.exec("create table DB.keep_" + fmt.Sprint(id) + " (id int)") // DDL that does not matter
				statements := strings.Split(strings.ReplaceAll(c.statement, "%d", fmt.Sprint(fill())), "; ")
				d.exec(append(statements, "set binlog_format=ROW", "set binlog_row_image=FULL", "set foreign_key_checks=1")...)
				if got := r.doubted(); got != c.want {
					t.Errorf("%s: in doubt: %q, want %q", c.name, got, c.want)
				}
			}
			for _, c := range []struct {
				name       string
				statements []string
				want       string
			}{
				{"itself", []string{"insert into DB.wself values (1,null),(2,1),(3,2)", "delete from DB.wself where id=1"}, "wself"},
				{"a part of two columns", []string{
					"insert into DB.pair values (1,2,3)", "insert into DB.wpair values (1,1,2)", "update DB.pair set b=3",
				}, "wpair"},
				{"none of two columns", []string{"update DB.pair set c=4"}, ""},
				{"a foreign key is dropped", []string{"alter table DB.wgrand drop foreign key grand"}, ""},
				{"it was dropped", append(filled(101), "delete from DB.p where id=101"), "wchild wfar"},
				{"a foreign key is added", []string{
					"create table DB.wnew (id int primary key, p int, foreign key (p) references DB.p (id) on delete set null)",
				}, ""},
				{"it was added", append(filled(102), "delete from DB.p where id=102"), "wchild wfar wnew"},
				{"a child gets another name", []string{"rename table DB.wnew to DB.wnewer"}, ""},
				{"a child has another name", []string{
					"insert into DB.p values (103,103,'')", "delete from DB.p where id=103",
				}, "wchild wfar wnewer"},
				{"a parent has another name", []string{
					"rename table DB.p to DB.q", "insert into DB.q values (104,104,'')", "delete from DB.q where id=104",
				}, "wchild wfar wnewer"},
				{"another schema", []string{
					"create database DBx", "create table DBx.wx (id int primary key, p int)",
					"alter table DBx.wx add foreign key (p) references DB.q (id) on delete cascade",
					"insert into DB.q values (105,105,'')", "delete from DB.q where id=105",
				}, "wchild wfar wnewer DBx.wx"},
				{"a child goes", []string{"drop table DBx.wx"}, ""},
				{"a child is gone", []string{
					"insert into DB.q values (106,106,'')", "delete from DB.q where id=106",
				}, "wchild wfar wnewer"},
			} {
				d.exec(c.statements...)
				if got := r.doubted(); got != strings.ReplaceAll(c.want, "DB", d.name) {
					t.Errorf("%s: in doubt: %q, want %q", c.name, got, c.want)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, row := range r.rows {
				if !strings.Contains(row.text, "."+"w") {
					t.Errorf("a row that nobody wants: %s", row.text)
				}
			}
		})
	}
}

// TestAServerThatLogsWhatForeignKeysChangeIsNoDoubt is MySQL from 9.6 on.
func TestAServerThatLogsWhatForeignKeysChangeIsNoDoubt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, testbed.MySQL(t), family...)
	r := readFamily(t, d, newRecorder())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec(append(filled(1), "delete from DB.p where id=1")...)
	if got := r.doubted(); got != "" {
		t.Errorf("in doubt: %s", got)
	}
	if n := d.name; !slices.Contains(r.texts(), "delete "+n+".wgrand (1,1)") {
		t.Errorf("rows %v", r.texts())
	}
}

// TestAForeignKeyThatIsGoneCountsForRowsOfBefore reads, after a restart, rows of before a foreign key was dropped, and
// a parent that has another name by then.
func TestAForeignKeyThatIsGoneCountsForRowsOfBefore(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), family...)
			rec := newRecorder()
			r := readFamily(t, d, rec)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(append(filled(1), filled(2)...)...)
			r.synced()
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			d.exec("delete from DB.p where id=1", "alter table DB.wgrand drop foreign key grand", "rename table DB.p to DB.q")
			r = readFamily(t, d, startAt(rec.pos))
			if got := r.doubted(); got != "wchild wfar wgrand" {
				t.Errorf("in doubt: %q", got)
			}
			d.exec("delete from DB.q where id=2")
			if got := r.doubted(); got != "wchild wfar" {
				t.Errorf("in doubt afterwards: %q", got)
			}
		})
	}
}

// A first start has read nothing when it is stopped, and a foreign key changes rows and is dropped before the next one.
func TestForeignKeysOfAFirstStartAreKnownAtTheNext(t *testing.T) {
	t.Parallel()
	k := testbed.Some(t, silentServers)[0]
	d := newDatabase(t, k.start(t, k.args...), append(family, filled(1)...)...)
	rec := newRecorder()
	r := readFamily(t, d, rec)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	testbed.Must(t, r.stop())
	d.exec("delete from DB.p where id=1", "alter table DB.wgrand drop foreign key grand")
	if got := readFamily(t, d, startAt(rec.pos)).doubted(); got != "wchild wfar wgrand" {
		t.Errorf("in doubt: %q", got)
	}
}

// TestAForeignKeyOfATableThatIsBeingDroppedIsNotKept holds DROP between the event that the stream shows and the moment
// in which the server gives up the foreign key.
func TestAForeignKeyOfATableThatIsBeingDroppedIsNotKept(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), family...)
			r := readFamily(t, d, newRecorder())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(append(filled(1), "create database DBx",
				"create table DBx.wx (id int primary key, foreign key (id) references DB.p (id) on delete cascade)")...)
			for _, drop := range []string{"drop table DB.wgrand", "drop database DBx"} {
				testbed.Must(t, d.HoldCommits(t.Context(), lockWait/10))
				d.exec(drop)
				if got := r.doubted(); got != "" {
					t.Errorf("in doubt after %s: %q", drop, got)
				}
			}
			d.exec("delete from DB.p where id=1")
			if got := r.doubted(); got != "wchild wfar" {
				t.Errorf("in doubt: %q", got)
			}
		})
	}
}

// TestATableThatIsLockedHoldsUpNoOther locks a table that was dropped and made again, as mysqldump does for as long as
// it takes to fill it.
func TestATableThatIsLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), family...)
			r := readFamily(t, d, newRecorder())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			c, err := d.DB().Conn(t.Context())
			testbed.Must(t, err)
			defer c.Close()
			dump := func(statements ...string) {
				t.Helper()
				for _, s := range statements {
					_, err := c.ExecContext(t.Context(), strings.ReplaceAll(s, "DB", d.name))
					testbed.Must(t, err)
				}
			}
			dump("drop table DB.wgrand", "create table DB.wgrand (id int primary key, c int, "+
				"constraint grand foreign key (c) references DB.mid (id) on delete set null)", "lock tables DB.wgrand write")
			d.exec("insert into DB.alone values (1,1)")
			if got := r.doubted(); got != "" { // waits for another table
				t.Errorf("in doubt: %q", got)
			}
			if n := r.connects(); n != 1 {
				t.Errorf("%d connections, want the one that it began with", n)
			}
			dump("unlock tables")
			d.exec(filled(1)[0], filled(1)[1], filled(1)[3], "insert into DB.wgrand values (1,1)",
				"delete from DB.mid where id=1")
			if got := r.doubted(); got != "wfar wgrand" {
				t.Errorf("in doubt after a row of the new parent was deleted: %q", got)
			}
			testbed.Eventually(t, patience, "the foreign key of before is forgotten", func() bool {
				d.exec("insert into DB.wchild values (2,1,0)", "delete from DB.wchild where id=2")
				return r.doubted() == ""
			})
			d.exec(filled(3)[0], filled(3)[3], "delete from DB.mid where id=3")
			if got := r.doubted(); got != "wfar wgrand" {
				t.Errorf("in doubt once the server was asked again: %q", got)
			}
		})
	}
}

// TestAFirstStartIsNotHeldUpByATableThatIsLocked has one table locked while the columns of all are asked for.
func TestAFirstStartIsNotHeldUpByATableThatIsLocked(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, start(t), "create table DB.t (id int primary key)",
				"create table DB.locked (id int primary key)")
			unlock := lock(t, d, "locked")
			r := reading(t, newRecorder(), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.t values (1)")
			r.wantRows(d, "insert DB.t (1)")
			unlock()
			d.exec("insert into DB.locked values (2)")
			r.wantRows(d, "insert DB.t (1)", "insert DB.locked (2)")
		})
	}
}

// TestAForeignKeyThatIsBeingMadeForLongCounts holds the statement that makes a foreign key for longer than is waited
// for.
func TestAForeignKeyThatIsBeingMadeForLongCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple("")...)
			r := readFamily(t, d, newRecorder())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			testbed.Must(t, d.HoldCommits(t.Context(), time.Hour))
			held := make(chan error, 2)
			for i, statement := range []string{
				"alter table DB.wc add constraint c foreign key (p) references DB.p (id) on delete cascade",
				"insert into DB.wsync values ()",
			} {
				var commits int
				r.ask(func() bool { commits = r.commits; return true })
				go func() { held <- d.ExecContext(context.Background(), strings.ReplaceAll(statement, "DB", d.name)) }()
				r.await(t, fmt.Sprintf("statement %d", i), func() bool { return r.commits > commits })
			}
			testbed.Must(t, d.ReleaseCommits(t.Context()))
			for range 2 {
				testbed.Must(t, <-held)
			}
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("after a row of the new parent was deleted", "wc")
		})
	}
}

// TestAForeignKeyIsAskedForWithEachTableThatStatementsChange holds the statement that makes a foreign key, so that it
// stands in the binlog and is not there yet, while another statement has the server be asked.
func TestAForeignKeyIsAskedForWithEachTableThatStatementsChange(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, testbed.MySQL(t, "--binlog-row-metadata=FULL"), "create table DB.p (id int primary key)",
		"create table DB.q (id int primary key)", "create table DB.wchild (id int primary key)",
		"create table DB.wsync (id int primary key auto_increment)",
		"create table DB.wother (id int primary key, foreign key (id) references DB.q (id) on delete cascade)",
		"insert into DB.p values (1)", "insert into DB.q values (1)", "insert into DB.wchild values (1)")
	r := readFamily(t, d, startAt(here(t, d.Server)))
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	testbed.Must(t, d.HoldCommits(t.Context(), time.Minute))
	held := make(chan error, 2)
	for i, statements := range [][]string{
		{"alter table DB.wchild add foreign key (id) references DB.p (id) on delete cascade"},
		{"set session binlog_format=STATEMENT", "delete from DB.q where id=1", "set session binlog_format=ROW"},
	} {
		for j := range statements {
			statements[j] = strings.ReplaceAll(statements[j], "DB", d.name)
		}
		var commits int
		r.ask(func() bool { commits = r.commits; return true })
		go func() { held <- d.ExecContext(context.Background(), statements...) }()
		r.await(t, fmt.Sprintf("statement %d", i), func() bool { return r.commits > commits })
	}
	testbed.Must(t, d.ReleaseCommits(t.Context()))
	for range 2 {
		testbed.Must(t, <-held)
	}
	if got := r.doubted(); got != "wother" {
		t.Errorf("in doubt: %q", got)
	}
	d.exec("set session binlog_format=STATEMENT", "delete from DB.p where id=1", "set session binlog_format=ROW")
	if got := r.doubted(); got != "wchild" {
		t.Errorf("in doubt after a row of the new parent was deleted: %q", got)
	}
}

// TestAParentThatMayNotBeReadCountsForEachChange has a user who may see only what is mapped.
func TestAParentThatMayNotBeReadCountsForEachChange(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := k.start(t, k.args...)
			d := newDatabase(t, s, family...)
			d.exec("create user 'few'@'%' identified by 'few'", "grant replication slave, replication client on *.* to 'few'@'%'",
				"grant select on DB.wchild to 'few'@'%'", "grant select on DB.wsync to 'few'@'%'",
				"grant insert on DB.p to 'few'@'%'")
			if s.Flavor == testbed.FlavorMariaDB {
				d.exec("grant binlog monitor on *.* to 'few'@'%'")
			}
			o := d.options()
			o.User, o.Password = "few", credential.Text("few")
			o.Wanted = func(schema, table string) bool {
				return schema == d.name && (table == "" || table == "wchild" || table == "wsync")
			}
			r := &cascadeReader{reading(t, newRecorder(), o), d}
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(filled(1)...)
			if got := r.doubted(); got != "" {
				t.Errorf("in doubt after inserts: %q", got)
			}
			d.exec("update DB.p set name='b' where id=1")
			if got := r.doubted(); got != "" && len(k.args) > 0 && slices.Contains(k.args, "--binlog-row-metadata=FULL") {
				t.Errorf("in doubt after an update, though the event has names: %q", got)
			}
			d.exec("delete from DB.p where id=1")
			if got := r.doubted(); got != "wchild" {
				t.Errorf("in doubt after a delete: %q", got)
			}
		})
	}
}

// TestForeignKeysAreFollowedToAnyDepth looks at the graph alone.
func TestForeignKeysAreFollowedToAnyDepth(t *testing.T) {
	n := func(name string) ddl.Name { return ddl.Name{Schema: "s", Table: name} }
	key := func(child, column, parent, referenced string, onDelete, onUpdate rule) foreignKey {
		return foreignKey{
			Child: n(child), Columns: []string{column}, Parent: n(parent), Referenced: []string{referenced},
			OnDelete: onDelete, OnUpdate: onUpdate,
		}
	}
	keys := []foreignKey{
		key("b", "a_id", "a", "id", cascades, "RESTRICT"), key("c", "b_id", "b", "ID", cascades, setsNull),
		key("a", "c_id", "c", "id", cascades, "NO ACTION"), // a cycle
		key("d", "x", "c", "B_ID", "RESTRICT", cascades), key("e", "d_x", "d", "x", "RESTRICT", cascades),
		key("f", "d_y", "d", "y", cascades, cascades), key("g", "c_id", "c", "id", setsNull, "RESTRICT"),
		key("h", "g_id", "g", "c_id", cascades, setsNull), key("i", "none", "elsewhere", "id", cascades, cascades),
	}
	wanted := func(n ddl.Name) bool { return strings.Contains("cdefgh", n.Table) }
	var got []string
	for n, p := range parentsOf(keys, wanted) {
		got = append(got, fmt.Sprint(n, " deleted ", p.deleted, ", changed ", p.references))
	}
	slices.Sort(got)
	want := []string{
		"s.a deleted [s.c s.g s.h], changed []",
		"s.b deleted [s.c s.g s.h], changed [{[ID] [s.c s.d s.e]}]",
		"s.c deleted [s.c s.g s.h], changed [{[B_ID] [s.d s.e]}]",
		"s.d deleted [s.f], changed [{[x] [s.e]} {[y] [s.f]}]",
		"s.g deleted [s.h], changed [{[c_id] [s.h]}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := relevant(slices.Clone(keys), wanted); len(got) != len(keys)-1 {
		t.Errorf("relevant: %+v", got)
	}
}

func TestTheRulesOfAForeignKeyAreReadAsTheyArePrinted(t *testing.T) {
	for clause, want := range map[string]ruling{
		"(`p`) REFERENCES `x`.`p` (`id`) ON DELETE CASCADE ON UPDATE SET NULL,": {cascades, setsNull},
		"(`p`) REFERENCES `p` (`id`) ON UPDATE CASCADE":                         {"", cascades},
		"(`ON DELETE CASCADE`) REFERENCES `p` (`id`) ON DELETE NO ACTION":       {},
		"(`p`, `q`) REFERENCES `p` (`id`, `q`),":                                {},
	} {
		if got := *rulesIn(clause); got != want {
			t.Errorf("%s: %+v, want %+v", clause, got, want)
		}
	}
}
