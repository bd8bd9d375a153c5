package canal

import "time"

const (
	// handOnAfter is for how long what was read may wait for the sink's batch to become full. A source that always has
	// more to send would otherwise hold back a key, and the position, for as long as nothing else that is mapped
	// follows.
	handOnAfter = 100 * time.Millisecond
	// The clock is looked at after so many events, or so many bytes of them: some milliseconds of work.
	lookEvents = 256
	lookBytes  = 1 << 20
)

// pace says when what was read is handed on although the source has more to send. It belongs to the loop.
type pace struct {
	now func() time.Time
	// handed is when everything was last handed on; events and bytes were read since the clock was last looked at.
	handed        time.Time
	events, bytes int
}

// read counts an event and reports whether it is time to hand on what came before it.
func (p *pace) read(size int) bool {
	p.events++
	p.bytes += size
	if p.events < lookEvents && p.bytes < lookBytes {
		return false
	}
	p.events, p.bytes = 0, 0
	return p.now().Sub(p.handed) >= handOnAfter
}

// handedOn takes note that everything has been handed on.
func (p *pace) handedOn() { p.handed = p.now() }
