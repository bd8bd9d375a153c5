package canal

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/canal/schema"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

const (
	// lookEach is how long at least is between two looks at tables that have got another id, and lookShare how many
	// times as long as the last one took. A server whose table cache is smaller than its tables gives them new ids all
	// the time.
	lookEach  = time.Second
	lookShare = 10
	// presentFor is for how long after the source had nothing more to send what comes counts as the present.
	presentFor = time.Second
	// regainEach is the default of [Options].regainEach, and regainFor for how long at most one attempt goes on.
	regainEach = 10 * time.Second
	regainFor  = time.Second
	// lookAfter is how long a look is put off while the source has always more to send. In the past a look may have to
	// go through all of the binlog that is still to come; in the present there is next to none.
	lookAfter = time.Minute
)

// looks says when to look at tables that have got another id while a connection stands.
type looks struct {
	now func() time.Time
	// waited is when the source last had nothing more to send, next is when there may be another look.
	waited, next time.Time
	// since is since when a table must be looked at; zero: none is.
	since time.Time
	// regain is when tables that we may not read, or that were locked, may be tried again.
	regain time.Time
}

func (k *looks) waits() { k.waited = k.now() }

// atOnce notes that a table must be looked at, and reports whether that can be done before its rows are decoded. Where
// others wait to be looked at it waits with them: else, with new ones all the time, they would wait forever.
func (k *looks) atOnce() bool {
	now := k.now()
	if k.since.IsZero() && !now.Before(k.next) && now.Sub(k.waited) < presentFor {
		return true
	}
	if k.since.IsZero() {
		k.since = now
	}
	return false
}

// due reports whether it is time for those that wait.
func (k *looks) due() bool {
	if k.since.IsZero() {
		return false
	}
	now := k.now()
	return !now.Before(k.next) && (now.Sub(k.waited) < presentFor || now.Sub(k.since) >= lookAfter)
}

// looked notes that a look is over that began at the time.
func (k *looks) looked(begun time.Time) {
	now := k.now()
	k.next = now.Add(max(lookEach, lookShare*now.Sub(begun)))
}

// mapped takes note of a TABLE_MAP. If the table has another id than when its definition was last compared with what
// the server says, a statement that was not read may have altered it. It is compared again: here, so that the rows are
// decoded by the right names, or soon, where too many are to be compared; then rows may be decoded by the wrong ones,
// and the doubt comes after them. A crash in between leads back to the definition as it was known, and the same doubt
// at the next start.
func (t *tables) mapped(m *binlog.TableMap) error {
	if !t.tracker.Mapped(m) || !t.looks.atOnce() {
		return nil
	}
	begun := t.looks.now()
	defer t.looks.looked(begun)
	_, err := t.compare(t.l.tx.begin, m)
	t.lookLater()
	return err
}

// lookLater notes that tables wait to be looked at that are locked, if there are any.
func (t *tables) lookLater() {
	if k := &t.looks; k.since.IsZero() && t.tracker.Due() {
		k.since = k.now()
	}
}

// look compares the definitions of the tables that wait for it, between transactions, once it is time, or at once.
// Decoders of definitions that proved wrong are forgotten.
func (t *tables) look(now bool) error {
	k := &t.looks
	if t.l.tx.open || k.since.IsZero() || !now && !k.due() {
		return nil
	}
	begun := k.now()
	defer k.looked(begun)
	found, err := t.compare(t.l.at, nil)
	if found {
		t.l.dec.Forget()
	}
	if err == nil {
		k.since = time.Time{}
		t.lookLater()
	}
	return err
}

// compare compares the definition of the table that m describes, or of all that wait, and reports whether any was
// wrong.
func (t *tables) compare(at binlogPos, m *binlog.TableMap) (found bool, err error) {
	err = t.ask(t.l.ctx, func(s *session, h *history) error {
		if err := s.waitFor(0); err != nil { // what is locked is compared later
			return err
		}
		return t.tracker.VerifyMapped(t.l.ctx, s, h, schema.BinlogPos{File: at.file, Pos: at.pos}, m,
			func(n ddl.Name, how string) error {
				found = true
				return t.altered(n, how)
			})
	})
	return found, err
}

// regain tries, between transactions and now and then, the tables that we may not read, or that were locked: the right
// may be there by now, or the lock gone. Their rows are then read from where they come next.
func (t *tables) regain() error {
	k := &t.looks
	begun := k.now()
	if t.l.tx.open || begun.Before(k.regain) {
		return nil
	}
	var found []*binlog.TableMap
	readable := false
	if unread := t.unread(); len(unread) > 0 {
		err := t.ask(t.l.ctx, func(s *session, _ *history) error {
			if err := s.waitFor(0); err != nil { // what is locked is tried again
				return err
			}
			for _, n := range unread {
				if k.now().Sub(begun) > regainFor {
					return nil // the others next time: they come in another order
				}
				still, err := s.hides(n)
				if err != nil {
					return err
				}
				if still {
					continue
				}
				readable = true
				if m := cmp.Or(t.tracker.Allowed(n), t.passed[n]); m != nil {
					found = append(found, m)
				}
				delete(t.passed, n)
			}
			return nil
		})
		if err != nil { // there is nothing that has to be known now
			t.l.o.Logger.Debug("it is not known whether tables may be read by now", "source", t.l.o.Source, "error", err)
		}
	}
	now := k.now()
	k.regain = now.Add(max(t.l.o.regainEach, lookShare*now.Sub(begun)))
	if err := t.keepUnlisted(); err != nil {
		return err
	}
	if !readable {
		return nil
	}
	t.l.dec.Forget()
	t.cascading.due = true // the server lists its foreign keys now
	if err := t.l.askKeys(); err != nil {
		return err
	}
	return t.heal(found)
}

// maxPassed bounds how many tables are known of which rows were passed over.
const maxPassed = 10_000

// pass notes whether rows are passed over because their table cannot be read for now.
func (t *tables) pass(m *binlog.TableMap) {
	n := t.name(ddl.Name{Schema: m.Schema, Table: m.Name})
	if !t.tracker.IsUnread(n) {
		delete(t.passed, n)
		return
	}
	t.notePassed(n, m)
}

func (t *tables) notePassed(n ddl.Name, m *binlog.TableMap) {
	if t.passed == nil || len(t.passed) >= maxPassed {
		t.passed = map[ddl.Name]*binlog.TableMap{}
	}
	t.passed[n] = m
}

// unread returns the tables that we may not read, or that are locked, in no order: those of this connection, and those
// of which rows were passed over on an earlier one.
func (t *tables) unread() []ddl.Name {
	all := t.tracker.Unread()
	of := map[ddl.Name]bool{}
	for _, n := range all {
		of[n] = true
	}
	for n := range t.passed {
		if !of[n] {
			all = append(all, n)
		}
	}
	return all
}

// heal has the doubts answered about rows that came under these TABLE_MAPs, if such rows can be read by now: nobody
// knows when the next ones come.
func (t *tables) heal(found []*binlog.TableMap) error {
	for _, m := range found {
		if t.l.done.isZero() {
			return nil // it is not known what may have changed the table since
		}
		_, err := t.define(m, t.l.done)
		if errors.Is(err, binlog.ErrUndefined) {
			err = t.healAltered(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// healAltered is heal for a table that was altered or dropped since, so that its columns then are written nowhere: rows
// that come now can be read, or there are none.
func (t *tables) healAltered(m *binlog.TableMap) error {
	n := ddl.Name{Schema: m.Schema, Table: m.Name}
	var now *event.Table
	err := t.ask(t.l.ctx, func(s *session, _ *history) (err error) {
		if err = s.waitFor(0); err == nil {
			now, err = s.present(n)
		}
		return err
	})
	if err != nil {
		t.l.o.Logger.Debug("it is not known what the columns of a table are by now", "source", t.l.o.Source, "schema", n.Schema,
			"table", n.Table, "error", err)
		t.notePassed(t.name(n), m) // it is tried again
		return nil
	}
	if now != nil {
		if _, err := t.l.bind(t.l.ctx, now); err != nil {
			return t.l.stop(err)
		}
		return nil
	}
	for _, d := range t.l.o.Doubts.List() {
		if d.Cause != alarm.EventUndecodable || d.Source != t.l.o.Source || !slices.Equal(d.Tables, []string{n.String()}) {
			continue
		}
		if err := t.l.record(d); err != nil { // up to here
			return err
		}
		if err := t.l.o.Doubts.Insist(t.l.ctx, d.ID); err != nil {
			return err
		}
	}
	return nil
}
