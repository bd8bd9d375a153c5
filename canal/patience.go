package canal

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/retry"
)

const (
	// lockWait is for how long a question waits for a lock on a table, as that of an ALTER TABLE, and lockAgain for how
	// long while a table is known to be locked: nothing is read meanwhile.
	lockWait  = 10 * time.Second
	lockAgain = time.Second
	// heldFor is how long after a wait was lost that is looked at once more.
	heldFor = 30 * time.Second
)

// locks knows of the waits for tables that stayed locked for longer than is waited.
type locks struct {
	// lost is when the last one ended in vain.
	lost time.Time
}

// waitFor bounds the waits of the session for locks. 0 is as short as the server can: MySQL makes it 1 s.
func (s *session) waitFor(wait time.Duration) error {
	s.wait = wait
	return s.exec("SET SESSION lock_wait_timeout = " + inSeconds(wait))
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// Execute runs a statement. Once one has waited for a lock in vain, no other of this session waits for more than a
// second: what is locked may be so for hours, and each question about it would hold up the stream.
//
// MariaDB opens the tables that a question about information_schema is about. It waits for those that are locked as
// well, and then leaves them out of the answer, and says nothing. Observed on MariaDB 10.11. That a wait was lost shows
// in the time alone: the same question takes less when it does not wait.
func (s *session) Execute(statement string, args ...any) (*mysql.Result, error) {
	begun := time.Now()
	r, err := s.conn.Execute(statement, args...)
	took := time.Since(begun)
	switch {
	case s.wait == 0:
		return r, err
	case retry.IsLockWait(err):
		return nil, cmp.Or(s.gaveUp(), err)
	case err != nil || took < s.wait || !strings.Contains(statement, "information_schema"):
		return r, err
	}
	r.Close()
	wait := s.wait
	if err := s.waitFor(0); err != nil {
		return nil, err
	}
	begun = time.Now()
	if r, err = s.conn.Execute(statement, args...); err != nil {
		return nil, err
	}
	if took-time.Since(begun) >= wait/2 {
		return r, s.gaveUp()
	}
	return r, s.waitFor(wait) // it is only slow
}

// gaveUp notes that a wait was lost.
func (s *session) gaveUp() error {
	s.lost, s.locks.lost = true, time.Now()
	return s.waitFor(0)
}

// waits has a session ask with the patience that is left.
func (t *tables) waits(s *session) error {
	s.locks = &t.locks
	if t.cascading.held || time.Since(t.locks.lost) < heldFor {
		return s.waitFor(lockAgain)
	}
	return nil
}
