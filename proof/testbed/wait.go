package testbed

import (
	"testing"
	"time"
)

// Must fails the test at once if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually asks cond until it says true, and fails the test when it has not after d. It is for
// conditions which no signal announces; what names the condition in the failure.
func Eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for asked := 0; ; asked++ {
		began := time.Now()
		if cond() {
			return
		}
		select {
		case <-time.After(pause(asked, time.Since(began))):
		case <-deadline.C:
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// pause is how long to wait before a condition is asked again: from 1 ms on a little longer each time, up to 25 ms, and
// at least as long as asking took (up to 250 ms), for it takes the processor from what is waited for.
func pause(asked int, took time.Duration) time.Duration {
	return max(min(time.Duration(asked+1)*time.Millisecond, 25*time.Millisecond), min(took, 250*time.Millisecond))
}
