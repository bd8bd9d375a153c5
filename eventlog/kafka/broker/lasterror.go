package broker

import (
	"sync"
	"time"
)

// passing is how long an error that passes by itself counts although brokers answer again: another one may still be
// away.
const passing = 2 * time.Second

// lastError remembers the last error of the brokers.
type lastError struct {
	mu    sync.Mutex
	last  *Error
	at    time.Time
	heard time.Time // when the last answer came
}

// note takes note of an error, and counts it. That a caller has ended, that a group goes on in another generation, and
// that an offset is not there are no trouble with the brokers.
func (c *Client) note(e *Error) {
	c.count.failed(e.Class)
	switch e.Class {
	case Ended, Fenced, OutOfRange:
		return
	}
	c.lastError.mu.Lock()
	defer c.lastError.mu.Unlock()
	c.lastError.last, c.lastError.at = e, time.Now()
}

// hear takes note of an answer.
func (t *lastError) hear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = time.Now()
}

// Trouble returns what the brokers last held against what was asked of them, or that they do not answer, as long as it
// may last: until they answer again, and for what waiting does not repair, for as long as the next attempt may take.
// Nil: all is well as far as is known.
func (c *Client) Trouble() error {
	t := &c.lastError
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return nil
	}
	lasts := c.o.Timeout + passing
	if t.last.Class == Transient {
		lasts = passing
		if t.at.After(t.heard) {
			return t.last
		}
	}
	if time.Since(t.at) > lasts {
		return nil
	}
	return t.last
}

// Answered reports whether any broker has ever answered.
func (c *Client) Answered() bool {
	c.lastError.mu.Lock()
	defer c.lastError.mu.Unlock()
	return !c.lastError.heard.IsZero()
}
