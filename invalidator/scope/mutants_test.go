package scope

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/mutant"
)

// Every part of a scope is needed: without it, a stale key stays, or a key that is no cache goes.
func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t) }
