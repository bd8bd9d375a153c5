package e2e

import (
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
)

// misfit takes a column away for a while that the mapping of its table uses: changes lead to no key. That its name may
// be given to another column is nothing to these keys, and is dismissed.
func (u *unrest) misfit(t *shelved) {
	u.t.Helper()
	u.answering.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	renamed := time.Now()
	u.source.Exec(u.t, "ALTER TABLE "+t.full()+" RENAME COLUMN w TO elsewhere")
	u.awaitReaders("mapping_unfit", renamed)
	u.attend("statement_logged", "dismiss")
	u.cacheLast(t)
	u.remove(t)
	u.finish()
	u.source.Exec(u.t, "ALTER TABLE "+t.full()+" RENAME COLUMN elsewhere TO w")
}

// awaitOnly waits until nothing is in doubt but for one cause. What made it may be in doubt itself, and is answered.
func (u *unrest) awaitOnly(cause string) {
	u.t.Helper()
	testbed.Eventually(u.t, 3*time.Minute, "only "+cause+" is in doubt", func() bool {
		doubts, err := u.answering.client.ListDoubts(u.t.Context())
		return err == nil && len(doubts) == 1 && doubts[0].Cause == cause
	})
}

// hide has another table take the place of this one, which freshet may not read for a while.
func (u *unrest) hide(t *shelved) {
	u.t.Helper()
	u.source.Exec(u.t, "REVOKE SELECT ON vault.* FROM freshet@'%'")
	hidden := time.Now()
	u.source.Exec(u.t, "DELETE FROM vault.spare", "INSERT INTO vault.spare (id, v) SELECT id, v FROM "+t.full(),
		strings.ReplaceAll("RENAME TABLE TABLE1 TO vault.former, vault.spare TO TABLE1", "TABLE1", t.full()))
	u.awaitReaders("event_undecodable", hidden)
	u.awaitOnly("event_undecodable")
	u.cacheLast(t)
	u.remove(t)
	u.finish()
	u.source.Exec(u.t, "GRANT SELECT ON vault.* TO freshet@'%'") // which is looked for now and then, with the next row
	u.answering.await("read the table again", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
}

// putLongNote makes a row that has a long note if nobody else writes it.
const putLongNote = "INSERT INTO %s (id, v, note) VALUES (%%[1]d, %%[2]d, IF(%%[1]d < 1001, '', REPEAT('n', 65535))) " +
	"ON DUPLICATE KEY UPDATE v = v + 1"

func longNote(number int) string {
	if number < last {
		return ""
	}
	return strings.Repeat("n", 65535)
}

// lengthen has rows change whose keys are longer than freshet makes any. The application has them all the same. An
// operator has the keys forgotten.
func (u *unrest) lengthen(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	u.remove(t)
	u.answer("key_too_long")
}

// scribble has something write a doubt to the topic that freshet cannot read. An operator has all keys forgotten, and
// dismisses it.
func (u *unrest) scribble(t *shelved) {
	u.t.Helper()
	u.cacheLast(t)
	u.removeUnlogged(t)
	w := &kafka.Writer{Addr: kafka.TCP(u.fleet.kafka.Brokers()...), Topic: u.fleet.topic + ".doubts"}
	testbed.Must(u.t, w.WriteMessages(u.t.Context(), kafka.Message{Key: []byte("doubt/scribbled"), Value: []byte("{")}))
	testbed.Must(u.t, w.Close())
	if said, code := u.answering.ask("invalidate", "--all", "--wait"); code != 0 {
		u.t.Fatalf("the keys are not forgotten: %s", said)
	}
	u.attend("record_unreadable", "dismiss")
}
