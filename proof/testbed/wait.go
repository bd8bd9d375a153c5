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
// time: 1 ms at first, twice as long after each three times, up to 100 ms, and at least three times as long as asking
// took (up to 250 ms), for it takes the processor from what is waited for. With the race detector an answer of /status
// takes some 10 ms of it.
func Pause(asked int, took time.Duration) time.Duration {
	return max(min(time.Millisecond<<min(asked/3, 7), 100*time.Millisecond), min(3*took, 250*time.Millisecond))
}
