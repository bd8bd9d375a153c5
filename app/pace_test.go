package app

import (
	"testing"
	"time"
)

// Large events are few, and take as long.
func TestTheClockIsLookedAtAfterSoManyBytes(t *testing.T) {
	now := time.Unix(0, 0)
	p := pace{now: func() time.Time { return now }}
	p.handedOn()
	now = now.Add(handOnAfter)
	for range 3 {
		if p.read(lookBytes / 4) {
			t.Fatal("too early")
		}
	}
	if !p.read(lookBytes / 4) {
		t.Fatal("not handed on")
	}
	p.handedOn()
	if p.read(lookBytes) {
		t.Fatal("handed on at once again")
	}
}
