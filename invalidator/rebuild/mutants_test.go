package rebuild

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/mutant"
)

func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t) }
