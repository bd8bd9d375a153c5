package invalidator

import (
	"testing"
	"time"
)

func TestTheShortestAndTheLongestSecondDeleteAreKnown(t *testing.T) {
	var e Engine
	e.health = newHealth(nil, e.clock, time.Second)
	if got := e.LongestD(); got != 0 {
		t.Errorf("before any the longest is %s", got)
	}
	for _, d := range []time.Duration{2 * time.Second, 0, 30 * time.Second, time.Second, 30 * time.Second} {
		e.health.sawD(d)
	}
	if short := time.Duration(e.health.shortest.Load()); e.LongestD() != 30*time.Second || short != time.Second {
		t.Errorf("from %s to %s", short, e.LongestD())
	}
}
