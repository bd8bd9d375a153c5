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

// oneSuite runs a test with deletes and with every action, each on both servers, in a soak, and else one of the two on
// one server, by chance.
func oneSuite(t *testing.T, f func(t *testing.T, suite string, start func(testing.TB, ...string) *testbed.Server)) {
	t.Parallel()
	for _, suite := range testbed.Some(t, []string{"deletes", "actions"}) {
		t.Run(suite, func(t *testing.T) {
			oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) { f(t, suite, start) })
		})
	}
}

// underLoad runs a test in the world of each suite.
func underLoad(t *testing.T, strike func(w world, rnd *rand.Rand), serverArgs ...string) {
	oneSuite(t, func(t *testing.T, suite string, start func(testing.TB, ...string) *testbed.Server) {
		rnd := testbed.Seeded(t)
		strike(worlds[suite](t, start(t, serverArgs...), rnd.Uint64()), rnd)
	})
}
