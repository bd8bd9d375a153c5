package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// reign waits until exactly one of the readers leads, another than the one before, in a higher term; and returns which,
// its term and how long that took.
func (f *fleet) reign(before *rig, term uint64) (leader *rig, now uint64, took time.Duration) {
	f.t.Helper()
	began := time.Now()
	f.awaitAll("one reader leads and the others stand by", 3*time.Minute, func(readers, _ []status) bool {
		leading := 0
		for i, s := range readers {
			switch {
			case s.State == "standby":
			case s.Source.Connected:
				leading++
				leader, now = f.readers[i], s.Checkpoint.Term
			default:
				return false
			}
		}
		return leading == 1 && leader != before
	})
	if now <= term {
		f.t.Fatalf("term %d comes after term %d", now, term)
	}
	return leader, now, time.Since(began)
}

// Readers of one source take over from each other, whether the leader hands over, is killed or hangs and comes back;
// one leads at a time, and nothing is lost or left stale. An XA transaction that one of them has seen prepared is
// invalidated by the next when it is committed.
func TestReadersTakeOverFromEachOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.MySQL(t), testbed.SharedKafka(t), 2, 1)
	crowded(f.source)
	f.source.Exec(t, schema...)
	f.start()
	l := startLoad(f.rig, testbed.Seeded(t).Uint64())
	first, term, _ := f.reign(nil, 0)

	// Who is told to stop hands over at once.
	stopped := time.Now()
	first.stop()
	f.readers = slices.DeleteFunc(slices.Clone(f.readers), func(r *rig) bool { return r == first })
	second, term, _ := f.reign(first, term)
	handed := time.Since(stopped)
	// Not before: a member that comes back while the group shares out its partitions may be given them again.
	first.launch(first.role)
	if handed > 8*time.Second {
		t.Errorf("handing over took %s: it should not take a session", handed)
	}

	// SIGKILL, with a transaction prepared: the next takes over within a session.
	commitXA := f.prepared("'taken over'", &l.journal)
	second.kill()
	f.readers = []*rig{first}
	_, term, killed := f.reign(second, term)
	second.launch(second.role)
	commitXA()

	// SIGSTOP beyond the session: the old leader notices, and stands by.
	testbed.Must(t, first.proc.cmd.Process.Signal(syscall.SIGSTOP))
	f.readers = []*rig{second}
	_, term, hung := f.reign(first, term)
	testbed.Must(t, first.proc.cmd.Process.Signal(syscall.SIGCONT))
	f.readers = []*rig{first, second}
	f.awaitAll("the old leader stands by", 3*time.Minute, func(readers, _ []status) bool {
		return readers[0].State == "standby" && readers[1].Source.Connected && readers[1].Checkpoint.Term == term
	})
	t.Logf("handed over after %s, taken over %s after a kill and %s after a stop", handed, killed, hung)
	f.settle(l)
}

// prepared changes a note in an XA transaction and prepares it, and caches what the note was before; commit commits it
// and journals its key.
func (f *fleet) prepared(xid string, j *journal) (commit func()) {
	f.t.Helper()
	const id, key = 900, "note:900"
	ctx := context.Background()
	conn, err := f.source.DB().Conn(ctx)
	testbed.Must(f.t, err)
	defer conn.Close()
	x := &tx{Conn: conn, ctx: ctx, keys: map[string]bool{}}
	testbed.Must(f.t, x.exec("XA START "+xid))
	testbed.Must(f.t, x.exec(fmt.Sprintf("INSERT INTO shop.note VALUES (%d, 'xa')", id)))
	testbed.Must(f.t, x.exec("XA END "+xid))
	testbed.Must(f.t, x.exec("XA PREPARE "+xid))
	f.finish(3 * time.Minute) // what its rows made stale is deleted, which is too early to be of use
	testbed.Must(f.t, f.redis.Client().Set(ctx, key, "none", 0).Err())
	return func() {
		f.t.Helper()
		f.source.Exec(f.t, "XA COMMIT "+xid)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.entries = append(j.entries, entry{key, time.Now()})
	}
}
