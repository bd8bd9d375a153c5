package canal

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// renames has a statement have wc for itself, and wait for another table until the function is called that it returns.
// Then it is given up.
func renames(t *testing.T, d *database) (giveUp func()) {
	t.Helper()
	d.exec("create table DB.zz (id int primary key)")
	reader, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	for _, statement := range []string{"begin", "select * from " + d.name + ".zz"} {
		_, err := reader.ExecContext(t.Context(), statement)
		testbed.Must(t, err)
	}
	c, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var id int
	testbed.Must(t, c.QueryRowContext(t.Context(), "select connection_id()").Scan(&id))
	done := make(chan error, 1)
	go func() {
		statement := strings.ReplaceAll("rename table DB.wc to DB.wd, DB.zz to DB.zzz", "DB", d.name)
		_, err := c.ExecContext(context.Background(), statement)
		done <- err
	}()
	s := questions(t, d)
	testbed.Must(t, s.waitFor(0))
	testbed.Eventually(t, patience, "the statement has the table for itself", func() bool {
		_, err := s.conn.Execute("SHOW CREATE TABLE " + ddl.Quote(d.name) + ".wc")
		return retry.IsLockWait(err)
	})
	return func() {
		t.Helper()
		if !killed(d, id) || <-done == nil {
			t.Fatal("the statement was not given up")
		}
		testbed.Eventually(t, patience, "the table may be read", func() bool {
			_, err := s.conn.Execute("SHOW CREATE TABLE " + ddl.Quote(d.name) + ".wc")
			return err == nil
		})
	}
}

// questions is a connection for questions.
func questions(t *testing.T, d *database) *session {
	t.Helper()
	o := d.options()
	o, err := o.withDefaults()
	testbed.Must(t, err)
	s, err := o.connect(t.Context(), time.Minute)
	testbed.Must(t, err)
	t.Cleanup(s.close)
	return s
}

// TestAWaitForALockIsLostOnce asks about a table that a statement has for itself, and about one that is only slow to be
// asked about.
func TestAWaitForALockIsLostOnce(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			giveUp := renames(t, d)
			isMariaDB := strings.HasPrefix(k.name, "MariaDB")
			for _, c := range []struct {
				question string
				lost     bool
			}{
				{"SELECT SLEEP(2), TABLE_NAME FROM information_schema.TABLES LIMIT 1", false},
				{"SHOW CREATE TABLE DB.p", false},
				{"SHOW CREATE TABLE DB.wc", true},
				{"SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_NAME = 'wc'", isMariaDB},
			} {
				s := questions(t, d)
				testbed.Must(t, s.waitFor(lockBriefly))
				err := s.exec(strings.ReplaceAll(c.question, "DB", d.name))
				if err != nil && !retry.IsLockWait(err) {
					t.Fatal(err)
				}
				r, err := s.row("SELECT @@lock_wait_timeout")
				testbed.Must(t, err)
				wait := "1"
				if isMariaDB {
					wait = "0" // it is the session that waits
				}
				if s.lost != c.lost || (s.locks.lost == 1) != c.lost || r[0] != wait || (s.wait == 0) != c.lost {
					t.Errorf("%s: lost: %t, and then %s s are waited, want %t and %s s", c.question, s.lost, r[0], c.lost, wait)
				}
			}
			giveUp()
		})
	}
}

// TestOtherTablesAreReadWhileOneIsAltered has a statement have a table for itself, also while it is connected again:
// MariaDB then says nothing of the table, nor of its foreign keys.
func TestOtherTablesAreReadWhileOneIsAltered(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			r := readFamily(t, d, newRecorder())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.wc values (50,1)")
			r.synced()
			giveUp := renames(t, d)
			r.synced()
			for range 2 {
				dropLine(t, d, r.running)
				r.synced()
			}
			giveUp()
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("after a row of the parent was deleted", "wc")
			d.exec("insert into DB.wc values (51,2)")
			r.await(t, "a row of the table", func() bool {
				return slices.Contains(r.texts(), "insert "+d.name+".wc (51,2)")
			})
		})
	}
}

// TestAForeignKeyThatIsMadeWhileItIsAskedForCounts has the statement that makes a foreign key end when the server has
// said which there are, which is what there was before, and is yet to say whether the table may be read.
func TestAForeignKeyThatIsMadeWhileItIsAskedForCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple("")...)
			testbed.Must(t, d.HoldCommits(t.Context(), time.Hour))
			altered, made := make(chan error, 1), make(chan error, 1)
			var begun atomic.Bool
			o := d.options()
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				return &listened{c, "* FROM " + ddl.Quote(d.name) + ".`wc`", &begun, sync.OnceFunc(func() {
					made <- errors.Join(d.ReleaseCommits(context.Background()), <-altered)
				})}, err
			}
			o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "" || table[0] == 'w') }
			r := &cascadeReader{reading(t, newRecorder(), o), d}
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			begun.Store(true)
			go func() {
				altered <- d.ExecContext(context.Background(), "alter table "+d.name+
					".wc add constraint c foreign key (p) references "+d.name+".p (id) on delete cascade")
			}()
			testbed.Must(t, <-made)
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("after a row of the new parent was deleted", "wc")
		})
	}
}

// listened is a connection that calls when a statement is sent, before it is, once that has begun.
type listened struct {
	net.Conn
	statement string
	begun     *atomic.Bool
	call      func()
}

func (c *listened) Write(b []byte) (int, error) {
	if c.begun.Load() && bytes.Contains(b, []byte(c.statement)) {
		c.call()
	}
	return c.Conn.Write(b)
}

// dropLine has the reader lose its connection, and waits until it has another.
func dropLine(t *testing.T, d *database, r *running) {
	t.Helper()
	n := r.connects()
	var id int
	testbed.Must(t, d.DB().QueryRow("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'").Scan(&id))
	if !killed(d, id) {
		t.Fatal("the dump cannot be killed")
	}
	testbed.Eventually(t, patience, "it is connected again", func() bool { return r.connects() > n })
}

// TestATableThatWasAlteredPastTheBinlogAndIsLockedHoldsUpNoOther has to compare a table that differs from what is known
// of it, and cannot.
func TestATableThatWasAlteredPastTheBinlogAndIsLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		if k.name != "MariaDBWithoutNames" && k.name != "MySQLNativeWithoutNames" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), "create table DB.t (id int primary key, a int, b int)",
				"create table DB.other (id int primary key)")
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("insert into DB.t values (1,2,3)", "insert into DB.other values (1)")
			want := []string{"insert DB.t (id=1,a=2,b=3)", "insert DB.other (id=1)", "insert DB.other (id=2)"}
			r.wantRows(d, want[:2]...)
			d.exec(unlogged("alter table DB.t modify column b int first")...)
			unlock := lock(t, d, "t")
			dropLine(t, d, r)
			d.exec("insert into DB.other values (2)")
			r.wantRows(d, want...)
			marks := len(r.marks)
			r.await(t, "heartbeats for longer than one look is after another", func() bool {
				return len(r.marks) > marks+int(2*(lookEach+presentFor)/r.canal.o.Heartbeat)
			})
			if got := altered(r.doubts); len(got) > 0 {
				t.Errorf("in doubt while it is locked: %q", got)
			}
			unlock()
			testbed.Eventually(t, patience, "what it is now is found", func() bool {
				return slices.Equal(altered(r.doubts), []string{d.name + ".t"})
			})
			d.exec("insert into DB.t (id,a,b) values (4,5,6)")
			r.wantRows(d, append(want, "insert DB.t (b=6,id=4,a=5)")...)
		})
	}
}
