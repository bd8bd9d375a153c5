package invalidator

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/mutant"
)

// Every part of the rule is needed: without it, some world ends with a cached value that is older than its row.
func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t, "FRESHET_WORLDS=3000") }
