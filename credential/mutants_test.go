package credential

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/mutant"
)

// Every part of how secrets are read is needed: without it a rotation is a fault, or a secret is shown.
func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t) }
