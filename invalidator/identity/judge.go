package identity

import "time"

// known is what is kept of the Redis that was seen last.
type known struct {
	Run  string    `json:"run_id"`
	Repl string    `json:"master_replid,omitempty"`
	Seen time.Time `json:"seen"` // by this machine's clock
	// Place says where in it the keys are; empty: it was not kept.
	Place string `json:"place,omitempty"`
	// Stamp tells the key of its stamp from those of others.
	Stamp string `json:"stamp,omitempty"`
}

const (
	// unwatched is how long Redis may go unseen for nothing else to have happened to it than what INFO still says.
	unwatched = time.Minute
	// tick is how exactly it is known when a server started.
	tick = time.Second
)

// until returns what is known of the server before s, seen as long as it was at work: connections of before may go on
// while no new one comes about, and s may have been there for long then.
func (k known) until(s seen) known {
	if k.Run != s.run && s.worked.After(k.Seen) {
		k.Seen = s.worked
	}
	return k
}

// suspicion says in a clause why keys that had been deleted may be back in s; "" if they cannot be.
func suspicion(was known, s server, now time.Time) string {
	switch {
	case was.Run == s.run && was.Repl == s.repl:
		return ""
	case s.keys == 0:
		return "" // whichever server it is, it holds nothing old
	case was.Run == s.run:
		// A master draws a new name for its history when its first replica comes, and when it has had none for long.
		// One that was a replica meanwhile keeps the name that it had then.
		if s.parent == "" && now.Sub(was.Seen) < unwatched {
			return ""
		}
		return "it was a replica of another server meanwhile, or could have been, and has taken over its data"
	case s.parent != "" && s.parent == was.Repl:
		return "a replica has taken the place of its master, and may lack the last deletes, since Redis replicates without " +
			"waiting"
	case s.loaded == 0 && s.parent == "" && !stranger(was, s, now):
		return "" // it was started since, and began with nothing
	case !stranger(was, s, now):
		return "it was restarted, and has read back what it had saved, which may be from before the last deletes"
	}
	return "another server answers at this address, and nothing says that the deletes reached it"
}

// stranger reports whether s has data of which nothing is known: it is neither the server that it was, nor was its
// replica, nor has been started since. One that was started up to a second before may count as started since: that no
// restart counts as a stranger is worth more, for a Redis that begins with nothing is filled by the time that it is
// looked at.
func stranger(was known, s server, now time.Time) bool {
	return was.Run != s.run && (s.parent == "" || s.parent != was.Repl) && s.upAtLeast() > now.Sub(was.Seen)
}

// upAtLeast returns for how long a server has surely been up. Its uptime counts from the beginning of the second in
// which it started to that of the present one.
func (s *server) upAtLeast() time.Duration { return s.uptime + s.since - tick }
