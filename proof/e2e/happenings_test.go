package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// happening is what happens to servers, to the configuration, or by the hand of an operator, and leaves keys of one
// table stale.
type happening struct {
	table  string
	happen func(u *unrest, t *shelved)
	// keys and options are those of the table.
	keys, options string
	// make makes what else there must be.
	make []string
	// unnamed says that freshet notices only where the binlog names no columns.
	unnamed bool
	// schema is that of the table, if it is not shop.
	schema string
	// ends and tail are those of the keys, and put is what makes a row of the table, if it is not as of the others.
	ends, put string
	tail      func(number int) string
	// apart is that of the table.
	apart bool
	// inKafka says that it happens only there.
	inKafka bool
	// slow says that a cut leaves it out: it takes servers of its own, or longer than the others.
	slow bool
	// before is what is done before there is a load.
	before func(u *unrest, t *shelved)
}

var happenings = []happening{
	{table: "purged", happen: losing(func(u *unrest, t *shelved, _ place) {
		u.remove(t)
		u.source.PurgeBinlogs(u.t)
	})},
	{table: "begun_again", happen: losing(func(u *unrest, t *shelved, _ place) {
		u.remove(t)
		u.source.ResetBinlogs(u.t)
	})},
	{table: "numbers_again", happen: losing((*unrest).giveNumbersAgain)},
	{table: "damaged", happen: losing((*unrest).damage)},
	{table: "events_lost", happen: losing((*unrest).loseEvents), options: "ENGINE = MyISAM"},
	{table: "crashed", happen: (*unrest).crash},
	{table: "restored", happen: (*unrest).restore},
	{table: "prepared_unread", happen: (*unrest).commitUnread},
	{
		table: "prepared_unknown", happen: (*unrest).commitUnknown,
		keys: ", FOREIGN KEY (w) REFERENCES shop.host_of_rows (id) ON DELETE CASCADE",
		make: []string{
			"CREATE TABLE shop.host_of_rows (id INT PRIMARY KEY)", "INSERT INTO shop.host_of_rows VALUES (0), (1)",
		},
	},
	{table: "redis_is_older", happen: (*unrest).redisGoesBack},
	{table: "mapping_changed", happen: (*unrest).changeMapping},
	{table: "columns_swapped", happen: (*unrest).swapColumns, unnamed: true},
	{table: "position_skipped", happen: (*unrest).skip},
	{table: "first_start", happen: (*unrest).startAgain},
	{table: "by_hand", happen: (*unrest).pastTheBinlog},
	{table: "server_behind", happen: (*unrest).takeOver, slow: true},
	{table: "source_split", happen: (*unrest).writeApart, slow: true},
	{table: "fill_server_left_out", happen: (*unrest).leaveOut, slow: true},
	{
		table: "source_shared", before: (*unrest).elsewhere, happen: (*unrest).shareName, apart: true, inKafka: true,
		slow: true,
	},
	{table: "binlog_incomplete", happen: (*unrest).leaveUnlogged, slow: true},
	{table: "redis_moved", happen: (*unrest).moveKeys, slow: true},
	{table: "redis_split", happen: (*unrest).splitGroups, inKafka: true, slow: true},
	{table: "record_unreadable", happen: (*unrest).scribble, inKafka: true, slow: true},
	{table: "key_too_long", happen: (*unrest).lengthen, ends: "{note}", tail: longNote, put: putLongNote},
	{
		table: "mapping_unfit", happen: (*unrest).misfit, ends: ":{w}", tail: func(int) string { return ":0" },
	},
	{
		table: "undecodable", happen: (*unrest).hide, schema: "vault", unnamed: true, slow: true,
		make: []string{"CREATE TABLE vault.spare (v INT NOT NULL, w INT NOT NULL DEFAULT 0, note TEXT, id INT PRIMARY KEY)"},
	},
}

// happening has one thing happen under load.
func (u *unrest) happening(h happening, t *shelved) {
	u.t.Helper()
	began := time.Now()
	if h.before != nil {
		h.before(u, t)
	}
	u.load(t)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	h.happen(u, t)
	<-time.After(testbed.Cut(time.Second, 3*time.Second))
	u.quieten()
	u.allIsFresh()
	u.stale(h.table, t)
	for _, do := range u.after {
		do()
	}
	u.after = nil
	u.t.Logf("%s: %s", h.table, time.Since(began).Round(time.Second))
}

// remove deletes the rows that nobody else writes, and lets clients go on for a while.
func (u *unrest) remove(t *shelved) {
	u.t.Helper()
	t.in(u.source).Exec(u.t, fmt.Sprintf("DELETE FROM %s WHERE id >= %d", t.full(), last))
	<-time.After(time.Duration(u.rnd.IntN(1000)) * time.Millisecond)
}

// awaitAlarm waits until something has been wrong since.
func (r *rig) awaitAlarm(kind string, since time.Time) {
	r.t.Helper()
	r.await("say "+kind, 3*time.Minute, func(s status) bool { return s.hasSaid(kind, since) })
}

// hasSaid reports whether something has been wrong since.
func (s *status) hasSaid(kind string, since time.Time) bool {
	for _, a := range s.Alarms {
		if a.Kind == kind && a.Last.After(since) {
			return true
		}
	}
	return false
}

// hasSaid is that of the status, if there is one.
func (r *rig) hasSaid(kind string, since time.Time) bool {
	raw, err := r.client.Status(r.t.Context())
	var s status
	return err == nil && json.Unmarshal(raw, &s) == nil && s.hasSaid(kind, since)
}

// away has errors of clients be expected, or not any more.
func (u *unrest) away(are bool) {
	u.clients.away.Store(are)
	for _, s := range u.shelves() {
		s.clients.away.Store(are)
	}
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
	u.remap(t, "")
	u.answer("mappings_changed")
}

// remap starts what reads the source with another mapping of a table.
func (u *unrest) remap(t *shelved, more string) {
	u.t.Helper()
	u.more[t.name] = more
	u.restart(u.reading, func(r *rig) { r.cfg.mappings = u.mappings() })
}

// answer has an operator have the keys forgotten that are in doubt for a cause.
func (u *unrest) answer(cause string) {
	u.t.Helper()
	u.attend(cause, "answer")
}

// attend has an operator answer or dismiss what is in doubt for a cause.
func (u *unrest) attend(cause, how string) {
	u.t.Helper()
	var id string
	testbed.Eventually(u.t, 3*time.Minute, cause+" is in doubt", func() bool {
		doubts, err := u.answering.client.ListDoubts(u.t.Context())
		for _, d := range doubts {
			if d.Cause == cause {
				id = d.ID
			}
		}
		return err == nil && id != ""
	})
	if said, code := u.answering.ask("doubts", how, id); code != 0 {
		u.t.Fatalf("doubts %s: %s", how, said)
	}
}

// skip has an operator leave out changes that were committed while nobody read, and then have their keys forgotten.
func (u *unrest) skip(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	for _, r := range u.reading {
		r.stop()
	}
	u.remove(t)
	for _, r := range u.reading {
		if said, code := r.ask("position", "set", "now", "--skip"); code != 0 {
			u.t.Fatalf("the position is not set: %s", said)
		}
		r.launchAgain()
	}
	u.answer("position_skipped")
}

// startAgain has freshet start where it finds nothing that it has kept, with a Redis full of keys.
func (u *unrest) startAgain(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	for _, p := range u.processes() {
		p.stop()
	}
	u.remove(t)
	u.forget()
	started := time.Now()
	for _, s := range u.shelves() { // a reader asks those groups that it knows of
		if !slices.Contains(u.reading, s.rig) {
			s.launchAgain()
			s.await("have partitions", 3*time.Minute, func(s status) bool { return len(s.Partitions) > 0 })
		}
	}
	for _, r := range u.reading {
		r.launchAgain()
		r.awaitAlarm("first_start", started)
	}
}

// pastTheBinlog changes rows of which the binlog has nothing. An operator knows, and has their keys forgotten.
func (u *unrest) pastTheBinlog(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	u.removeUnlogged(t)
	if said, code := u.answering.ask("invalidate", "--table", t.full(), "--wait"); code != 0 {
		u.t.Fatalf("the keys are not forgotten: %s", said)
	}
}

// removeUnlogged is remove, of which the binlog has nothing.
func (u *unrest) removeUnlogged(t *shelved) {
	u.t.Helper()
	u.source.Exec(u.t, "SET sql_log_bin = 0", fmt.Sprintf("DELETE FROM %s WHERE id >= %d", t.full(), last),
		"SET sql_log_bin = 1")
}

// swapColumns has two columns swap their names, of which the binlog has nothing. Where the binlog names columns, rows
// are read under the right names all the same, and nothing is in doubt: what was cached before stays.
func (u *unrest) swapColumns(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	altered := time.Now()
	u.source.Exec(u.t, "SET sql_log_bin = 0",
		"ALTER TABLE "+t.full()+" CHANGE v w INT NOT NULL DEFAULT 0, CHANGE w v INT NOT NULL", "SET sql_log_bin = 1")
	for _, r := range u.reading {
		r.awaitAlarm("definition_changed", altered)
	}
}

// launchAgain starts a process that was stopped.
func (r *rig) launchAgain() {
	r.t.Helper()
	if r.role == "" {
		r.run()
		return
	}
	r.launch(r.role)
}
