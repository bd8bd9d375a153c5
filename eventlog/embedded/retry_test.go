package embedded

import (
	"testing"

	"github.com/freshet/freshet/retry/retrytest"
)

func TestTheStoreKeepsKeysInTroubleAsItShould(t *testing.T) {
	retrytest.Run(t, func(t *testing.T) retrytest.Rig {
		var s *Store
		dir := t.TempDir()
		return retrytest.Rig{
			Open: func() retrytest.Store {
				if s == nil {
					s = open(t, dir, Options{})
				} else {
					s = reopen(t, s)
				}
				return s
			},
			Seen:  func() {},
			Sound: func() { sound(t, s) },
		}
	})
}
