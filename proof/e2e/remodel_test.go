package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

// remodel is mapped tables whose definitions change, one after the other, while clients write their rows, readers fill
// the cache from them, and freshet writes the same values from the rows in the binlog. A column that is taken for
// another one shows in a value, or in the name of a key.
type remodel struct {
	*rig
	rnd              *rand.Rand
	tables           []*modelled
	clients          load
	writers, readers flock
	value            atomic.Int64
	written, refused atomic.Int64
	fills            atomic.Int64
	mixed            sync.Map // keys that held what another column says, with what they held
	late             int      // how many changes freshet read after they were over
	names            bool     // the binlog names columns
	doubts           seenDoubts
}

// modelled is one of the tables, with the change that comes to it.
type modelled struct {
	*change
	name string // of the table in shop, and what its keys begin with
	// unread says that rows of before the change may be the first of the table that freshet reads, and that it may read
	// them after the change: where the binlog names no columns, nobody knows then what they were.
	unread bool
}

func (t *modelled) full() string { return "shop." + t.name }

// in has a statement be about the table.
func (t *modelled) in(statement string) string {
	return strings.ReplaceAll(statement, "TABLE1", t.full())
}

// The columns of the tables, unless a change says otherwise. Each has values that no other has: see put.
const (
	modelColumns = "id INT NOT NULL, a VARCHAR(20) NOT NULL DEFAULT 'a0', x VARCHAR(20) NOT NULL DEFAULT 'x0', " +
		"n INT NOT NULL DEFAULT 0, b VARCHAR(20) NOT NULL DEFAULT 'bé0', m INT NOT NULL DEFAULT 1000000001, " +
		"c INT NOT NULL DEFAULT 1"
	modelKeys = ", PRIMARY KEY (id), KEY (c)"
	modelRows = 40 // that clients write and read
	kindsOfC  = 8  // how many values c has
)

// mapping writes a value from the row, and deletes the key of a list, which is named by another column.
func (t *modelled) mapping() string {
	return fmt.Sprintf(`  - table: %[1]s
    keys: ["%[2]s:{id}"]
    rebuild: {from: row, as: string, value: "{id}/{a}/{b}/{n}/{m}/{c}"}
  - table: %[1]s
    keys: ["%[2]s:of:{c}"]
`, t.full(), t.name)
}

// settings are the servers with what their binlogs say of columns.
var modelSettings = []struct {
	flavor, metadata string
	start            func(testing.TB, ...string) *testbed.Server
}{
	{"mysql", "FULL", testbed.MySQL},
	{"mysql", "MINIMAL", testbed.MySQL},
	{"mariadb", "FULL", testbed.MariaDB},
	{"mariadb", "MINIMAL", testbed.MariaDB},
	{"mariadb", "NO_LOG", testbed.MariaDB},
}

// Whatever is done to the definition of a table under load, in plain statements or by the tools that copy tables, no
// key is stale in the end, and no value ever holds what another column says. freshet is never restarted. What it
// doubts is the table that changed and no other, and that ends by itself or by its answer. Its user has the rights that
// the documentation names, and no others.
func TestSchemaChangesUnderLoadLeaveNoKeyStale(t *testing.T) {
	t.Parallel()
	for _, s := range testbed.Some(t, modelSettings) {
		t.Run(s.flavor+" "+s.metadata, func(t *testing.T) {
			source := s.start(t, "--binlog-row-metadata="+s.metadata)
			r := newRemodel(t, source, modelChanges(source.Flavor))
			r.names = s.metadata == "FULL"
			for batch := range slices.Chunk(r.chosen(), 6) {
				r.changeAll(batch)
			}
			r.stop()
			t.Logf("%d writes, %d refused; %d fills; %d changes read late", r.written.Load(), r.refused.Load(),
				r.fills.Load(), r.late)
		})
	}
}

func newRemodel(t *testing.T, source *testbed.Server, changes []*change) *remodel {
	t.Helper()
	r := &remodel{rig: newRig(t, source), rnd: testbed.Seeded(t)}
	crowded(source)
	statements := []string{"CREATE DATABASE shop CHARACTER SET utf8mb4", "CREATE DATABASE attic CHARACTER SET utf8mb4"}
	text := "mappings:\n"
	var rights []string
	leavesOut := leavesGeneratedOut(t, source)
	for _, c := range changes {
		if leavesOut && strings.HasPrefix(c.name, "a mapped one is") { // computed, and so not in the rows
			c.doubts = append(slices.Clone(c.doubts), "key_column_absent")
		}
		m := &modelled{change: c, name: c.table()}
		r.tables = append(r.tables, m)
		statements = append(statements, m.in("CREATE TABLE TABLE1 "+c.definition()))
		rights = append(rights, m.full())
		text += m.mapping()
	}
	source.Exec(t, append(statements, "REVOKE SELECT ON shop.* FROM freshet@'%'")...)
	r.mayRead(rights...)
	r.cfg.d, r.cfg.mappings = loadD, text
	r.configure()
	r.run()
	r.doubts.start(r.rig)
	t.Cleanup(func() { _, _, _ = r.writers.stop(), r.readers.stop(), r.doubts.flock.stop() })
	return r
}

// chosen are the changes that come this time, in the order of this time. One of the tools' is among them.
func (r *remodel) chosen() []*modelled {
	all := slices.Clone(r.tables)
	r.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if only := modelOnly(); only != nil {
		return slices.DeleteFunc(all, func(m *modelled) bool { return !only.MatchString(m.change.name) })
	}
	if !testbed.Soak() {
		tool := slices.IndexFunc(all, (*modelled).byTool)
		all[0], all[tool] = all[tool], all[0]
		all = all[:5]
	}
	return all
}

// changeAll has changes come to some tables, under load, and compares what is cached in the end.
func (r *remodel) changeAll(tables []*modelled) {
	r.t.Helper()
	r.load(tables)
	for _, m := range tables {
		r.change(m)
	}
	r.isRight(tables)
}

// isRight ends the load, and fails the test for keys that are stale and doubts that nothing gives cause to.
func (r *remodel) isRight(tables []*modelled) {
	r.t.Helper()
	r.quieten()
	r.compare(tables).verify(r.t)
	r.writesAll(tables)
	for _, line := range r.doubts.wrong(r.tables) {
		r.t.Error(line)
	}
	r.mixed.Range(func(key, value any) bool {
		r.t.Errorf("%s was cached as %q: columns are mixed up", key, value)
		return true
	})
	r.noComplaints()
}

// change has the change of a table come. Half of the time freshet gets to read of it only when it is over, so that
// what it asks the server is newer than what it reads.
func (r *remodel) change(m *modelled) {
	r.t.Helper()
	began := time.Now()
	if m.unread = !r.names && r.rnd.IntN(3) == 0; !m.unread {
		r.source.Exec(r.t, m.in(twoRows))
		r.finish(3 * time.Minute)
	}
	late := r.rnd.IntN(2) == 0
	if late {
		r.late++
		r.binlog.HoldAfter(0)
	}
	conn, err := r.source.DB().Conn(r.t.Context())
	testbed.Must(r.t, err)
	defer conn.Close()
	a := &alteration{remodel: r, table: m, conn: conn}
	a.touch()
	if m.run != nil {
		m.run(a)
	}
	for _, s := range m.do {
		a.do(m.in(s))
		a.touch()
	}
	_, err = conn.ExecContext(r.t.Context(), resetSession[r.source.Flavor])
	testbed.Must(r.t, err)
	if late {
		r.binlog.Release()
	}
	took := time.Since(began).Round(time.Millisecond)
	r.t.Logf("%s: %s, read late: %v, unknown till then: %v", m.change.name, took, late, m.unread)
}

// resetSession undoes what changes set: the connection goes back to where clients take theirs from.
var resetSession = map[testbed.Flavor]string{
	testbed.FlavorMySQL: "SET SESSION sql_log_bin = 1, sql_mode = DEFAULT, sql_generate_invisible_primary_key = DEFAULT, " +
		"foreign_key_checks = 1",
	testbed.FlavorMariaDB: "SET SESSION sql_log_bin = 1, sql_mode = DEFAULT, binlog_alter_two_phase = DEFAULT, " +
		"foreign_key_checks = 1",
}

// alteration is a change under way.
type alteration struct {
	*remodel
	table *modelled
	conn  *sql.Conn
}

// do runs a statement; one that begins with ! may be refused. While clients replace rows, MySQL may find a key twice
// that it makes online: then it is made again.
func (a *alteration) do(statement string) {
	a.t.Helper()
	s := strings.TrimPrefix(statement, "!")
	_, err := a.conn.ExecContext(a.t.Context(), s)
	for deadlock(err) || duplicate(err) && s == statement {
		_, err = a.conn.ExecContext(a.t.Context(), s)
	}
	if err != nil && (s == statement || !refusal(err)) {
		a.t.Fatalf("%s: %s: %v", a.table.change.name, s, err)
	}
}

// duplicate reports whether a key was there twice.
func duplicate(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1062
}

// touch writes some rows, so that some stand between any two statements.
func (a *alteration) touch() {
	a.t.Helper()
	for range 3 {
		testbed.Must(a.t, a.write(a.t.Context(), a.table, a.rnd))
	}
}

// quieten waits until writers write no more, all is answered, and no reader fills any more.
func (r *remodel) quieten() {
	r.t.Helper()
	testbed.Must(r.t, r.writers.stop())
	r.finish(3 * time.Minute)
	r.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	testbed.Must(r.t, r.readers.stop())
	r.finish(3 * time.Minute)
}

// noComplaints fails the test for faults in the log.
func (r *remodel) noComplaints() {
	r.t.Helper()
	for _, line := range complaints.FindAllString(r.proc.stderr.String(), 5) {
		r.t.Errorf("freshet complains: %s", line)
	}
}

// seenDoubts sees all doubts that come, also those that are answered.
type seenDoubts struct {
	flock
	mu   sync.Mutex
	seen map[string]admin.Doubt
}

func (w *seenDoubts) start(r *rig) {
	w.seen = map[string]admin.Doubt{}
	w.flock.start(1, func(ctx context.Context, _ int) error {
		for asked := 0; ctx.Err() == nil; asked++ {
			began := time.Now()
			all, err := r.client.ListDoubts(ctx)
			if err == nil {
				w.mu.Lock()
				for i := range all {
					w.seen[all[i].ID] = all[i]
				}
				w.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(testbed.Pause(asked, time.Since(began))):
			}
		}
		return nil
	})
}

// wrong says what is wrong with the doubts that came: a cause that a change has not, or a table that did not change.
func (w *seenDoubts) wrong(tables []*modelled) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, d := range w.seen {
		if len(d.Tables) == 0 {
			all = append(all, fmt.Sprintf("a doubt that names no table: %s: %s", d.Cause, d.Message))
		}
		for _, name := range d.Tables {
			if !slices.ContainsFunc(tables, func(m *modelled) bool { return m.owns(name) && m.mayHave(d.Cause) }) {
				all = append(all, fmt.Sprintf("a doubt that nothing gives cause to: %s of %q: %s", d.Cause, d.Tables, d.Message))
			}
		}
		delete(w.seen, id)
	}
	return all
}

// mayHave reports whether the change gives cause to a doubt.
func (t *modelled) mayHave(cause string) bool {
	return slices.Contains(t.doubts, cause) || t.unread && cause == "event_undecodable"
}

// byTool reports whether it is one of the tools that changes the table.
func (t *modelled) byTool() bool {
	return strings.HasPrefix(t.change.name, "gh-ost") || strings.HasPrefix(t.change.name, "pt-osc")
}

// owns reports whether a table is the one that is mapped, or one that the change makes for a while.
func (t *modelled) owns(name string) bool {
	_, table, _ := strings.Cut(name, ".")
	rest, ok := strings.CutPrefix(strings.TrimPrefix(table, "_"), t.name)
	return ok && (rest == "" || rest[0] == '_')
}
