package canal

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/proof/testbed"
)

// The right to a child is taken away: the server lists its foreign keys no more, and they are there all the same.
func TestAForeignKeyOfATableThatMayNoLongerBeReadCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(strings.Replace(coupled, "foreign", "constraint c foreign", 1))...)
			d.exec("insert into DB.p values (4),(5),(6),(7),(8),(9)")
			o := d.few("select on p", "select on wc", "select on wsync")
			o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "" || table[0] == 'w') }
			rec := newRecorder()
			r := &cascadeReader{reading(t, rec, o), d}
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(d.revoke("select on wc"), "alter table DB.p add column a int") // for which the server is asked
			r.synced()
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("while it is read", "wc")
			testbed.Must(t, r.stop())
			d.exec("alter table DB.p add column b int")
			r = &cascadeReader{reading(t, startAt(rec.pos), o), d}
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("delete from DB.p where id=2")
			r.wantDoubted("after a restart", "wc")
			d.exec("alter table DB.wc drop foreign key c")
			r.synced()
			d.exec("delete from DB.p where id=3")
			r.wantDoubted("once it is dropped", "")
			d.exec("delete from DB.wc where p=3",
				"alter table DB.wc add constraint c2 foreign key (p) references DB.p (id) on delete cascade",
				"alter table DB.p add column c int")
			r.synced()
			d.exec("delete from DB.p where id=4")
			r.wantDoubted("one that was made since", "wc")
			d.exec("rename table DB.wc to DB.wd", "alter table DB.p add column d int")
			r.synced()
			d.exec("delete from DB.p where id=5")
			r.wantDoubted("of a child that has another name", "wd")
			d.exec(d.grant("select on wd"), "alter table DB.p add column e int")
			r.synced()
			d.exec("delete from DB.p where id=6")
			r.wantDoubted("once it may be read", "wd")
			d.exec("alter table DB.wd drop foreign key c2")
			r.synced()
			d.exec("delete from DB.p where id=7")
			r.wantDoubted("once it may be read, and it is dropped", "")
		})
	}
}

// readForAWhile reads as a user who may read the family, and returns what goes on from there, with changed options.
func readForAWhile(t *testing.T, d *database, change ...func(*Options)) (goOn func() *cascadeReader) {
	t.Helper()
	o := d.few("select on p", "select on wc", "select on wsync")
	o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "" || table[0] == 'w') }
	rec := newRecorder()
	r := &cascadeReader{reading(t, rec, o), d}
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	r.synced()
	testbed.Must(t, r.stop())
	return func() *cascadeReader {
		for _, f := range change {
			f(&o)
		}
		return &cascadeReader{reading(t, startAt(rec.pos), o), d}
	}
}

// lock locks tables until the function is called that it returns.
func lock(t *testing.T, d *database, tables ...string) (unlock func()) {
	t.Helper()
	c, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var all []string
	for _, name := range tables {
		all = append(all, d.name+"."+name+" write")
	}
	_, err = c.ExecContext(t.Context(), "lock tables "+strings.Join(all, ", "))
	testbed.Must(t, err)
	return func() {
		t.Helper()
		_, err := c.ExecContext(t.Context(), "unlock tables")
		testbed.Must(t, err)
	}
}

// The right is taken away while nobody reads.
func TestAForeignKeyIsHiddenWhileNobodyReads(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			goOn := readForAWhile(t, d)
			d.exec(d.revoke("select on wc"), "delete from DB.p where id=1")
			r := goOn()
			r.wantDoubted("from before", "wc")
			d.exec("delete from DB.p where id=2")
			r.wantDoubted("from now on", "wc")
			d.exec("drop table DB.wc")
			r.synced()
			d.exec("delete from DB.p where id=3")
			r.wantDoubted("once its table is dropped", "")
		})
	}
}

// The child may be read, and of the parent nothing is known: the server lists the foreign key.
func TestAForeignKeyOfAParentThatMayNotBeSeenCounts(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			o := d.few("select on wc", "select on wsync")
			o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "" || table[0] == 'w') }
			r := &cascadeReader{reading(t, newRecorder(), o), d}
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("a row of the parent", "wc")
		})
	}
}

// A foreign key that leads to no wanted table may do so with another one, and be gone before the stream is there.
func TestAForeignKeyBetweenOthersThatIsGoneCounts(t *testing.T) {
	t.Parallel()
	const between = "alter table DB.mid add constraint b foreign key (p) references DB.p (id) on delete cascade"
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), append(couple(""),
				"create table DB.mid (id int primary key, p int)", "insert into DB.mid values (1,1),(2,2),(3,3)", between)...)
			once := []string{
				"alter table DB.wc add constraint c foreign key (p) references DB.mid (id) on delete cascade",
				"delete from DB.p where id=1", "alter table DB.mid drop foreign key b", "alter table DB.wc drop foreign key c",
			}
			rec := newRecorder()
			r := readFamily(t, d, rec)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			r.synced()
			testbed.Must(t, r.stop())
			d.exec(once...)
			rec = startAt(rec.pos)
			r = readFamily(t, d, rec)
			r.wantDoubted("one that was there before", "wc")
			testbed.Must(t, r.stop())
			once[1] = strings.Replace(once[1], "id=1", "id=2", 1)
			d.exec(append([]string{between}, once...)...)
			r = readFamily(t, d, startAt(rec.pos))
			r.wantDoubted("one that came and went", "wc")
			d.exec("insert into DB.p values (7)", "delete from DB.p where id=7")
			r.wantDoubted("without both", "")
		})
	}
}

// TestForeignKeysAreFollowedOverStatements looks at what becomes of the foreign keys that are known.
func TestForeignKeysAreFollowedOverStatements(t *testing.T) {
	n := func(name string) ddl.Name { return ddl.Name{Schema: "s", Table: name} }
	for statement, want := range map[string]string{
		"DROP TABLE c":                           "",
		"DROP TABLE IF EXISTS c, d":              "",
		"DROP TABLE p":                           "c.x->p.y",
		"DROP DATABASE s":                        "",
		"ALTER TABLE c DROP FOREIGN KEY K":       "",
		"ALTER TABLE c DROP FOREIGN KEY other":   "c.x->p.y",
		"ALTER TABLE p DROP CONSTRAINT k":        "c.x->p.y",
		"ALTER TABLE c CHANGE X z INT":           "c.z->p.y",
		"ALTER TABLE p RENAME COLUMN y TO z":     "c.x->p.z",
		"RENAME TABLE c TO d":                    "d.x->p.y",
		"RENAME TABLE p TO q":                    "c.x->p.y c.x->q.y",
		"RENAME TABLE c TO d, d TO e":            "e.x->p.y",
		"ALTER TABLE c RENAME TO d":              "d.x->p.y",
		"CREATE OR REPLACE TABLE c (x INT)":      "",
		"CREATE TABLE IF NOT EXISTS c (x INT)":   "c.x->p.y",
		"ALTER TABLE c FROB, DROP FOREIGN KEY k": "c.x->p.y",
		"TRUNCATE TABLE c":                       "c.x->p.y",
		"ALTER TABLE c ADD FOREIGN KEY (a) REFERENCES far (b) ON DELETE CASCADE": "c.->far. c.x->p.y",
	} {
		l, _ := fed(t)
		c := &l.tables.cascading
		c.silent = true
		c.now = []foreignKey{{
			Name: "k", Child: n("c"), Parent: n("p"), Columns: []string{"x"}, Referenced: []string{"y"}, OnDelete: cascades,
		}}
		st := ddl.Parse([]byte(statement), &ddl.Session{Schema: []byte("s"), MariaDB: true})
		l.o.Wanted = func(string, string) bool { return false }
		c.follow(l.tables, &st, []byte(statement))
		var got []string
		for _, k := range c.now {
			got = append(got, k.Child.Table+"."+k.Columns[0]+"->"+k.Parent.Table+"."+k.Referenced[0])
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", statement, got, want)
		}
	}
}

// The right to a child is taken away while nobody reads, but for some columns, and the child is locked when the server
// is asked: it does not say then that the others may not be read.
func TestAForeignKeyIsHiddenWhileItsTableIsLocked(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			goOn := readForAWhile(t, d)
			d.exec(d.revoke("select on wc"), d.grant("select (id) on wc"))
			unlock := lock(t, d, "wc", "p")
			r := goOn()
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			unlock()
			r.synced()
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("once it is unlocked", "wc")
		})
	}
}

// The connection is lost while it is found out what the server hides.
func TestAForeignKeyIsHiddenThoughTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	for _, k := range silentServers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, k.start(t, k.args...), couple(coupled)...)
			var begun atomic.Bool
			begun.Store(true)
			cut := make(chan struct{})
			goOn := readForAWhile(t, d, func(o *Options) {
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, address)
					return &listened{c, "* FROM " + ddl.Quote(d.name) + ".`wc`", &begun, func() {
						if begun.CompareAndSwap(true, false) {
							c.Close()
							close(cut)
						}
					}}, err
				}
			})
			d.exec(d.revoke("select on wc"), d.grant("select (id) on wc"))
			unlock := lock(t, d, "wc")
			r := goOn()
			select {
			case <-cut:
			case <-time.After(patience):
				t.Fatal("it is not asked whether the table may be read")
			}
			unlock()
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			r.synced()
			d.exec("delete from DB.p where id=1")
			r.wantDoubted("once it is connected again", "wc")
		})
	}
}

func killed(d *database, id int) bool {
	_, err := d.DB().Exec(fmt.Sprint("KILL ", id))
	return err == nil
}
