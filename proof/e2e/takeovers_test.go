package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// lead has clients write to a server, and fill the cache from it. It is the source.
func (u *unrest) lead(source *testbed.Server) {
	crowded(source)
	u.source = source
	u.leads.Store(source)
	u.filling.Store(source)
}

// replica starts a server that follows the source, and has all that it has.
func (u *unrest) replica() *testbed.Server {
	u.t.Helper()
	replica := u.another()
	u.copy(replica)
	crowded(replica)
	return replica
}

// copy gives a server what the source has, whatever it had itself, and has it follow the source.
func (u *unrest) copy(replica *testbed.Server) {
	u.t.Helper()
	files := filepath.Join(replica.Dir, "data")
	testbed.Must(u.t, replica.Kill())
	testbed.Must(u.t, os.RemoveAll(files))
	u.down(u.source.Stop, func() { testbed.Must(u.t, os.CopyFS(files, os.DirFS(u.files()))) })
	// It has an identity of its own.
	if err := os.Remove(filepath.Join(files, "auto.cnf")); !errors.Is(err, fs.ErrNotExist) {
		testbed.Must(u.t, err)
	}
	testbed.Must(u.t, replica.Start(u.t.Context()))
	if replica.Flavor == testbed.FlavorMariaDB {
		replica.Exec(u.t, "SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos")
	}
	follow(u.t, replica, u.source)
	replica.AwaitAllOf(u.t, u.source)
}

// following has a replica stop or start to follow, or end that it is one.
func (u *unrest) following(replica *testbed.Server, statements ...string) {
	u.t.Helper()
	for _, s := range statements {
		if replica.Flavor == testbed.FlavorMariaDB {
			s = strings.ReplaceAll(s, "REPLICA", "SLAVE")
		}
		replica.Exec(u.t, s)
	}
}

// goOn has those that read the source be led to the server that is the source by now.
func (u *unrest) goOn(source *testbed.Server) {
	for _, r := range u.reading {
		r.binlog.Aim(source.Addr)
		r.binlog.Reset()
	}
}

// awaitReaders waits until all that read the source have said that something is wrong since.
func (u *unrest) awaitReaders(kind string, since time.Time) {
	u.t.Helper()
	for _, r := range u.reading {
		r.awaitAlarm(kind, since)
	}
}

// takeOver has the source fail, and a replica take over that lacks changes whose keys were deleted. Readers fill the
// cache from it. Nobody writes until it has all.
func (u *unrest) takeOver(t *shelved) {
	u.t.Helper()
	replica := u.replica()
	u.cacheLast(t)
	replica.AwaitAllOf(u.t, u.source)
	u.following(replica, "STOP REPLICA")
	u.remove(t)
	u.writing.Lock()
	u.finish() // so that nothing will delete their keys again
	failed := time.Now()
	u.filling.Store(replica)
	u.goOn(replica)
	u.awaitReaders("server_behind", failed)
	u.cacheRows(t)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	u.following(replica, "START REPLICA")
	replica.AwaitAllOf(u.t, u.source)
	u.following(replica, "STOP REPLICA", "RESET REPLICA ALL")
	former := u.source
	u.lead(replica)
	u.writing.Unlock()
	testbed.Must(u.t, former.Kill())
}

// leaveOut has the server that readers fill the cache from stop to follow, until changes are finished without it, and
// come back.
func (u *unrest) leaveOut(t *shelved) {
	u.t.Helper()
	replica := u.replica()
	u.filling.Store(replica)
	fillFrom := func(more string) {
		u.restart(u.reading, func(r *rig) { r.cfg.source = more })
	}
	fillFrom(fmt.Sprintf(", fill_from: [%q], fill_timeout: 1s", replica.Addr))
	u.after = append(u.after, func() {
		u.filling.Store(u.source)
		fillFrom("")
		testbed.Must(u.t, replica.Kill())
	})
	u.cacheLast(t)
	u.following(replica, "STOP REPLICA")
	stopped := time.Now()
	u.remove(t)
	u.awaitReaders("fill_server_left_out", stopped)
	u.finish()
	u.cacheRows(t)
	u.following(replica, "START REPLICA")
}

// writeApart has a replica be promoted by mistake, while the source is still written to. Readers fill the cache from
// it. An operator sets it up again as a replica, and has the keys forgotten after that.
func (u *unrest) writeApart(t *shelved) {
	u.t.Helper()
	second := u.replica()
	u.restart(u.reading, func(r *rig) { r.cfg.besides = fmt.Sprintf(", %q", second.Addr) })
	u.after = append(u.after, func() {
		u.restart(u.reading, func(r *rig) { r.cfg.besides = "" })
		testbed.Must(u.t, second.Kill())
	})
	u.cacheLast(t)
	second.AwaitAllOf(u.t, u.source)
	u.following(second, "STOP REPLICA")
	u.remove(t)
	u.finish()
	apart := time.Now()
	u.following(second, "RESET REPLICA ALL")
	second.Exec(u.t, fmt.Sprintf("UPDATE %s SET v = v + 1000 WHERE id >= %d", t.full(), last+lastRows/2))
	u.filling.Store(second)
	u.cacheRows(t)
	u.awaitReaders("source_split", apart)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	u.filling.Store(u.source)
	u.copy(second)
	u.awaitReaders("source_split", time.Now()) // once more, now that it is over
	u.answer("source_split")
}

// leaveUnlogged has the source leave a schema out of its binlog for a while. An operator knows since when, and has the
// keys forgotten.
func (u *unrest) leaveUnlogged(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	began := time.Now()
	u.down(u.source.Stop, func() {}, "--binlog-ignore-db=shop")
	u.awaitReaders("binlog_incomplete", began)
	u.remove(t)
	u.finish()
	u.down(u.source.Stop, func() {})
	u.finish()
	u.answer("binlog_incomplete")
}

// elsewhere makes the table in another database.
func (u *unrest) elsewhere(t *shelved) {
	u.t.Helper()
	t.other = u.another()
	t.other.Exec(u.t, "CREATE DATABASE shop CHARACTER SET utf8mb4", t.create())
	t.other.MayRead(u.t, "shop.*")
}

// shareName has the reader of another database be given the name of this one: it ends, and nobody reads what is
// written there. An operator gives it a name of its own, and has the keys forgotten.
func (u *unrest) shareName(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	if t.other.Flavor == testbed.FlavorMariaDB { // else it may take minutes until that is known
		t.other.Exec(u.t, "SET SESSION gtid_seq_no = 1000000000",
			fmt.Sprintf("REPLACE INTO %s (id, v) VALUES (0, 0)", t.full()))
	}
	reader := u.fleet.prepare("reader", "other")
	reader.source, reader.binlog = t.other, proxy.StartBinlog(u.t, t.other.Addr)
	reader.cfg.mappings = "on_first_start: keep\nmappings:\n" + t.mapping("")
	reader.write(u.fleet.inKafka(u.fleet.group()), reader.fromSource("default"))
	reader.launch(reader.role)
	<-reader.proc.exited
	if code := reader.proc.cmd.ProcessState.ExitCode(); code != 3 {
		u.t.Fatalf("the reader of another database ended with exit code %d\n%s", code, reader.proc.stderr.String())
	}
	reader.noRaces(reader.proc)
	u.remove(t)
	u.finish()
	reader.write(u.fleet.inKafka(u.fleet.group()), reader.fromSource("other"))
	reader.launch(reader.role)
	reader.await("it reads", 3*time.Minute, func(s status) bool { return s.Source.Connected })
	reader.finish(3 * time.Minute)
	u.answer("source_shared")
}
