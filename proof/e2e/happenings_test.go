package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// happening is what happens to servers, or to the configuration, and leaves keys of one table stale.
type happening struct {
	table  string
	happen func(u *unrest, t *shelved)
}

var happenings = []happening{
	{"purged", func(u *unrest, t *shelved) { u.losing(t, func(place) { u.source.PurgeBinlogs(u.t) }) }},
	{"begun_again", func(u *unrest, t *shelved) { u.losing(t, func(place) { u.source.ResetBinlogs(u.t) }) }},
	{"damaged", func(u *unrest, t *shelved) { u.losing(t, u.damage) }},
	{"redis_is_older", (*unrest).redisGoesBack},
	{"mapping_changed", (*unrest).changeMapping},
}

// happening has one thing happen under load.
func (u *unrest) happening(h happening, t *shelved) {
	u.t.Helper()
	u.load(t)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	h.happen(u, t)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	u.quieten()
	u.allIsFresh()
	u.stale(h.table, t)
}

// remove deletes the rows that nobody else writes.
func (u *unrest) remove(t *shelved) {
	u.t.Helper()
	u.source.Exec(u.t, fmt.Sprintf("DELETE FROM %s WHERE id >= %d", t.full(), last))
}

// place is where an event of the binlog ends.
type place struct {
	file string
	pos  uint64
}

// losing has changes lost that nobody has read. lose is called with the place of an event that comes before them, and
// that nobody has read either.
func (u *unrest) losing(t *shelved, lose func(place)) {
	u.t.Helper()
	u.cacheLast(t)
	for _, r := range u.reading {
		r.binlog.Cut()
	}
	u.source.Exec(u.t, fmt.Sprintf("REPLACE INTO %s (id, v) VALUES (0, 0)", t.full()))
	var before place
	before.file, before.pos = u.source.BinlogPosition(u.t)
	u.remove(t)
	<-time.After(time.Duration(u.rnd.IntN(1000)) * time.Millisecond)
	lose(before)
	lost := time.Now()
	for _, r := range u.reading {
		testbed.Must(u.t, r.binlog.Resume())
	}
	for _, r := range u.reading {
		r.awaitAlarm("binlog_gap", lost)
	}
}

// awaitAlarm waits until something has been wrong since.
func (r *rig) awaitAlarm(kind string, since time.Time) {
	r.t.Helper()
	r.await("say "+kind, 3*time.Minute, func(s status) bool {
		for _, a := range s.Alarms {
			if a.Kind == kind && a.Last.After(since) {
				return true
			}
		}
		return false
	})
}

// damage makes one event of the binlog unreadable: its checksum is wrong.
func (u *unrest) damage(at place) {
	u.t.Helper()
	f, err := os.OpenFile(filepath.Join(u.source.Dir, "data", at.file), os.O_WRONLY, 0)
	testbed.Must(u.t, err)
	_, err = f.WriteAt([]byte("oops"), int64(at.pos)-4)
	testbed.Must(u.t, err)
	testbed.Must(u.t, f.Close())
	u.source.Exec(u.t, "FLUSH BINARY LOGS")
}

// redisGoesBack has each Redis come back with data from before rows were deleted.
func (u *unrest) redisGoesBack(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	for _, s := range u.shelves() {
		s.redis.Do(u.t, "save")
	}
	u.remove(t)
	u.finish() // so that nothing will delete their keys again
	restarted := time.Now()
	for _, s := range u.shelves() {
		s.clients.away.Store(true)
		testbed.Must(u.t, s.redis.Kill())
		testbed.Must(u.t, s.redis.Start(u.t.Context()))
		s.clients.away.Store(false)
	}
	u.answering.awaitAlarm("redis_changed", restarted)
}

// changeMapping has a column count that did not. An operator has the keys forgotten that are in doubt.
func (u *unrest) changeMapping(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	u.source.Exec(u.t, fmt.Sprintf("UPDATE %s SET v = v + 1000 WHERE id >= %d", t.full(), last))
	u.finish()
	u.configure(u.mappings(""))
	u.answering.await("doubt the keys of the mapping", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 1 })
	doubts, err := u.answering.client.ListDoubts(u.t.Context())
	testbed.Must(u.t, err)
	if said, code := u.answering.ask("doubts", "answer", doubts[0].ID); code != 0 {
		u.t.Fatalf("no answer is asked for: %s", said)
	}
}
