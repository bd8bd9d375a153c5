package retry

import (
	"sync"
	"time"
)

const (
	// Quiet is how long a kind of failure that was reported is not reported again while it goes on.
	Quiet = time.Minute
	// mostKinds bounds what a Reporter remembers. If there are more, some are reported sooner.
	mostKinds = 16
)

// Reporter keeps the [Loop]s that need one thing, such as the brokers, from reporting the same failure at each attempt.
// A failure is reported if it is the first of its kind, and again a minute later if it still goes on. Once all loops
// that had something to report have succeeded, that is reported, and the next failure is a first one again.
//
// It is safe for concurrent use. Its functions are called one at a time, and must not call a loop of the Reporter.
type Reporter struct {
	// Failed reports a failure. Required.
	Failed func(err error)
	// Recovered reports that attempts succeed again. lasted is for how long those of the loop failed that was the last
	// to succeed. Nil: it is not reported.
	Recovered func(lasted time.Duration)
	// Kind returns what is reported once, and whether it passes by itself. Default: the text of the error, which does.
	Kind func(err error) (kind string, passes bool)
	// Grace is for how long a loop's failures that pass by themselves are not reported. Default 0: the first one is.
	Grace time.Duration

	mu       sync.Mutex
	reported map[string]time.Time // kind -> when
	failing  int                  // loops that had something to report
}

// failed reports a failure if it is news. It returns false if nothing should be said of it yet. first says that nothing
// was to be said of this loop before.
func (r *Reporter) failed(err error, lasting time.Duration, first bool) bool {
	if r == nil {
		return false
	}
	kind, passes := err.Error(), true
	if r.Kind != nil {
		kind, passes = r.Kind(err)
	}
	if passes && lasting < r.Grace {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.failing++
	}
	now := time.Now()
	if at, ok := r.reported[kind]; ok && now.Sub(at) < Quiet {
		return true
	}
	if len(r.reported) == 0 || len(r.reported) >= mostKinds {
		r.reported = map[string]time.Time{}
	}
	r.reported[kind] = now
	r.Failed(err)
	return true
}

// ended takes a loop from those that fail. lasted is negative if it was given up.
func (r *Reporter) ended(lasted time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing--; r.failing > 0 {
		return
	}
	if lasted >= 0 {
		r.reported = nil
		if r.Recovered != nil {
			r.Recovered(lasted)
		}
	}
}
