package canal

import (
	"context"
	"slices"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
)

// split returns two servers that both take writes and of which neither has all that the other has.
func split(seen []candidate) (a, b *candidate, is bool) {
	for i := range seen {
		for j := range seen[:i] {
			a, b := &seen[j], &seen[i]
			if a.takesWrites() && b.takesWrites() && a.info.Server != b.info.Server && !a.has(b) && !b.has(a) {
				return a, b, true
			}
		}
	}
	return nil, nil, false
}

// splitWords says that two servers take writes apart from one another.
func splitWords(a, b *candidate) string {
	return "two servers take writes, and each has transactions that the other lacks: " + a.name() + " and " + b.name()
}

// doubtIfSplit records that two servers take writes, if that was seen, and returns the address of the one that is not
// read; "": there is none. server is the one that is read, at the address.
func (c *Canal) doubtIfSplit(ctx context.Context, seen []candidate, server, address string) (apart string, err error) {
	a, b, is := split(seen)
	if !is || c.o.Follow {
		return "", nil
	}
	other := a
	if a.info.Server == server {
		other = b
	}
	return other.address, c.doubtSplit(ctx, other.address, splitWords(a, b)+"; only "+address+
		" is read, so keys of what is written on the other one stay stale")
}

// doubtSplit records that two servers take writes, of which the one at the address is not read. It is a doubt: when one
// of them gives its transactions up, what was cached from it stays.
func (c *Canal) doubtSplit(ctx context.Context, other, what string) error {
	return c.o.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.SourceSplit, Source: c.o.Source, Subject: other,
		Message: "source " + c.o.Source + ": " + what + ". Once one of them is a replica of the other, have all keys " +
			"forgotten (`freshet doubts answer`)",
	})
}

// doubtEndOfSplit records the doubt once more when a split is over, which apart was the other server of. If it was
// answered before that, or dismissed, keys may have been filled from the other server since. now is the address of the
// other one as of this look; one that does not answer has not said that the split is over.
func (w *watcher) doubtEndOfSplit(ctx context.Context, seen []candidate, now string) error {
	was := w.splitFrom
	answers := slices.ContainsFunc(seen, func(c candidate) bool { return c.address == was && c.err == nil })
	if was == "" || was == now || !answers {
		if now != "" {
			w.splitFrom = now
		}
		return nil
	}
	if err := w.doubtSplit(ctx, was, "the server at "+was+" took writes that did not come to the one that was read, until "+
		"shortly before, so keys of what was written on it may be stale"); err != nil {
		return err
	}
	w.splitFrom = now
	return nil
}

// setApart takes note of a server on which is written what does not come to this one; "": there is none.
func (v *visibility) setApart(server, apart string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server == server {
		v.apart = apart
	}
}

// writtenApart returns what setApart took note of.
func (v *visibility) writtenApart() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.apart
}
