package invalidator

import (
	"sync"
	"time"
)

// watch knows when Redis was last silent, and for how long. While Redis is silent (hung, cut off, restarted), the
// writes of the cache's readers wait in its sockets next to our deletes and may take effect after them, so the rule
// must know about every silence of more than D/4, for every D.
//
// An answer to a command that was sent at s proves that Redis was at work at some time after s. So between the
// latest such s and the next answer it may have been silent; it was not for longer. That does not miss a silence,
// and it takes for one only what might have been one, such as a time in which nothing was asked: hence the prober
// asks when nobody else does (see [health]).
//
// All methods may be called by any goroutine. They are called for each round trip, not for each key.
type watch struct {
	mu sync.Mutex
	// seen is when the latest of the answered commands was sent.
	seen instant
	// lost is set by a failure: what comes until the next answer is a silence, however short.
	lost bool
	// moved is when another server took the place of the one before: what was sent before that says nothing of it.
	moved instant
	// silences are those that no later one was longer than: their lengths fall, their ends rise. Lengths that
	// differ by less than a tenth are kept as one, which bounds how many there are.
	silences []silence
}

type silence struct {
	length time.Duration
	end    instant
}

// endless is the length of a silence that counts for every D.
const endless time.Duration = 1<<63 - 1

// newWatch returns a watch that knows nothing: the time before the first answer is a silence.
func newWatch() *watch { return &watch{lost: true, seen: always, moved: always} }

// move takes note that from now on another server is asked. As with the first one, the time before its first answer is
// a silence: nobody knows what it did then.
func (w *watch) move(now instant) {
	w.mu.Lock()
	w.moved, w.lost = now, true
	w.mu.Unlock()
}

// answered takes note of a command that was sent and answered.
func (w *watch) answered(a reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.sent < w.moved {
		return
	}
	length := a.replied.sub(w.seen)
	if w.lost {
		length, w.lost = endless, false
	}
	w.seen = max(w.seen, a.sent)
	if length > 0 {
		w.push(silence{length, a.replied})
	}
}

// failed takes note of a command that got no answer, or one that says that Redis does not work.
func (w *watch) failed() {
	w.mu.Lock()
	w.lost = true
	w.mu.Unlock()
}

func (w *watch) push(s silence) {
	n := len(w.silences)
	for n > 0 && w.silences[n-1].length <= s.length {
		s.end = max(s.end, w.silences[n-1].end)
		n--
	}
	w.silences = w.silences[:n]
	if n > 0 && w.silences[n-1].length-s.length < s.length/10 {
		w.silences[n-1].end = max(w.silences[n-1].end, s.end)
		return
	}
	w.silences = append(w.silences, s)
}

// dark returns the end of the last silence of more than D/4; always if there was none.
func (w *watch) dark(d time.Duration) instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.silences) - 1; i >= 0; i-- {
		if w.silences[i].length > d/late {
			return w.silences[i].end
		}
	}
	if w.lost && len(w.silences) == 0 {
		return never
	}
	return always
}

// quietFor returns how long ago the latest answered command was sent.
func (w *watch) quietFor(now instant) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.sub(w.seen)
}

// lastSeen returns when the latest of the answered commands was sent.
func (w *watch) lastSeen() instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
