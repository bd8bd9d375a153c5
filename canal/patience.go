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
	// lockWait is for how long a question waits for a lock on a table, as that of an ALTER TABLE, if rows cannot be read
	// without an answer, and lockBriefly for how long if they can, or a table is known to be locked: nothing is read
	// meanwhile. mostLost is how many waits are lost before none is begun any more.
	lockWait    = 3 * time.Second
	lockBriefly = time.Second
	mostLost    = 2
	// lockPoll is the least time after which MariaDB is asked again about a table that is locked.
	lockPoll = 50 * time.Millisecond
	// lockGlance is for how long a question for a table takes at MySQL at most that does not wait. Of hundreds that are
	// locked each would hold up the others for as long, so each one that was found halves it, mostHalved times.
	lockGlance = 250 * time.Millisecond
	mostHalved = 5
	// lockOfRows is for how long sessions wait that read the rows of tables, next to the stream.
	lockOfRows = 10 * time.Second
	// heldFor is how long after a table was found to be locked questions have less patience.
	heldFor = 30 * time.Second
)

// locks knows of the waits for tables that stayed locked for longer than is waited.
type locks struct {
	// met is when a table was last found to be locked in the end, and lost is how many waits were lost up to then, and
	// glances how many without a wait.
	met           time.Time
	lost, glances int
}

func (l *locks) meet() {
	if time.Since(l.met) >= heldFor {
		l.lost, l.glances = 0, 0
	}
	l.met = time.Now()
}

// glance is for how long the next question for a table takes that does not wait.
func (l *locks) glance() time.Duration {
	if time.Since(l.met) >= heldFor {
		return lockGlance
	}
	return lockGlance >> min(l.glances, mostHalved)
}

// patience is for how long the next question waits that would wait for so long.
func (l *locks) patience(wait time.Duration) time.Duration {
	switch {
	case time.Since(l.met) >= heldFor:
		return wait
	case l.lost >= mostLost:
		return 0
	}
	return min(wait, lockBriefly)
}

// waitFor bounds the waits of the session for locks. 0: it does not wait.
func (s *session) waitFor(wait time.Duration) error {
	s.wait = wait
	if s.isMariaDB() {
		return nil
	}
	return s.exec("SET SESSION lock_wait_timeout = " + inSeconds(max(wait, time.Second))) // 0 is no value there
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func (s *session) isMariaDB() bool { return strings.Contains(s.conn.GetServerVersion(), "MariaDB") }

// Execute runs a statement. Once one has waited for a lock in vain, no other of this session waits: what is locked may
// be so for hours, and each question about it would hold up the stream.
//
// MariaDB opens the tables that a question about information_schema is about. It waits for each of those that are
// locked, for some twice, and then leaves them out of the answer, with a warning. Observed on MariaDB 10.11. So there
// it is the session that waits, and the server does not: the wait is the same however many tables are locked.
func (s *session) Execute(statement string, args ...any) (*mysql.Result, error) {
	for begun := time.Now(); ; {
		asked := time.Now()
		r, locked, err := s.try(statement, args)
		if locked && s.wait == 0 {
			s.lost = true
			s.locks.glances++
			s.locks.meet()
		}
		if !locked || s.wait == 0 {
			return r, err
		}
		left := s.wait - time.Since(begun)
		if left <= 0 || !s.isMariaDB() {
			return r, cmp.Or(s.gaveUp(), err)
		}
		if r != nil {
			r.Close()
		}
		time.Sleep(min(left, max(lockPoll, time.Since(asked))))
	}
}

// try runs a statement once, and reports whether a lock was waited for in vain, for all or for a part of the answer.
func (s *session) try(statement string, args []any) (r *mysql.Result, locked bool, err error) {
	asked := statement
	if rest, reads := strings.CutPrefix(statement, "SELECT "); reads && s.wait == 0 && !s.isMariaDB() &&
		strings.HasSuffix(rest, " LIMIT 0") {
		asked = "SELECT /*+ MAX_EXECUTION_TIME(" + strconv.Itoa(int(s.locks.glance()/time.Millisecond)) + ") */ " + rest
	}
	r, err = s.conn.Execute(asked, args...)
	switch {
	case asked != statement && retry.IsTimeLimit(err):
		err = mysql.NewDefaultError(mysql.ER_LOCK_WAIT_TIMEOUT)
		return nil, true, err
	case err != nil || !s.isMariaDB() || !strings.Contains(statement, "information_schema"):
		return r, retry.IsLockWait(err), err
	}
	if locked, err = s.warned(); err != nil {
		r.Close()
		return nil, false, err
	}
	return r, locked, nil
}

// warned reports whether a warning of the last statement says that a table was locked. go-mysql does not hand on
// whether there are any.
func (s *session) warned() (bool, error) {
	r, err := s.conn.Execute("SHOW WARNINGS")
	if err != nil {
		return false, err
	}
	defer r.Close()
	for i := range r.RowNumber() {
		code, err := r.GetInt(i, 1)
		if err != nil || code == int64(mysql.ER_LOCK_WAIT_TIMEOUT) {
			return true, err
		}
	}
	return false, nil
}

// gaveUp notes that a wait was lost.
func (s *session) gaveUp() error {
	s.lost = true
	s.locks.meet()
	s.locks.lost++
	return s.waitFor(0)
}

// waits has a session ask with the patience that is left.
func (t *tables) waits(s *session) error {
	s.locks = &t.locks
	return s.waitAtMost(t.locks.patience(lockWait))
}

// waitBriefly has a session ask what need not be known before more is read.
func (s *session) waitBriefly() error { return s.waitAtMost(lockBriefly) }

func (s *session) waitAtMost(wait time.Duration) error {
	if s.wait <= wait {
		return nil
	}
	return s.waitFor(wait)
}
