package canal

import (
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/event"
)

// fillView is what is known of a fill server. It is under the lock of its visibility.
type fillView struct {
	address string
	// answers are as those of the source. A fill server answers with a set of GTIDs alone.
	answers []answer
	// upTo is how many requirements of the queue, from the first on, it has confirmed.
	upTo int
	// same says that it is the server that is streamed from: what that has confirmed, it has.
	same bool
	// joined says that it was not there from the beginning of the run.
	joined bool
	// doubted says that what it lacks from before was in doubt from the beginning.
	doubted bool
	// out says that it is not waited for.
	out bool

	// What is shown: which server answers there, since when it has not, and why not.
	server string
	silent time.Time
	err    string
}

// FillServer is how a server stands that the application fills its cache from.
type FillServer struct {
	// Address is host:port, and Server which one answers there; "": none has.
	Address string `json:"address"`
	Server  string `json:"server,omitempty"`
	// WaitedFor says whether final deletes wait for it; it is left out if not.
	WaitedFor bool `json:"waited_for"`
	// Lacking counts batches that the source has and it has not.
	Lacking int `json:"lacking"`
	// Error is why it does not answer; "": it does.
	Error string `json:"error,omitempty"`
}

// String says it to a human.
func (f FillServer) String() string {
	switch {
	case !f.WaitedFor && f.Error != "":
		return f.Address + ": left out: " + f.Error
	case !f.WaitedFor:
		return f.Address + ": left out until it has all that it lacked"
	case f.Error != "":
		return f.Address + ": does not answer: " + f.Error
	case f.Lacking > 0:
		return fmt.Sprintf("%s: lacks %d batches that the source has", f.Address, f.Lacking)
	}
	return f.Address + ": has all"
}

func (f *fillView) reset() { f.answers, f.upTo, f.same = nil, 0, false }

// watchFill adds a fill server, for which the marks wait from here on.
func (v *visibility) watchFill(address string) *fillView {
	f := &fillView{address: address, silent: time.Now()}
	v.mu.Lock()
	defer v.mu.Unlock()
	f.joined = !v.unknown
	v.fills = append(v.fills, f)
	return f
}

// isDoubted says that what a fill server lacks from before is in doubt.
func (v *visibility) isDoubted(f *fillView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f.doubted = true
}

// dropFill forgets a fill server.
func (v *visibility) dropFill(f *fillView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fills = slices.DeleteFunc(v.fills, func(other *fillView) bool { return other == f })
	v.heard()
}

// heard draws the conclusions from what fill servers have said. The caller has the lock.
func (v *visibility) heard() {
	if n := v.confirm(time.Now()); n > 0 {
		v.news = true
		signal(v.wake)
	}
}

// fillAnswered takes note of an answer. It returns how much later than the source it has what it has now, if that is
// more than before.
func (v *visibility) fillAnswered(f *fillView, a answer) (wait time.Duration, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f.server, f.silent, f.err = a.server, time.Time{}, ""
	f.same = a.server == v.server
	if !f.same {
		f.answers = keep(f.answers, a, v.spacing)
		was := f.upTo
		for f.upTo < len(v.queue) && v.has(f, &a, &v.queue[f.upTo]) {
			f.upTo++
		}
		if last := min(f.upTo, v.seen) - 1; last >= was {
			wait, more = a.received.Sub(v.queue[last].seen), true
		}
	}
	v.made = a.made
	v.heard()
	return wait, more
}

// has reports whether a fill server that gives an answer has what c needs.
func (v *visibility) has(f *fillView, a *answer, c *requirement) bool {
	if !c.earlier {
		return a.holds(c)
	}
	return !c.unfinished || f.doubted || !a.lacks(&v.before)
}

// known says that all fill servers are watched by now.
func (v *visibility) known() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unknown = false
	v.heard()
}

// missed reports whether a server lacks anything that was finished without it, before it was first asked.
func (v *visibility) missed(f *fillView, a *answer) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all event.GTIDSet
	if v.finished {
		all = v.before.Clone()
	}
	if f.joined {
		all.Union(&v.readGTIDs)
		for i := len(v.queue) - 1; i >= 0; i-- {
			v.queue[i].takeFrom(&all)
		}
	}
	return a.server != v.server && !f.doubted && a.lacks(&all)
}

// takeFrom takes what c needs out of a set.
func (c *requirement) takeFrom(all *event.GTIDSet) {
	for _, r := range c.gtids {
		if before := r.First; r.First.UUID == [16]byte{} { // of MariaDB a set has the last one only
			if before.Number--; before.Number > 0 && all.Contains(r.First) {
				all.Add(before)
			}
			continue
		}
		var run event.GTIDSet
		run.AddRange(r)
		*all = all.Subtract(&run)
	}
	if c.more != nil {
		*all = all.Subtract(c.more)
	}
}

// fillFailed takes note that a fill server does not answer.
func (v *visibility) fillFailed(f *fillView, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.err = err.Error(); f.silent.IsZero() {
		f.silent = time.Now()
	}
}

// fillLacks returns the first requirement that the source has confirmed and a fill server that is waited for has not.
func (v *visibility) fillLacks(f *fillView) (c requirement, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.out || f.same || f.upTo >= v.seen {
		return c, false
	}
	c = v.queue[f.upTo]
	for _, later := range v.queue[f.upTo+1 : v.seen] { // which may have been committed before, as far as clocks tell
		if later.committed.Before(c.committed) {
			c.committed = later.committed
		}
	}
	return c, true
}

// silentFor returns for how long a fill server has not answered.
func (v *visibility) silentFor(f *fillView) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.silent.IsZero() {
		return 0
	}
	return time.Since(f.silent)
}

// leaveOut has the marks wait for a fill server no longer, or again. From when it is waited for again, it must have all
// that is not confirmed. It returns up to where all was confirmed before.
func (v *visibility) leaveOut(f *fillView, out bool) event.Version {
	v.mu.Lock()
	defer v.mu.Unlock()
	passed := v.confirmed
	f.out = out
	f.reset()
	v.heard()
	return passed
}

// past reports whether more is confirmed than up to a version.
func (v *visibility) past(version event.Version) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.confirmed.Compare(version) > 0
}

// lacksSince returns a time such that all changes that a server lacks, which now has no more than this, were committed
// later; zero: none is known. late is how late a fill server can be that is waited for.
func (v *visibility) lacksSince(f *fillView, has *answer, late time.Duration) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !has.lacks(&v.before) {
		for i := len(v.answers) - 1; i >= 0; i-- {
			if a := &v.answers[i]; a.named && a.whole && !has.lacks(&a.gtids) {
				return a.made.Add(-late)
			}
		}
	}
	// What was finished by then, the fill server had.
	for i := len(f.answers) - 1; i >= 0; i-- {
		if !f.answers[i].ahead(has) {
			return f.answers[i].made.Add(-late)
		}
	}
	return time.Time{}
}

// target is all that was handed over, in this run and before.
func (v *visibility) target() event.GTIDSet {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.before.Clone()
	all.Union(&v.readGTIDs)
	return all
}

// stats is asked under the lock of the visibility.
func (f *fillView) stats(seen int) FillServer {
	s := FillServer{Address: f.address, Server: f.server, WaitedFor: !f.out, Error: f.err}
	if !f.same && !f.out {
		s.Lacking = max(0, seen-f.upTo)
	}
	return s
}
