package app

import (
	"time"

	"github.com/freshet/freshet/canal"
)

const (
	// handOnAfter is for how long what was read may wait for the batch to become full. A source that always has
	// more to send would otherwise hold back a key, and the position, for as long as nothing else that is mapped
	// follows.
	handOnAfter = 100 * time.Millisecond
	// The clock is looked at after so many steps, or so many bytes of events: some milliseconds of work. It is also looked
	// at after each step that is a write to the stash or a read of it: that may take as long.
	lookSteps = 256
	lookBytes = 1 << 20
)

// pace says when what was read is handed on although the source has more to send. It belongs to the reader.
type pace struct {
	now func() time.Time // nil: time.Now
	// handed is when everything was last handed on; steps and bytes were read since the clock was last looked at.
	handed       time.Time
	steps, bytes int
}

// read counts a step and reports whether it is time to hand on what was read.
func (p *pace) read(s *canal.Step) bool {
	p.steps++
	p.bytes += s.Size
	stash := s.Kind == canal.Prepared || s.Kind == canal.XACommitted
	if !stash && p.steps < lookSteps && p.bytes < lookBytes {
		return false
	}
	p.steps, p.bytes = 0, 0
	return p.clock().Sub(p.handed) >= handOnAfter
}

// handedOn takes note that everything has been handed on.
func (p *pace) handedOn() { p.handed = p.clock() }

func (p *pace) clock() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now()
}
