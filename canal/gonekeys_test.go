package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// wantDoubted checks which tables are in doubt since it was last asked.
func (r *cascadeReader) wantDoubted(what, want string) {
	r.t.Helper()
	if got := r.doubted(); got != want {
		r.t.Errorf("%s: in doubt: %q, want %q", what, got, want)
	}
}

// couple are a parent and a wanted child, with a foreign key or without.
func couple(key string) []string {
	return []string{
		"create table DB.p (id int primary key)", "create table DB.wc (id int primary key, p int" + key + ")",
		"create table DB.wsync (id int primary key auto_increment)",
		"insert into DB.p values (1),(2),(3)", "insert into DB.wc values (1,1),(2,2),(3,3)",
	}
}

const coupled = ", foreign key (p) references DB.p (id) on delete cascade on update cascade"

// A foreign key may be there for one DELETE only, and be gone when the server is asked for it.
func TestAForeignKeyThatCameAndWentCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple("")...)
			rec := newRecorder()
			r := readFamily(t, d, rec)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			once := func(id int) {
				d.exec("alter table DB.wc add constraint c foreign key (p) references DB.p (id) on delete cascade",
					fmt.Sprintf("delete from DB.p where id=%d", id), "alter table DB.wc drop foreign key c")
			}
			once(1)
			r.wantDoubted("while it is read", "wc")
			d.exec("insert into DB.p values (4)", "delete from DB.p where id=4")
			r.wantDoubted("without the foreign key", "")
			testbed.Must(t, r.stop())
			once(2)
			r = readFamily(t, d, startAt(rec.pos))
			r.wantDoubted("while nobody reads", "wc")
		})
	}
}

// Where nothing was saved with the position, nobody knows which foreign keys there were.
func TestAForeignKeyThatWasThereBeforeAPositionByHandCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(strings.Replace(coupled, "foreign", "constraint c foreign", 1))...)
			p := here(t, d.Server)
			d.exec("delete from DB.p where id=1", "alter table DB.wc drop foreign key c")
			r := readFamily(t, d, startAt(p))
			r.wantDoubted("from before", "wc")
			d.exec("alter table DB.wc add constraint c foreign key (p) references DB.p (id)", "alter table DB.wc drop foreign key c")
			r.wantDoubted("one that refuses, and is not of before", "")
		})
	}
}

// A MySQL that logs what foreign keys change does not do so for what its source has not logged.
func TestAReplicaOfAServerThatDoesNotLogWhatForeignKeysChange(t *testing.T) {
	t.Parallel()
	source, replica := testbed.MySQL(t, "--innodb-native-foreign-keys=ON"), testbed.MySQL(t)
	replica.Follow(t, source)
	d := newDatabase(t, source, couple(coupled)...)
	testbed.Eventually(t, patience, "the replica has all", func() bool { return replica.GTIDs(t) == source.GTIDs(t) })
	o := d.options()
	o.Address = replica.Addr
	o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "" || table[0] == 'w') }
	r := &cascadeReader{reading(t, newRecorder(), o), d}
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("delete from DB.p where id=1")
	r.wantDoubted("of the source", "wc")
	replica.Exec(t, "delete from "+d.name+".p where id=2")
	r.wantDoubted("of its own, which has events", "")
}

// A MySQL becomes a replica of one that does not log what foreign keys change, while it is read.
func TestAServerThatBecomesAReplicaWhileItIsRead(t *testing.T) {
	t.Parallel()
	source, replica := testbed.MySQL(t, "--innodb-native-foreign-keys=ON"), testbed.MySQL(t)
	d := newDatabase(t, replica, couple(coupled)...)
	r := readFamily(t, d, newRecorder())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("delete from DB.p where id=1")
	r.wantDoubted("of its own, which has events", "")
	of := d.on(source)
	of.exec(append(append([]string{"set sql_log_bin=0", "create database DB"}, couple(coupled)...),
		"delete from DB.p where id=1", "set sql_log_bin=1")...)
	replicate(t, replica, source)
	of.exec("delete from DB.p where id=2")
	testbed.Eventually(t, patience, "the replica has all", func() bool {
		return replica.QueryText(t, "select gtid_subset(?, @@gtid_executed)", source.GTIDs(t)) == "1"
	})
	r.wantDoubted("of its source", "wc")
	replica.Exec(t, "stop replica", "reset replica all")
	d.exec("delete from DB.p where id=3")
	r.wantDoubted("of its own again", "")
}

// What it logs as a statement has no events, whatever it does with foreign keys.
func TestAStatementOnAServerThatLogsWhatForeignKeysChange(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, testbed.MySQL(t), couple(coupled)...)
	r := readFamily(t, d, newRecorder())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("set binlog_format=STATEMENT", "delete from DB.p where id=1", "set binlog_format=ROW")
	r.wantDoubted("a statement", "wc")
	d.exec("delete from DB.p where id=2")
	r.wantDoubted("rows", "")
	d.exec("create table DB.wd (id int primary key, p int"+coupled+")", "set binlog_format=STATEMENT",
		"delete from DB.p where id=3", "set binlog_format=ROW")
	r.wantDoubted("a statement with one more child", "wc wd")
}
