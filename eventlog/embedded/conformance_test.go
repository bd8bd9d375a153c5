package embedded

import (
	"testing"

	"github.com/freshet/freshet/retry/retrytest"
)

func TestTheStoreIsAsEveryStoreIs(t *testing.T) {
	retrytest.Run(t, func(t *testing.T) retrytest.Rig {
		dir := t.TempDir()
		var s *Store
		return retrytest.Rig{
			Open: func() retrytest.Store {
				if s != nil {
					must(t, s.Close())
				}
				s = open(t, dir, Options{})
				return s
			},
			Seen:  func() {},
			Sound: func() { sound(t, s) },
		}
	})
}
