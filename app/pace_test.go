package app

import (
	"testing"
	"time"

	"github.com/freshet/freshet/canal"
)

// Large events are few, and take as long.
func TestTheClockIsLookedAtAfterSoManyBytes(t *testing.T) {
	now := time.Unix(0, 0)
	p := pace{now: func() time.Time { return now }}
	p.handedOn()
	now = now.Add(handOnAfter)
	for range 3 {
		if p.read(rowsStep(lookBytes / 4)) {
			t.Fatal("too early")
		}
	}
	if !p.read(rowsStep(lookBytes / 4)) {
		t.Fatal("not handed on")
	}
	p.handedOn()
	if p.read(rowsStep(lookBytes)) {
		t.Fatal("handed on at once again")
	}
}

// What is prepared is written to disk, or to Kafka, and what is committed is read from there: some milliseconds each.
func TestTheClockIsLookedAtAfterEachUseOfTheStash(t *testing.T) {
	now := time.Unix(0, 0)
	for kind, want := range map[canal.Kind]bool{
		canal.Rows: false, canal.Committed: false, canal.Prepared: true, canal.XACommitted: true,
	} {
		p := pace{now: func() time.Time { return now }}
		p.handedOn()
		now = now.Add(handOnAfter)
		if got := p.read(&canal.Step{Kind: kind}); got != want {
			t.Errorf("kind %d: %v, want %v", kind, got, want)
		}
	}
}
