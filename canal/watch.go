package canal

import (
	"context"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	// lookAtServers is how often the servers that are not read are looked at.
	lookAtServers = 5 * time.Second
	// lateAfter is how long a replica that is read may lack what another server has before it is an alarm.
	lateAfter = 30 * time.Second
)

// watcher looks at all servers while one of them is read: whether that is still the one to read, whether two take
// writes, and whether what is written on another one comes down the stream.
type watcher struct {
	*Canal
	// turned is about the address that is read.
	turned turned
	// before is what was seen at the look before.
	before []candidate
	// left counts the looks in a row at which the server that is read was left behind.
	left int
	// promoted are the addresses of servers that have the settings of a replica, and make transactions themselves.
	promoted map[string]bool
	// splitFrom is the address of a server that took writes at the last look at which it answered, which did not come to
	// the one that is read; "": there is none.
	splitFrom string
	// since is since when the server that is read lacks what is written on another one; zero: it does not.
	since time.Time
}

// watchServers looks until ctx ends.
func (c *Canal) watchServers(ctx context.Context) {
	switch {
	case c.o.Follow:
		return
	case !c.o.Servers.several():
		c.watchAddress(ctx)
		return
	}
	w := &watcher{Canal: c, promoted: map[string]bool{}, splitFrom: c.vis.writtenApart()}
	for w.judge(ctx, c.o.look(ctx, &event.Position{})) == nil { // only ctx can stop it
		if retry.Beat(ctx, lookAtServers) != nil {
			return
		}
	}
}

// judge draws the conclusions from a look. It fails only with ctx.
func (w *watcher) judge(ctx context.Context, seen []candidate) error {
	defer func() { w.before = seen }()
	server, _ := w.vis.stream()
	split, err := w.doubtIfSplit(ctx, seen, server, w.o.Servers.Current())
	if err == nil {
		err = w.doubtEndOfSplit(ctx, seen, split)
	}
	if err != nil {
		return err
	}
	i := slices.IndexFunc(seen, func(c candidate) bool { return c.err == nil && c.info.Server == server })
	if i < 0 {
		w.left = 0
		return w.turn(ctx, seen)
	}
	w.turned = turned{}
	w.vis.setUnheard("")
	c := &seen[i]
	w.leave(c, seen)
	return w.apart(ctx, c, seen, split)
}

// turn looks whether the address that is read leads to another server. No address leads to the one that is read.
func (w *watcher) turn(ctx context.Context, seen []candidate) error {
	at := w.o.Servers.Current()
	w.turned.Canal = w.Canal
	for i := range seen {
		if c := &seen[i]; c.address == at {
			return w.turned.found(ctx, at, c.info, c.err)
		}
	}
	return nil
}

// leave has another server chosen if the one that is read is left behind: it keeps its connection and says nothing.
func (w *watcher) leave(c *candidate, seen []candidate) {
	if !slices.ContainsFunc(seen, func(o candidate) bool { return o.err == nil && c.isLeftBehind(&o) && o.has(c) }) {
		w.left = 0
		return
	}
	w.left++
	if w.left > 1 && w.n.connected.Load() { // the answers are not of one moment, and to begin a dump may take longer
		w.o.Logger.Warn("the server that is read does not get what is written on another one: another is chosen",
			"source", w.o.Source, "address", w.o.Servers.Current())
		w.left = 0
		if cut := w.cut.Load(); cut != nil {
			(*cut)()
		}
	}
}

// apart looks for a server on which is written what does not come to the one that is read. Until it does, nothing that
// was read is all that there is. split is the address of one that is known to be such, and in doubt; "": there is none.
func (w *watcher) apart(ctx context.Context, c *candidate, seen []candidate, split string) error {
	was := w.was(c)
	if was == nil {
		w.since = time.Time{}
		if split != "" {
			w.vis.setApart(c.info.Server, split)
		}
		return nil
	}
	apart, unknown := split, false
	for i := range seen {
		o := &seen[i]
		before := w.was(o)
		if o.err != nil || before == nil {
			unknown = true
			continue
		}
		if o.info.Server == c.info.Server {
			continue
		}
		w.promoted[o.address] = o.replicates && !o.readOnly && (o.stopped || c.isFenced()) &&
			(w.promoted[o.address] || o.wrote(before, c))
		writes := o.takesWrites() || w.promoted[o.address] || o.member && !o.readOnly
		lacks, lost := writes && !c.has(before), o.takesWrites() && o.hasLost(was)
		if (lacks || lost) && o.address != split {
			apart = o.address
			if err := w.sayApart(ctx, c, o, lost); err != nil {
				return err
			}
		}
	}
	switch {
	case apart != "":
		if w.since.IsZero() {
			w.since = time.Now()
		}
		w.vis.setApart(c.info.Server, apart)
	case !unknown: // one that does not answer may still have what is lacking
		w.since = time.Time{}
		w.vis.setApart(c.info.Server, "")
	}
	return nil
}

// was returns what the same server said at the look before; nil if it did not answer.
func (w *watcher) was(c *candidate) *candidate {
	i := slices.IndexFunc(w.before, func(b candidate) bool { return b.address == c.address })
	if i < 0 || c.err != nil || w.before[i].err != nil || w.before[i].info.Server != c.info.Server {
		return nil
	}
	return &w.before[i]
}

// sayApart says so, at the second look at the earliest: a server that is left may be no more by then. A replica may lag
// for a while. It fails only with ctx.
func (w *watcher) sayApart(ctx context.Context, c, o *candidate, lost bool) error {
	switch {
	case w.since.IsZero() || w.left > 0 || !lost && c.replicates && time.Since(w.since) < lateAfter:
	case lost:
		return w.doubtSplit(ctx, o.address, o.name()+" takes writes, and has lost transactions "+
			"of its own that "+c.name()+" has, which is read: its binlog was begun again, or it crashed without having synced "+
			"it; replicas cannot go on there, so keys of what is written on it stay stale")
	case c.replicates:
		w.o.Alarms.Raise(alarm.SourceBehind, "source "+w.o.Source+": "+c.name()+", which is read and is a replica, lacks "+
			"what is written on "+o.name()+": its replication has stopped or lags, and keys of what it lacks stay stale "+
			"until it has that")
	default:
		return w.doubtSplit(ctx, o.address, "transactions are made on "+o.name()+" that do not come to "+c.name()+
			", and only that one is read, so keys of what is written on the other one stay stale: find out which is the "+
			"primary, and make the other one its replica")
	}
	return nil
}

// name is the server in a sentence.
func (c *candidate) name() string { return c.address + " (" + c.info.Server + ")" }

// wrote reports whether the server has transactions that are newer than it was before, and that the other has not.
func (c *candidate) wrote(before, other *candidate) bool {
	if c.info.Flavor == event.MySQL {
		rest := c.info.Executed.Subtract(&before.info.Executed)
		rest = rest.Subtract(&other.info.Executed)
		return !rest.IsEmpty()
	}
	for o, last := range c.logged {
		if before.logged[o] < last && !other.hasMade(event.GTID{Domain: o.domain, Server: o.server, Number: last}, c) {
			return true
		}
	}
	return false
}

// hasLost reports whether the server lacks transactions that it has made itself, which the other had before.
func (c *candidate) hasLost(other *candidate) bool {
	if c.info.Flavor == event.MySQL {
		lost := c.info.own(&other.info.Executed)
		lost = lost.Subtract(&c.info.Executed)
		lost = lost.Subtract(&c.info.Owned)
		return !lost.IsEmpty()
	}
	for o, last := range other.logged {
		if o.server == c.info.ServerID &&
			!c.hasMade(event.GTID{Domain: o.domain, Server: o.server, Number: last}, other) {
			return true
		}
	}
	return false
}
