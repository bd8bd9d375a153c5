package canal

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// holding has a session lock a table, and change it itself.
func holding(t *testing.T, d *database, table string) (do func(statement string)) {
	t.Helper()
	c, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	do = func(statement string) {
		t.Helper()
		_, err := c.ExecContext(t.Context(), strings.ReplaceAll(statement, "DB", d.name))
		testbed.Must(t, err)
	}
	do("lock tables DB." + table + " write")
	return do
}

// Rows come of a table that is locked, and whose columns were not known before. Those of others are read on. Where the
// binlog does not name columns, these are passed over with a doubt, which is answered once the table is unlocked, also
// if no row of it comes any more, and if the connection was lost meanwhile.
func TestRowsOfATableThatIsLockedHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for i, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.held (id int primary key, n int unsigned)",
				"create table DB.other (id int primary key)")
			do := holding(t, d, "held")
			o := d.options()
			o.regainEach = 1 // each time that all is handed over
			rec := newRecorder()
			r := reading(t, rec, o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			for id := range 3 {
				do(fmt.Sprintf("insert into DB.held values (%d,1)", id))
				d.exec(fmt.Sprintf("insert into DB.other values (%d)", id))
			}
			last := "insert " + d.name + ".other (2)"
			r.await(t, "rows of another table", func() bool { return slices.Contains(r.texts(), last) })
			if n := r.connects(); n != 1 {
				t.Errorf("it was connected %d times, want once", n)
			}
			if got := r.doubtAbout(alarm.EventUndecodable, d, "held"); !strings.Contains(got, "it is locked on the source") {
				t.Errorf("the doubt says %s", got)
			}
			if i%2 == 0 {
				dropLine(t, d, r)
				d.exec("insert into DB.other values (3)")
				last = "insert " + d.name + ".other (3)"
				r.await(t, "rows of another table, on another connection", func() bool { return slices.Contains(r.texts(), last) })
			}
			wasBound := func(table string) (n int) {
				for _, b := range r.tables {
					if b.Name == table && len(b.Columns) == 2 {
						n++
					}
				}
				return n
			}
			var before int
			r.ask(func() bool { before = wasBound("held"); return true })
			do("unlock tables")
			r.await(t, "the table is known without a row", func() bool { return wasBound("held") > before })
			d.exec("insert into DB.held values (7,1)")
			row := "insert " + d.name + ".held (7,1)"
			r.await(t, "a row of the table", func() bool { return slices.Contains(r.texts(), row) })
			testbed.Must(t, r.stop())
		})
	}
}

// A session alters a table that it has locked, after rows of it were passed over: what its columns were then is written
// nowhere. The doubt about these rows is answered all the same, without another row, also if the table is dropped.
func TestATableThatIsAlteredAfterItsRowsWerePassedOverNeedsNoRow(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if strings.HasSuffix(m.name, "Full") {
			continue
		}
		for _, statement := range []string{"alter table DB.held add column s varchar(9) first", "drop table DB.held"} {
			t.Run(m.name+", "+strings.Fields(statement)[0], func(t *testing.T) {
				t.Parallel()
				s := m.start(t, "--binlog-row-metadata="+m.arg)
				d := newDatabase(t, s, "create table DB.held (id int primary key, n int unsigned)")
				do := holding(t, d, "held")
				o := d.options()
				o.regainEach = 1 // each time that all is handed over
				r := reading(t, newRecorder(), o)
				r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
				do("insert into DB.held values (1,1)")
				r.doubtAbout(alarm.EventUndecodable, d, "held")
				do(statement)
				d.exec("create table DB.later (id int)", "insert into DB.later values (1)")
				r.await(t, "the statement is read", func() bool { return len(r.rows) > 0 })
				do("unlock tables")
				if strings.HasPrefix(statement, "drop") {
					testbed.Eventually(t, patience, "the answer is asked for", func() bool {
						return slices.ContainsFunc(r.doubts.List(), func(is doubt.Doubt) bool {
							return is.Cause == alarm.EventUndecodable && is.Asked
						})
					})
				} else {
					r.await(t, "the table is known without a row", func() bool {
						return slices.ContainsFunc(r.tables, func(table *event.Table) bool { return table.Name == "held" })
					})
				}
				testbed.Must(t, r.stop())
			})
		}
	}
}

// exclusively has a statement have tables for itself, and wait for another table until the function is called that it
// returns. Then it is given up.
func exclusively(t *testing.T, d *database, tables ...string) (giveUp func()) {
	t.Helper()
	var c *sql.Conn
	d.exec("create table DB.zz (id int primary key)")
	for _, statement := range []string{"begin", "select * from DB.zz"} {
		if c == nil {
			var err error
			c, err = d.DB().Conn(t.Context())
			testbed.Must(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}
		_, err := c.ExecContext(t.Context(), strings.ReplaceAll(statement, "DB", d.name))
		testbed.Must(t, err)
	}
	renaming, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = renaming.Close() })
	var id int
	testbed.Must(t, renaming.QueryRowContext(t.Context(), "select connection_id()").Scan(&id))
	t.Cleanup(func() { killed(d, id) }) // before its connection is closed, which waits for it
	var to []string
	for _, name := range append(tables, "zz") {
		to = append(to, "DB."+name+" to DB."+name+"_new")
	}
	done := make(chan error, 1)
	go func() {
		statement := strings.ReplaceAll("rename table "+strings.Join(to, ", "), "DB", d.name)
		_, err := renaming.ExecContext(context.Background(), statement)
		done <- err
	}()
	testbed.Eventually(t, patience, "the statement waits for the last table", func() bool {
		var n int
		testbed.Must(t, d.DB().QueryRow(fmt.Sprint("select count(*) from information_schema.processlist where id = ", id,
			" and state like 'Waiting for table metadata lock%'")).Scan(&n))
		return n > 0
	})
	return func() {
		t.Helper()
		if !killed(d, id) || <-done == nil {
			t.Fatal("the statement was not given up")
		}
	}
}

// MariaDB waits for each table that is locked, in one question: for more of them than a connection stays without an
// answer.
func TestTablesThatAreLockedTogetherAreWaitedForTogether(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var names []string
			tables := []string{"create table DB.p (id int primary key)", "create table DB.other (id int primary key)"}
			for i := range 25 {
				names = append(names, fmt.Sprintf("n%02d", i))
				tables = append(tables, fmt.Sprintf("create table DB.n%02d (id int primary key, p int, "+
					"foreign key (p) references DB.p (id) on delete cascade)", i))
			}
			d := newDatabase(t, k.start(t, k.args...), tables...)
			giveUp := exclusively(t, d, names...)
			r := reading(t, newRecorder(), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.other values (1)")
			r.wantRows(d, "insert DB.other (1)")
			dropLine(t, d, r)
			d.exec("insert into DB.other values (2)")
			r.wantRows(d, "insert DB.other (1)", "insert DB.other (2)")
			giveUp()
			d.exec("insert into DB.n00 values (1,null)")
			r.wantRows(d, "insert DB.other (1)", "insert DB.other (2)", "insert DB.n00 (1,NULL)")
		})
	}
}

// At a first start nobody knows the foreign keys of a table that MariaDB leaves out of its answer. What they change
// until that is known is a doubt, also if freshet is restarted meanwhile.
func TestForeignKeysOfATableThatIsLockedAtAFirstStartAreADoubt(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"), couple(coupled)...)
			giveUp := exclusively(t, d, "wc")
			rec := newRecorder()
			r := readFamily(t, d, rec)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			r.synced()
			if restarted {
				testbed.Must(t, r.stop())
			}
			giveUp()
			d.exec("delete from DB.p where id=1")
			if restarted {
				r = readFamily(t, d, startAt(rec.Position()))
			}
			testbed.Eventually(t, patience, "a doubt", func() bool {
				r.synced()
				return len(r.doubts.List()) > 0
			})
			r.wantDoubted("of what was changed before it was known", "wc")
			d.exec("delete from DB.p where id=2")
			r.wantDoubted("once it is known", "wc")
			r.wantDoubted("after that", "")
		})
	}
}

// A reader that never came to know the foreign keys of a locked table was restarted: what they changed until then is a
// doubt, though nothing comes any more.
func TestForeignKeysThatWereNotKnownBeforeARestartAreADoubt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"), couple(coupled)...)
	rec := newRecorder()
	r := readFamily(t, d, rec)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	r.synced()
	testbed.Must(t, r.stop())
	known := regexp.MustCompile(`(?m)^` + keysMark + `\[.*\]$`)
	for _, held := range []bool{false, true} {
		pos := rec.Position()
		if !known.Match(pos.State) {
			t.Fatalf("the position has no foreign keys: %q", pos.State)
		}
		if held {
			none, err := joinKeys(nil, nil, true, nil)
			testbed.Must(t, err)
			pos.State = known.ReplaceAll(pos.State, bytes.TrimSpace(none))
		}
		r := readFamily(t, d, startAt(pos))
		r.await(t, "a mark", func() bool { return len(r.marks) > 0 })
		r.synced()
		want := ""
		if held {
			want = "wc"
		}
		r.wantDoubted(fmt.Sprint("with nothing known ", held), want)
		testbed.Must(t, r.stop())
	}
}

// A statement that was logged as one has changed a table with triggers, of which MariaDB says nothing while the table
// is locked.
func TestATableThatIsLockedMayHaveTriggers(t *testing.T) {
	t.Parallel()
	s := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.log (id int primary key)",
		"create trigger DB.tr after insert on DB.t for each row insert into DB.log values (new.id)")
	d.allow("trigger", d.readable())
	begin := here(t, s)
	d.exec("set statement binlog_format = 'STATEMENT' for insert into DB.t values (1)")
	giveUp := exclusively(t, d, "t")
	r := reading(t, startAt(begin), d.options())
	testbed.Eventually(t, patience, "a doubt about all tables", func() bool {
		return slices.ContainsFunc(r.doubts.List(), func(is doubt.Doubt) bool {
			return is.Cause == alarm.StatementLogged && len(is.Tables) == 0
		})
	})
	giveUp()
}

// A state says that there may be foreign keys which are not known.
func TestAStateSaysThatForeignKeysAreNotKnown(t *testing.T) {
	key := foreignKey{Name: "k", Child: ddl.Name{Schema: "s", Table: "c"}, Parent: ddl.Name{Schema: "s", Table: "p"}}
	for _, now := range [][]foreignKey{nil, {key}} {
		for _, held := range []bool{false, true} {
			state, err := joinKeys(now, nil, held, []byte("rest"))
			testbed.Must(t, err)
			got, past, is, rest, err := splitKeys(state)
			testbed.Must(t, err)
			if len(got) != len(now) || len(past) != 0 || is != held || string(rest) != "rest" {
				t.Errorf("%d foreign keys, held %t: read as %v, %v, held %t, %q", len(now), held, got, past, is, rest)
			}
		}
	}
}
