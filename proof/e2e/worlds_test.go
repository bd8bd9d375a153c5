package e2e

import (
	"math/rand/v2"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// world is freshet under a load.
type world struct {
	*rig
	load *load
	// settle ends the load, waits until freshet is done, and verifies what was done and what is cached. hurt says that
	// Redis was hurt, so that messages were lost.
	settle func(hurt bool)
}

// worlds are the loads to which the same is done: one of which freshet deletes the keys, and one with every action.
var worlds = map[string]func(t *testing.T, source *testbed.Server, seed uint64) world{
	"deletes": func(t *testing.T, source *testbed.Server, seed uint64) world {
		r, l := loadRig(t, source, seed)
		return world{r, l, func(bool) { settle(r, l) }}
	},
	"actions": func(t *testing.T, source *testbed.Server, seed uint64) world {
		b := bazaarRig(t, source, seed)
		return world{b.r, b.load, func(hurt bool) {
			b.settle(b.finish, hurt)
			b.r.stop()
		}}
	},
}

// underLoad runs a test in each world on each server in a soak, and else in one of them on one server, by chance.
func underLoad(t *testing.T, strike func(w world, rnd *rand.Rand), serverArgs ...string) {
	t.Parallel()
	for _, suite := range testbed.Some(t, []string{"deletes", "actions"}) {
		t.Run(suite, func(t *testing.T) {
			oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
				rnd := testbed.Seeded(t)
				strike(worlds[suite](t, start(t, serverArgs...), rnd.Uint64()), rnd)
			})
		})
	}
}
