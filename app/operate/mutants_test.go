package operate

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/mutant"
)

// Every part of what a doubt is about is needed: without it, a doubt ends before its keys are forgotten, or never.
func TestEveryMutantIsCaught(t *testing.T) { mutant.Caught(t) }
