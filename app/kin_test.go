package app

import (
	"testing"

	"github.com/freshet/freshet/canal"
)

// Two databases of MariaDB have the same identity unless somebody gives them others.
func TestAnotherDatabaseOfTheSameIdentityIsNoGapForever(t *testing.T) {
	same, other := &canal.ForeignError{Server: "1", Was: "1"}, &canal.ForeignError{Server: "1", Was: "2"}
	seen := sameServer{passes: true}
	for i := range gapLooks - 1 {
		if !seen.isGap(same) {
			t.Errorf("look %d: no gap", i)
		}
	}
	if seen.isGap(same) || seen.isGap(other) || (&sameServer{}).isGap(same) {
		t.Error("another database is taken for a gap")
	}
}
