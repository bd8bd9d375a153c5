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
		case <-time.After(Pause(asked, time.Since(began))):
		case <-deadline.C:
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// Pause is how long to wait before a condition is asked again that was asked so many times and took that long the last
// time: from 1 ms on a little longer each time, up to 50 ms, and at least twice as long as asking took (up to 250 ms),
// for it takes the processor from what is waited for.
func Pause(asked int, took time.Duration) time.Duration {
	return max(min(time.Duration(asked+1)*time.Millisecond, 50*time.Millisecond), min(2*took, 250*time.Millisecond))
}
