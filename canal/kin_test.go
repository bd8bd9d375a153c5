package canal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// readUpTo reads a server from a position to its end, and returns what the checkpoint says then.
func readUpTo(t testing.TB, s *testbed.Server, from event.Position) event.Position {
	t.Helper()
	r := reading(t, startAt(from), Options{Address: s.Addr, UntilCaughtUp: true})
	testbed.Must(t, r.wait())
	return r.Position()
}

// standby is the look of a reader of s at the checkpoint that another one writes.
type standby struct {
	t testing.TB
	k *Kin
	p event.Position
}

func standsBy(t testing.TB, s *testbed.Server) *standby {
	t.Helper()
	k, err := NewKin(Options{
		Source: "shop", Address: s.Addr, User: "root", Alarms: newBoard(t, quietLogger(t)),
		Logger: quietLogger(t),
	})
	testbed.Must(t, err)
	return &standby{t: t, k: k}
}

func (s *standby) compare() error {
	s.t.Helper()
	return s.k.Compare(s.t.Context(), func(context.Context) (event.Position, error) { return s.p, nil })
}

// quiet wants no more than one look to find nothing wrong.
func (s *standby) quiet(when string) {
	s.t.Helper()
	if err := s.compare(); err != nil {
		s.t.Fatalf("%s: %v", when, err)
	}
	if raised := s.k.o.Alarms.Records(); len(raised) != 0 {
		s.t.Fatalf("%s: alarms %+v", when, raised)
	}
}

// wantForeign wants a ForeignError that names both servers and says this.
func wantForeign(t testing.TB, err error, p event.Position, words ...string) {
	t.Helper()
	foreign := (*ForeignError)(nil)
	if !errors.As(err, &foreign) || !errors.Is(err, retry.ErrHalt) {
		t.Fatalf("%v, want a ForeignError", err)
	}
	for _, w := range append(words, p.Server, foreign.Address, foreign.Server, "source.name") {
		if w == "" || !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not said in %q", w, err)
		}
	}
}

// A replica may lag, stop, and take the place of the first server, at any of which it is looked at.
func TestAReplicaIsNoOtherDatabase(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		begin := here(t, p.first)
		looks := standsBy(t, p.second)
		looks.p = begin
		looks.quiet("before anything is finished")
		p.replicate()
		p.hold()
		d.exec("insert into DB.t values (1)", "begin", "insert into DB.t values (2)", "commit")
		looks.p = readUpTo(t, p.first, begin)
		for range 2 {
			looks.quiet("while it does not replicate")
		}
		d.exec("insert into DB.t values (3)")
		p.replicate()
		looks.quiet("while it is ahead of the checkpoint")
		if looks.k.known == "" {
			t.Error("it is not known to be the same database")
		}
		// Another process looks once it has been promoted.
		looks.p = readUpTo(t, p.first, looks.p)
		p.promote()
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (4)")
		promoted := standsBy(t, p.second)
		promoted.p = looks.p
		promoted.quiet("after it was promoted")
		if promoted.k.known == "" {
			t.Error("it is not known to be the same database")
		}
		// The first server stands by for the second, alone and without what came since.
		first := standsBy(t, p.first)
		first.p = readUpTo(t, p.second, promoted.p)
		for range 2 {
			first.quiet("the old one, which nobody has made a replica yet")
		}
	})
}

// A replica of MariaDB 10.11 says of a transaction when its last rows were changed, the server that made it when COMMIT
// came: it is not known by that. On MariaDB 11.8 it is.
func TestAReplicaOfALongTransactionIsNoOtherDatabase(t *testing.T) {
	t.Parallel()
	p := newReplicas(t, testbed.MariaDB, true)
	d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
	begin := here(t, p.first)
	p.replicate()
	replica := here(t, p.second)
	d.exec("set timestamp=1700000000", "begin", "insert into DB.t values (1)", "set timestamp=1700003600", "commit")
	p.replicate()
	for _, way := range []struct {
		from, to *testbed.Server
		begin    event.Position
		known    bool // on every version
	}{{p.first, p.second, begin, false}, {p.second, p.first, replica, true}} {
		looks := standsBy(t, way.to)
		looks.p = readUpTo(t, way.from, way.begin)
		for range 2 {
			looks.quiet("with the checkpoint of " + way.from.Addr)
		}
		if way.known && looks.k.known == "" {
			t.Errorf("%s is not known to have the database of %s", way.to.Addr, way.from.Addr)
		}
	}
}

// promote ends the second server's life as a replica.
func (p *replicas) promote() {
	p.t.Helper()
	p.hold()
	if p.mariadb {
		p.second.Exec(p.t, "reset slave all")
		return
	}
	p.second.Exec(p.t, "reset replica all")
}

// onTwo runs a test on two servers of each kind that has GTIDs. Those of MariaDB have the same server id, as is its
// default, or not.
func onTwo(t *testing.T, f func(t *testing.T, kind string, first, second *testbed.Server)) {
	t.Parallel()
	for kind, start := range map[string]func(testing.TB) *testbed.Server{
		"MySQL":         func(t testing.TB) *testbed.Server { return testbed.MySQL(t) },
		"MariaDB":       func(t testing.TB) *testbed.Server { return testbed.MariaDB(t) },
		"MariaDBSameID": func(t testing.TB) *testbed.Server { return testbed.MariaDB(t, "--server-id=1") },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, kind, start(t), start(t))
		})
	}
}

// A server that was set up from a backup has the transactions of the other, though it has logged none of them, and
// replicates from nobody yet.
func TestAServerThatWasSetUpFromABackupIsNoOtherDatabase(t *testing.T) {
	onTwo(t, func(t *testing.T, kind string, first, second *testbed.Server) {
		d := newDatabase(t, first, "create table DB.t (id int primary key)")
		begin := here(t, first)
		d.exec("insert into DB.t values (1)")
		has := first.GTIDs(t)
		p := readUpTo(t, first, begin)
		looks := standsBy(t, second)
		looks.p = p
		looks.quiet("while it is empty")
		if kind == "MySQL" {
			second.Exec(t, "set global gtid_purged='"+has+"'")
		} else {
			second.Exec(t, "set global gtid_slave_pos='"+has+"'")
		}
		d.exec("insert into DB.t values (2)")
		for range 2 {
			looks.quiet("as of the backup")
			looks.p = readUpTo(t, first, looks.p)
		}
	})
}

// A server that is brought up to date by hand, from a backup and the binlogs after it, lacks less at each look.
func TestAServerThatIsRestoredByHandIsNoOtherDatabase(t *testing.T) {
	t.Parallel()
	first, second := testbed.MySQL(t), testbed.MySQL(t)
	d := newDatabase(t, first, "create table DB.t (id int primary key)")
	begin := here(t, first)
	backup := first.GTIDs(t)
	d.exec("insert into DB.t values (1)", "insert into DB.t values (2)")
	second.Exec(t, "set global gtid_purged='"+backup+"'")
	looks := standsBy(t, second)
	looks.p = readUpTo(t, first, begin)
	looks.quiet("as of the backup")
	next := first.QueryText(t, "select concat(@@server_uuid, ':3')")
	second.Exec(t, "set gtid_next='"+next+"'", "begin", "commit", "set gtid_next=automatic")
	for range 2 {
		looks.quiet("with one of two transactions")
	}
	second.Exec(t, "create database other")
	wantForeign(t, looks.compare(), looks.p, "executes others")
}

// longAgo makes a database whose rows were committed long ago, which tells them from those of the same number
// elsewhere. It returns the position after them.
func longAgo(t testing.TB, s *testbed.Server) (*database, event.Position) {
	t.Helper()
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	begin := here(t, s)
	d.exec("set timestamp=1700000000", "insert into DB.t values (1), (2), (3)", "set timestamp=default")
	return d, readUpTo(t, s, begin)
}

// Each of two databases has a life of its own.
func TestAnotherDatabaseUnderTheNameIsFound(t *testing.T) {
	onTwo(t, func(t *testing.T, kind string, first, second *testbed.Server) {
		_, p := longAgo(t, first)
		looks := standsBy(t, second)
		looks.p = p
		looks.quiet("while it is empty")
		other := newDatabase(t, second, "create table DB.t (id int primary key)", "flush binary logs")
		switch kind {
		case "MySQL":
			wantForeign(t, looks.compare(), p, "it has no transaction of any server that the checkpoint names")
			return
		case "MariaDB": // it is not far enough yet for one look
			looks.k.last = sighting{}
			p.GTIDs.Add(beyond(p, 100))
			looks.p = p
			looks.quiet("at the first look")
			other.exec("insert into DB.t values (1)")
			wantForeign(t, looks.compare(), p, "executes others")
			for n := range 100 {
				other.exec("insert into DB.t values (" + string(rune('0'+n/10)) + string(rune('0'+n%10)) + "+100)")
			}
			wantForeign(t, looks.compare(), p, "it has gone beyond the number")
		default:
			other.exec("insert into DB.t values (1)", "insert into DB.t values (2)")
			wantForeign(t, looks.compare(), p, "was not committed when the checkpoint's of that number was")
		}
	})
}

// beyond returns the last transaction of a position of MariaDB with a higher number.
func beyond(p event.Position, by uint64) (g event.GTID) {
	p.GTIDs.Each(func(r event.GTIDRange) {
		g = r.First
		g.Number = r.Last + by
	})
	return g
}

// A replica of another database has as little of the checkpoint as that one.
func TestAReplicaOfAnotherDatabaseIsFound(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t)
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	p := newReplicas(t, testbed.MySQL, false)
	newDatabase(t, p.first, "create table DB.t (id int primary key)")
	looks := standsBy(t, p.second)
	begin := here(t, s)
	d.exec("insert into DB.t values (1)")
	looks.p = readUpTo(t, s, begin)
	p.replicate()
	wantForeign(t, looks.compare(), looks.p, "neither it nor what it replicates")
}

// A leader must not go on in another database from where it was in the first one.
func TestAnotherDatabaseIsNotReadFromTheCheckpointOfTheFirst(t *testing.T) {
	onTwo(t, func(t *testing.T, _ string, first, second *testbed.Server) {
		d, p := longAgo(t, first)
		other := d.on(second)
		second.MayRead(t, other.readable())
		other.exec("create database DB", "create table DB.t (id int primary key)", "insert into DB.t values (1)",
			"insert into DB.t values (2)")
		for range 2 {
			r := reading(t, startAt(p), other.options())
			wantForeign(t, r.wait(), p)
			if len(r.rows) != 0 || len(r.raises) != 0 {
				t.Errorf("rows %v were read, epochs %v", r.texts(), r.raises)
			}
			if found := r.doubts.List(); len(found) != 1 || found[0].Cause != alarm.SourceShared ||
				!strings.Contains(found[0].Message, p.Server) {
				t.Errorf("doubts %+v", found)
			}
		}
	})
}

// Servers that were copied have the same identity; when their binlogs were begun tells them apart.
func TestAnotherServerOfTheSameIdentityIsFound(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		begin := here(t, s)
		d.exec("insert into DB.t values (1)")
		r := reading(t, startAt(begin), d.options())
		r.await(t, "the row and its end", func() bool { return len(r.rows) == 1 && r.commits > 0 })
		testbed.Must(t, r.stop())
		looks := standsBy(t, s)
		looks.p = r.Position()
		looks.quiet("the server itself")
		born, rest, err := splitBegun(looks.p.State)
		testbed.Must(t, err)
		if born.file != looks.p.File {
			t.Fatalf("the checkpoint at %s says when %s was begun", looks.p.File, born.file)
		}
		born.at--
		looks = standsBy(t, s)
		looks.p = r.Position()
		looks.p.State = born.join(rest)
		wantForeign(t, looks.compare(), looks.p, "the same identity")
	})
}

// Without GTIDs another server cannot go on, whatever it holds: that is said before it has to.
func TestAStandbyThatCannotTakeOverSaysSo(t *testing.T) {
	t.Parallel()
	args := []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}
	first, second := testbed.MySQL(t, args...), testbed.MySQL(t, args...)
	looks := standsBy(t, second)
	looks.p = here(t, first)
	testbed.Must(t, looks.compare())
	said := looks.k.o.Alarms.Records()
	if len(said) != 1 || said[0].Kind != alarm.SourceBehind || !strings.Contains(said[0].Message, looks.p.Server) ||
		!strings.Contains(said[0].Message, "source.name") {
		t.Errorf("alarms %+v", said)
	}
	looks = standsBy(t, first)
	looks.p = here(t, first)
	looks.quiet("the server itself")
}
