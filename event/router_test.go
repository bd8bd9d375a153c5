package event_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/routertest"
)

// Whatever the order that its invalidations are put in, each has its own origin, effect and fields.
func TestWhatTheRouterMakesIsTheSameInAnotherOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, b := range routertest.Batches(t) {
			order := make([]uint32, b.Len())
			for i := range order {
				order[i] = uint32(i)
			}
			order = rapid.Permutation(order).Draw(t, "order")
			was := routertest.Items(b)
			want := make([]routertest.Item, len(was))
			for at, i := range order {
				want[at] = was[i]
			}
			if diff := cmp.Diff(want, routertest.Items(b.Arrange(order))); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(was, routertest.Items(b.Clone())); diff != "" {
				t.Fatal(diff)
			}
			var highest event.Version
			for _, i := range was {
				if i.Version.Compare(highest) > 0 {
					highest = i.Version
				}
			}
			if b.Last != highest {
				t.Fatalf("the last is %s, want %s", b.Last, highest)
			}
		}
	})
}
