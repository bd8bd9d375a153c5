package main

import (
	"os"
	"runtime/debug"
)

// What is queued is most of what freshet holds, for minutes or hours, and has no pointers: it is kept small rather than
// collected seldom. So the heap grows by a third before garbage is collected, instead of twofold. With little on the
// heap that would be all the time, so there is a ballast: memory that counts as used, and is never touched, so that it
// takes none. What both brought is in docs/performance.md.
const (
	gcPercent = 33
	ballast   = 16 << 20
)

// saveMemory sets the garbage collector up, unless the environment does (GOGC, GOMEMLIMIT). What it returns must stay
// reachable until the end.
func saveMemory() []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return nil
		}
	}
	debug.SetGCPercent(gcPercent)
	return make([]byte, ballast)
}
