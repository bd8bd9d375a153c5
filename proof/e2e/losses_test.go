package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// losesWide has a server lose the events of statements without transactions that change more than one page.
var losesWide = []string{"--max-binlog-stmt-cache-size=4096", "--binlog-stmt-cache-size=4096"}

// place is where an event of the binlog ends.
type place struct {
	file string
	pos  uint64
}

// end is where the binlog ends.
func (u *unrest) end() (p place) {
	u.t.Helper()
	p.file, p.pos = u.source.BinlogPosition(u.t)
	return p
}

// files is where the source keeps its data.
func (u *unrest) files() string { return filepath.Join(u.source.Dir, "data") }

// losing has changes lost that nobody has read. lose makes and loses them, and is called with the place of an event
// that comes before them, and that nobody has read either.
func losing(lose func(u *unrest, t *shelved, before place)) func(*unrest, *shelved) {
	return func(u *unrest, t *shelved) {
		u.t.Helper()
		u.cacheLast(t)
		u.unseen(func() {
			u.source.Exec(u.t, fmt.Sprintf("REPLACE INTO %s (id, v) VALUES (0, 0)", t.full()))
			lose(u, t, u.end())
		})
	}
}

// unseen does something that freshet does not see, and that is a gap for it.
func (u *unrest) unseen(do func()) {
	u.t.Helper()
	for _, r := range u.reading {
		r.binlog.Cut()
	}
	do()
	lost := time.Now()
	for _, r := range u.reading {
		testbed.Must(u.t, r.binlog.Resume())
	}
	for _, r := range u.reading {
		r.awaitAlarm("binlog_gap", lost)
	}
}

// giveNumbersAgain has the source begin its binlog again, and give all numbers of transactions, and all places in
// files, to others.
func (u *unrest) giveNumbersAgain(t *shelved, before place) {
	u.t.Helper()
	given := u.given()
	u.source.ResetBinlogs(u.t)
	u.remove(t)
	for u.end().file < before.file {
		u.source.Exec(u.t, "FLUSH BINARY LOGS")
	}
	var more []string
	for range 100 {
		more = append(more, fmt.Sprintf("REPLACE INTO %s (id, v) VALUES (0, 0)", t.full()))
	}
	for u.given() <= given || u.end().pos <= before.pos {
		u.source.Exec(u.t, more...)
	}
	if is := u.end().file; is != before.file {
		u.t.Fatalf("the binlog is at %s, and was at %s", is, before.file)
	}
}

// given is the last number that the source gave to a transaction.
func (u *unrest) given() int {
	u.t.Helper()
	set := u.source.GTIDs(u.t)
	n, err := strconv.Atoi(set[strings.LastIndexAny(set, "-:")+1:])
	testbed.Must(u.t, err)
	return n
}

// damage makes one event of the binlog unreadable: its checksum is wrong.
func (u *unrest) damage(t *shelved, at place) {
	u.t.Helper()
	u.remove(t)
	f, err := os.OpenFile(filepath.Join(u.files(), at.file), os.O_WRONLY, 0)
	testbed.Must(u.t, err)
	_, err = f.WriteAt([]byte("oops"), int64(at.pos)-4)
	testbed.Must(u.t, err)
	testbed.Must(u.t, f.Close())
	u.source.Exec(u.t, "FLUSH BINARY LOGS")
}

// loseEvents has the source change rows without events: it cannot keep those of a statement without transactions, gives
// it up half done, and says in its binlog that it has lost events.
func (u *unrest) loseEvents(t *shelved, _ place) {
	u.t.Helper()
	wide := fmt.Sprintf("UPDATE %s SET v = v + 1000, note = REPEAT('n', 3000) WHERE id >= %d", t.full(), last)
	if err := u.source.ExecContext(u.t.Context(), wide); err == nil {
		u.t.Fatal("the statement was logged whole")
	}
	u.source.Exec(u.t, "FLUSH BINARY LOGS")
}

// down does something while the source is down, which then has more arguments.
func (u *unrest) down(end func() error, do func(), more ...string) {
	u.t.Helper()
	u.away(true)
	testbed.Must(u.t, end())
	do()
	testbed.Must(u.t, u.source.StartWith(u.t.Context(), more...))
	u.away(false)
}

// crash has the source lose the end of its binlog, which freshet has read, and give its numbers to others.
func (u *unrest) crash(t *shelved) {
	u.t.Helper()
	at := u.end()
	u.cacheLast(t)
	u.unseen(func() {
		u.down(u.source.Kill, func() {
			testbed.Must(u.t, os.Truncate(filepath.Join(u.files(), at.file), int64(at.pos)))
		})
		u.remove(t)
	})
}

// restore has the source come back from a backup that was made before rows were cached, and go on from there: clients
// get the numbers at once that others had before.
func (u *unrest) restore(t *shelved) {
	u.t.Helper()
	saved := filepath.Join(u.source.Dir, "saved")
	u.down(u.source.Stop, func() { testbed.Must(u.t, os.CopyFS(saved, os.DirFS(u.files()))) })
	u.cacheLast(t)
	restored := time.Now()
	u.down(u.source.Stop, func() {
		testbed.Must(u.t, os.RemoveAll(u.files()))
		testbed.Must(u.t, os.Rename(saved, u.files()))
	})
	for _, r := range u.reading {
		r.awaitAlarm("binlog_gap", restored)
	}
}
