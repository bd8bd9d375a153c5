package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The defaults of a [Policy].
const (
	DefaultMaxAttempts = 8
	DefaultParkAfter   = 3
	DefaultMinBackoff  = 100 * time.Millisecond
	DefaultMaxBackoff  = 30 * time.Second
)

// DefaultParkDelays returns the default of [Policy.ParkDelays]: 10 s, 1 min, 10 min.
func DefaultParkDelays() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
}

// Policy says what becomes of one key in trouble. The zero value of each field means its default.
type Policy struct {
	// MaxAttempts is how many attempts a key gets, in place and parked together, before it becomes a dead letter.
	// Default 8.
	MaxAttempts int
	// ParkAfter is how many of them are made in place, before the key is parked. Default 3. Where it is
	// MaxAttempts or more, no key is parked.
	ParkAfter int
	// ParkDelays are the waits before the parked attempts, in turn; the last one repeats. Default 10 s, 1 min,
	// 10 min.
	ParkDelays []time.Duration
	// MinBackoff and MaxBackoff bound the waits between the attempts in place, see [Backoff]. Defaults 100 ms
	// and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// Rand returns a number in [0, 1). Default: math/rand/v2.
	Rand func() float64
}

// Step says where the next attempt is made.
type Step uint8

// The steps of a key in trouble, in their order.
const (
	// InPlace: tried again where it failed.
	InPlace Step = iota + 1
	// Park: put into the store until it is due.
	Park
	// Bury: given up, as a dead letter.
	Bury
)

// String returns the step's name.
func (s Step) String() string {
	switch s {
	case InPlace:
		return "in place"
	case Park:
		return "park"
	case Bury:
		return "dead letter"
	}
	return fmt.Sprintf("step(%d)", uint8(s))
}

// WithDefaults returns the policy with every zero field set to its default.
func (p Policy) WithDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.ParkAfter == 0 {
		p.ParkAfter = DefaultParkAfter
	}
	if len(p.ParkDelays) == 0 {
		p.ParkDelays = DefaultParkDelays()
	}
	p.MinBackoff = orElse(p.MinBackoff, DefaultMinBackoff)
	p.MaxBackoff = orElse(p.MaxBackoff, DefaultMaxBackoff)
	if p.Rand == nil {
		p.Rand = rand.Float64
	}
	return p
}

// Validate returns all that is wrong with the policy, in the words of the configuration.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var errs []error
	if p.MaxAttempts < 1 {
		errs = append(errs, fmt.Errorf("max_attempts %d: want at least 1", p.MaxAttempts))
	}
	if p.ParkAfter < 1 {
		errs = append(errs, fmt.Errorf("park_after %d: want at least 1", p.ParkAfter))
	}
	if i := slices.IndexFunc(p.ParkDelays, func(d time.Duration) bool { return d <= 0 }); i >= 0 {
		errs = append(errs, fmt.Errorf("park_delays: %s: want more than 0s", p.ParkDelays[i]))
	}
	if p.MinBackoff <= 0 {
		errs = append(errs, fmt.Errorf("min_backoff %s: want more than 0s", p.MinBackoff))
	}
	if p.MaxBackoff < p.MinBackoff {
		errs = append(errs, fmt.Errorf("max_backoff %s is less than min_backoff %s", p.MaxBackoff, p.MinBackoff))
	}
	return errors.Join(errs...)
}

// Next says what follows the given number of failed attempts (at least 1) on one key, and after how long; the wait
// of [Bury] is 0. The caller counts the attempts in [Entry].Attempts, wherever they were made.
func (p Policy) Next(attempts int) (Step, time.Duration) {
	p = p.WithDefaults()
	attempts = max(attempts, 1)
	switch {
	case attempts >= p.MaxAttempts:
		return Bury, 0
	case attempts < p.ParkAfter:
		return InPlace, jitter(p.MinBackoff, p.MaxBackoff, attempts-1, p.Rand)
	}
	return Park, p.ParkDelay(attempts)
}

// ParkDelay returns for how long a key is parked after the given number of failed attempts. It is also the answer
// for one with fewer than ParkAfter of them: a dead letter that was replayed begins again, and is tried from the
// store only.
func (p Policy) ParkDelay(attempts int) time.Duration {
	p = p.WithDefaults()
	i := max(attempts-p.ParkAfter, 0)
	return p.ParkDelays[min(i, len(p.ParkDelays)-1)]
}
