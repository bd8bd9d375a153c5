package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// few makes a user who may read the binlog, and has these rights on tables of the database besides: "select on t".
func (d *database) few(rights ...string) Options {
	d.t.Helper()
	d.exec("create user 'DB'@'%' identified by 'few'", "grant replication slave, replication client on *.* to 'DB'@'%'")
	for _, r := range rights {
		d.exec(d.grant(r))
	}
	if d.Flavor == testbed.FlavorMariaDB {
		d.exec("grant binlog monitor on *.* to 'DB'@'%'")
	}
	o := d.options()
	o.User, o.Password = d.name, credential.Text("few")
	o.regainEach = 100 * time.Millisecond
	return o
}

func (d *database) grant(right string) string {
	what, table, _ := strings.Cut(right, " on ")
	return "grant " + what + " on DB." + table + " to 'DB'@'%'"
}

func (d *database) revoke(right string) string {
	what, table, _ := strings.Cut(right, " on ")
	return "revoke " + what + " on DB." + table + " from 'DB'@'%'"
}

// doubtAbout waits for a doubt of a cause about one table, and returns its message.
func (r *running) doubtAbout(cause alarm.Kind, d *database, table string) (message string) {
	r.t.Helper()
	testbed.Eventually(r.t, patience, fmt.Sprint("a doubt ", cause, " about ", table), func() bool {
		for _, is := range r.doubts.List() {
			if is.Cause == cause && slices.Equal(is.Tables, []string{d.name + "." + table}) {
				message = is.Message
				return true
			}
		}
		return false
	})
	return message
}

// A mapped table that may not be read is a doubt about that table, whether the server shows it or not, and stops no
// other. It is read again from its next row on once the right is there.
func TestATableThatMayNotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if strings.HasSuffix(m.name, "Full") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			for _, start := range []string{"at a first start", "at a position"} {
				d := newDatabase(t, s, "create table DB.good (id int primary key, n int)",
					"create table DB.shown (id int primary key, n int unsigned)",
					"create table DB.unseen (id int primary key, n int unsigned)",
					"create table DB.partly (n bigint, id bigint, last bigint)")
				o := d.few("select on good", "insert on shown", "select (n, last) on partly")
				o.Doubts = newBook(t)
				rec := newRecorder()
				if start == "at a position" {
					rec = startAt(here(t, s))
				}
				r := reading(t, rec, o)
				r.await(t, "a first mark "+start, func() bool { return len(r.marks) > 0 })
				d.exec("insert into DB.shown values (1,1)", "insert into DB.good values (1,1)",
					"insert into DB.unseen values (1,1)", "insert into DB.partly values (1,2,3)", "insert into DB.good values (2,2)")
				r.wantRows(d, "insert DB.good (1,1)", "insert DB.good (2,2)")
				for _, table := range []string{"shown", "unseen", "partly"} {
					want := fmt.Sprintf("GRANT SELECT ON `%s`.`%s`", d.name, table)
					if got := r.doubtAbout(alarm.EventUndecodable, d, table); !strings.Contains(got, want) {
						t.Errorf("%s: the doubt about %s says %s", start, table, got)
					}
				}
				d.exec(d.grant("select on shown"), d.grant("select on unseen"), d.grant("select on partly"))
				id := 1
				testbed.Eventually(t, patience, "rows of all once they may be read", func() bool {
					id++
					d.exec(fmt.Sprintf("insert into DB.shown values (%d,5)", id),
						fmt.Sprintf("insert into DB.unseen values (%d,6)", id),
						fmt.Sprintf("insert into DB.partly values (%d,7,8)", id))
					texts := strings.Join(r.rowTexts(), "\n")
					return strings.Contains(texts, fmt.Sprintf("shown (%d,5)", id-1)) &&
						strings.Contains(texts, fmt.Sprintf("unseen (%d,6)", id-1)) &&
						strings.Contains(texts, fmt.Sprintf("partly (%d,7,8)", id-1))
				})
				testbed.Must(t, r.stop())
			}
		})
	}
}

func (r *running) rowTexts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts()
}

// Where the binlog names columns, rows of a table that may not be read come all the same, but for what only the server
// knows. Its foreign keys are not known, which matters where the server does not log what they change.
func TestATableThatMayNotBeReadIsReadByTheNamesInTheBinlog(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if !strings.HasSuffix(m.name, "Full") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.good (id int primary key, n int)",
				"create table DB.unseen (id int primary key, n int)", "create table DB.numbers (id int unsigned primary key)")
			o := d.few("select on good", "insert on numbers")
			o.Doubts = newBook(t)
			r := reading(t, newRecorder(), o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.unseen values (1,1)", "insert into DB.good values (1,1)", "insert into DB.numbers values (1)",
				"insert into DB.unseen values (2,2)")
			r.wantRows(d, "insert DB.unseen (1,1)", "insert DB.good (1,1)", "insert DB.numbers (?)", "insert DB.unseen (2,2)")
			if got := r.doubtAbout(alarm.EventUndecodable, d, "numbers"); !strings.Contains(got, "GRANT SELECT ON") {
				t.Errorf("the doubt says %s", got)
			}
			if s.Flavor == testbed.FlavorMariaDB {
				if got := r.doubtAbout(alarm.BinlogIncomplete, d, "unseen"); !strings.Contains(got, "GRANT SELECT ON") {
					t.Errorf("the doubt says %s", got)
				}
				for _, is := range r.doubts.List() { // an answer before the right is there is not the last
					if is.Cause == alarm.BinlogIncomplete {
						testbed.Must(t, r.doubts.Answered(t.Context(), is.ID, is.Last, "forgotten"))
					}
				}
				n := 10
				testbed.Eventually(t, patience, "the doubt about foreign keys comes again", func() bool {
					n++
					d.exec(fmt.Sprintf("insert into DB.good values (%d,1)", n))
					again := func(is doubt.Doubt) bool { return is.Cause == alarm.BinlogIncomplete }
					return slices.ContainsFunc(r.doubts.List(), again)
				})
			}
			d.exec(d.grant("select on unseen"), d.grant("select on numbers"))
			id := 2
			testbed.Eventually(t, patience, "whole rows once they may be read", func() bool {
				id++
				d.exec(fmt.Sprintf("insert into DB.numbers values (%d)", id),
					fmt.Sprintf("insert into DB.unseen values (%d,0)", id))
				return strings.Contains(strings.Join(r.rowTexts(), "\n"), fmt.Sprintf("numbers (%d)", id-1))
			})
			if s.Flavor != testbed.FlavorMariaDB {
				return
			}
			testbed.Eventually(t, patience, "the doubt about foreign keys will be answered", func() bool {
				for _, is := range r.doubts.List() {
					if is.Cause == alarm.BinlogIncomplete && !is.Asked {
						return false
					}
				}
				return true
			})
		})
	}
}

// A right that is taken away while a table is read changes nothing before somebody must be asked.
func TestATableThatMayNoLongerBeReadIsReadOn(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		if strings.HasSuffix(m.name, "Full") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.good (id int primary key)",
				"create table DB.review (id int primary key, v varchar(9))")
			o := d.few("select on good", "select on review")
			o.Doubts = newBook(t)
			rec := newRecorder()
			r := reading(t, rec, o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.review values (1,'a')", d.revoke("select on review"), "insert into DB.review values (2,'b')",
				"alter table DB.review add column n int first", "insert into DB.review values (3,3,'c')")
			r.wantRows(d, "insert DB.review (1,a)", "insert DB.review (2,b)", "insert DB.review (3,3,c)")
			testbed.Must(t, r.stop())
			r = reading(t, startAt(rec.pos), o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.review values (4,4,'d')", "insert into DB.good values (1)")
			r.wantRows(d, "insert DB.review (4,4,d)", "insert DB.good (1)")
			if got, _ := inDoubt(o.Doubts); len(got) > 0 {
				t.Errorf("in doubt: %q", got)
			}
		})
	}
}
