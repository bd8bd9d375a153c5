package e2e

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// commitUnread has a transaction prepared within a gap, and committed once the gap is answered: rows come that were
// cached as missing.
func (u *unrest) commitUnread(t *shelved) {
	u.t.Helper()
	losing(func(u *unrest, t *shelved, _ place) {
		u.remove(t)
		var inserts []string
		for n := range lastRows {
			inserts = append(inserts, fmt.Sprintf("INSERT INTO %s (id, v) VALUES (%d, %d)", t.full(), last+n, u.value.Add(1)))
		}
		u.prepare(inserts...)
		u.source.PurgeBinlogs(u.t)
	})(u, t)
	u.commit(t, "xa_unread")
}

// commitUnknown has a transaction prepared by which a foreign key deletes rows, and committed once that is answered:
// nobody knows which keys they had.
func (u *unrest) commitUnknown(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	u.source.Exec(u.t, fmt.Sprintf("UPDATE %s SET w = 1 WHERE id >= %d", t.full(), last),
		// Between these rows and those of the clients, so that the transaction locks none of theirs.
		fmt.Sprintf("INSERT INTO %s (id, v) VALUES (%d, 0)", t.full(), last-1))
	u.prepare("DELETE FROM shop.host_of_rows WHERE id = 1")
	u.commit(t, "xa_keys_unknown")
}

// prepare prepares a transaction.
func (u *unrest) prepare(statements ...string) {
	u.t.Helper()
	conn, err := u.source.DB().Conn(u.t.Context())
	testbed.Must(u.t, err)
	statements = append([]string{"XA START 'prepared'"}, statements...)
	for _, q := range append(statements, "XA END 'prepared'", "XA PREPARE 'prepared'") {
		_, err := conn.ExecContext(u.t.Context(), q)
		testbed.Must(u.t, err)
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that it is closed
}

// commit caches what the rows say before the transaction, once nothing is in doubt, and commits it, which is in doubt
// for a cause.
func (u *unrest) commit(t *shelved, cause string) {
	u.t.Helper()
	u.finish()
	u.answering.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	u.cacheRows(t)
	committed := time.Now()
	u.source.Exec(u.t, "XA COMMIT 'prepared'")
	for _, r := range u.reading {
		r.awaitAlarm(cause, committed)
	}
}
