package canal

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// Tables are altered past the binlog while a connection stands: one whose rows have come on it, one whose rows have
// not, and one whose columns' names do not tell all. Rows that come after the doubt are read by the right names.
func TestAnAlterThatIsInNoBinlogIsFoundWhileAConnectionStands(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.moved (id int primary key, a int, b int)",
				"create table DB.rare (id int primary key, a int, b int)",
				"create table DB.filled (id int primary key, n int unsigned)", "create table DB.same (id int primary key, n int)")
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.moved values (1,2,3)", "insert into DB.filled values (1,2)",
				"insert into DB.same values (1,2)")
			r.wantRows(d, "insert DB.moved (id=1,a=2,b=3)", "insert DB.filled (id=1,n=2)", "insert DB.same (id=1,n=2)")
			d.exec(unlogged("alter table DB.moved modify column b int first", "alter table DB.rare modify column b int first",
				"alter table DB.filled modify column n int(5) unsigned zerofill", "alter table DB.same add index (n)")...)
			d.exec("insert into DB.moved (id,a,b) values (4,5,6)", "insert into DB.rare (id,a,b) values (4,5,6)",
				"insert into DB.filled values (2,3)", "insert into DB.same values (2,3)")
			want := []string{d.name + ".filled", d.name + ".moved", d.name + ".rare"}
			if m.arg == "FULL" {
				want = want[:1]
			}
			testbed.Eventually(t, patience, "doubts of what was altered",
				func() bool { return len(altered(r.doubts)) >= len(want) })
			d.exec("insert into DB.moved (id,a,b) values (7,8,9)", "insert into DB.rare (id,a,b) values (7,8,9)",
				"insert into DB.filled values (3,4)")
			r.await(t, "the last row", func() bool { return len(r.rows) == 10 })
			r.mu.Lock()
			got := r.texts()[7:]
			r.mu.Unlock()
			rows := []string{
				"insert DB.moved (b=9,id=7,a=8)", "insert DB.rare (b=9,id=7,a=8)",
				"insert DB.filled (id=3,n=00004)",
			}
			for i := range rows {
				rows[i] = strings.ReplaceAll(rows[i], "DB", d.name)
			}
			if !slices.Equal(got, rows) {
				t.Errorf("rows %q, want %q", got, rows)
			}
			if got := altered(r.doubts); !slices.Equal(got, want) {
				t.Errorf("in doubt: %q, want %q", got, want)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What gives tables new ids, and is no statement in another log, is no doubt: not when it arrives, and not when it is
// read late, with all of the statements ahead.
func TestNewTableIdsAloneAreNoDoubt(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.t (id int primary key, n int)", "create table DB.last (id int primary key)")
			r := reading(t, newRecorder(), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			begin := r.Position()
			for range 10 {
				d.exec("insert into DB.t (id,n) values (1,2)", "flush tables", "delete from DB.t",
					"alter table DB.t add column x int first, drop column n",
					"insert into DB.t (x,id) values (1,2)", "alter table DB.t modify column id int first", "delete from DB.t",
					"alter table DB.t add column n int, drop column x")
			}
			d.exec("insert into DB.last values (1)")
			last := "insert " + d.name + ".last (1)"
			r.await(t, "the last row", func() bool { return slices.Contains(r.texts(), last) })
			testbed.Must(t, r.stop())
			o := d.options()
			o.UntilCaughtUp = true // looks at what waits for it before it ends
			late := reading(t, startAt(begin), o)
			testbed.Must(t, late.wait())
			if got, want := late.texts(), r.texts(); !slices.Equal(got, want) {
				t.Errorf("rows read late %q, want %q", got, want)
			}
			if got := append(altered(r.doubts), altered(late.doubts)...); len(got) > 0 {
				t.Errorf("in doubt: %v, %v", r.doubts.List(), late.doubts.List())
			}
		})
	}
}

// However many tables get new ids, there is one look a second, and they take a small part of the time.
func TestLooksAtTablesAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	k := looks{now: func() time.Time { return now }}
	if k.waits(); !k.atOnce() {
		t.Fatal("the first table is not looked at at once")
	}
	k.looked(now)
	if k.atOnce() || k.due() {
		t.Error("the second one is looked at within the second")
	}
	now = now.Add(lookEach)
	if k.waits(); k.atOnce() {
		t.Error("a third one goes before it")
	}
	if !k.due() {
		t.Fatal("both wait for more than a second")
	}
	begun := now
	now = now.Add(time.Minute)
	k.looked(begun)
	k.since = time.Time{}
	now = now.Add(lookShare*time.Minute - time.Millisecond)
	if k.waits(); k.atOnce() {
		t.Error("a look that took a minute is followed by another within ten")
	}
	now = now.Add(time.Millisecond)
	if !k.due() {
		t.Error("and after those by none")
	}
}

// While the source has always more to send, which may be the past, tables are looked at after a minute.
func TestLooksArePutOffInThePast(t *testing.T) {
	now := time.Unix(1000, 0)
	k := looks{now: func() time.Time { return now }}
	if k.atOnce() || k.due() {
		t.Error("a table is looked at though there is more to read")
	}
	if now = now.Add(lookAfter); !k.due() {
		t.Error("it is not looked at after a minute")
	}
	k.since = now
	if k.waits(); !k.due() {
		t.Error("it is not looked at when there is nothing more to read")
	}
}
