package routertest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// What is drawn holds what codecs have stumbled over, or nothing would be proved with it.
func TestBatchesHaveAllThatTheRouterMakes(t *testing.T) {
	actions := map[event.Action]bool{}
	intents := map[event.Intent]bool{}
	back, events, mappings, null := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for _, b := range Batches(t) {
			for i := range b.Invalidations {
				inv := &b.Invalidations[i]
				actions[inv.Action], intents[inv.Intent] = true, true
				if i > 0 && inv.Origin < b.Invalidations[i-1].Origin {
					back++
				}
			}
			for i := range b.Origins {
				if i > 0 && b.Origins[i].Event != b.Origins[i-1].Event {
					events++
				}
			}
			if len(b.Commons) > 1 {
				mappings++
			}
			for _, i := range Items(b) {
				for _, f := range i.Fields {
					if f == nil {
						null++
					}
				}
			}
		}
	})
	if len(actions) != int(event.ActionIncr) || len(intents) != 3 || back == 0 || events == 0 || mappings == 0 ||
		null == 0 {
		t.Errorf("%d actions, %d intents, origins that go back %d times, %d events behind others, %d batches of several "+
			"mappings, %d null fields",
			len(actions), len(intents), back, events, mappings, null)
	}
}
