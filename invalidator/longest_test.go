package invalidator

import (
	"testing"
	"time"
)

func TestTheShortestAndTheLongestSecondDeleteAreKnown(t *testing.T) {
	e := Engine{spans: &spans{}}
	if got := e.LongestD(); got != 0 {
		t.Errorf("before any the longest is %s", got)
	}
	for _, d := range []time.Duration{2 * time.Second, 0, 30 * time.Second, time.Second, 30 * time.Second} {
		e.spans.saw(d)
	}
	if short := e.spans.least(); e.LongestD() != 30*time.Second || short != time.Second {
		t.Errorf("from %s to %s", short, e.LongestD())
	}
}
