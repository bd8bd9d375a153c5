package canal

import (
	"context"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	// turnedAfter is at how many looks something must lack of the server that an address leads to, before that is read.
	turnedAfter = 2
	// turnedBack is after how many looks in a row that lead to the server that is read what it lacks of another one is not
	// waited for any more.
	turnedBack = 12
	// unheardAfter is how many looks in a row must fail before nobody knows any more where the address leads.
	unheardAfter = 3
	// maxTurned is of how many other servers it is remembered what they had: more than an address leads to.
	maxTurned = 16
)

// turned knows whether the address that is read leads to another server by now, as a name or a virtual IP does after a
// failover. The server before may still answer on the connections that there are, and would be read forever. Where all
// that is written on the other one comes to it, as it does to one replica of several, it is read on. While a name
// moves, it may lead to either of them by turns.
type turned struct {
	*Canal
	to    string                   // the server of the last look
	had   map[string]event.GTIDSet // what other servers had at a look that led to them, and had not come down the stream yet
	looks int                      // that led to another server of which the stream lacked something
	back  int                      // looks in a row since then that led to the one that is read
	fails int                      // looks in a row that failed
}

// watchAddress looks at the one address until ctx ends.
func (c *Canal) watchAddress(ctx context.Context) {
	w := &turned{Canal: c}
	for retry.Beat(ctx, c.o.lookEach) == nil {
		if w.look(ctx) != nil {
			return // only ctx can stop what it does
		}
	}
}

// look finds out where a new connection leads to. It fails only with ctx.
func (w *turned) look(ctx context.Context) error {
	address := w.o.Servers.Current()
	info, err := w.ask(ctx, address)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return w.found(ctx, address, info, err)
}

// ask asks the server that an address leads to who it is.
func (w *turned) ask(ctx context.Context, address string) (*SourceInfo, error) {
	o := w.o
	o.briefly = true
	s, err := o.connectTo(ctx, address, lookTimeout)
	if err != nil {
		return nil, err
	}
	defer s.quit()
	info, err := o.identify(s)
	if err == nil {
		info.Process = s.process(info.Flavor)
	}
	return info, err
}

// found takes note of what a look has found. One that fails says nothing; but after several, the server that is read
// may have been replaced, and nobody would know. It fails only with ctx.
func (w *turned) found(ctx context.Context, address string, info *SourceInfo, err error) error {
	if err == nil {
		w.fails = 0
		w.vis.setUnheard("")
		return w.judge(ctx, address, info)
	}
	if w.fails++; w.fails < unheardAfter {
		return nil
	}
	if w.fails == unheardAfter && w.n.connected.Load() {
		w.o.Logger.Warn("no new connection to the source comes about, so another server may have taken the place of the one "+
			"that is read", "source", w.o.Source, "address", address, "error", words(err))
	}
	w.vis.setUnheard(words(err))
	return nil
}

// judge takes note of the server that the address leads to. It fails only with ctx.
func (w *turned) judge(ctx context.Context, address string, info *SourceInfo) error {
	read, _ := w.vis.stream()
	server := info.Server
	if server == read && w.vis.isAnother(info.Process) { // a copy with its identity, as of a directory or a machine
		server += ", " + info.Process
	}
	lacking := w.lacking(read)
	ofAll, _ := info.HasGTIDsOfAll()
	unknown := !ofAll && server != read && server == w.to // nobody knows
	if w.to = server; server != read && len(w.had) < maxTurned {
		w.had[server] = info.Executed
	}
	switch {
	case lacking == "" && !unknown:
		if w.looks+w.back > 0 {
			w.vis.setApart(read, "")
		}
		w.looks, w.back = 0, 0
		return nil
	case server == read:
		return w.leadsBack(ctx, address, read, lacking)
	}
	w.back = 0
	w.vis.setApart(read, address)
	w.looks++
	if w.looks%turnedAfter != 0 || !w.n.connected.Load() { // a dump that is being begun may take longer than looks do
		return nil
	}
	w.o.Logger.Warn("the address leads to another server than the one that is read, which lacks what is written there: that "+
		"is read from now on", "source", w.o.Source, "address", address, "server", server, "was", read)
	if cut := w.cut.Load(); cut != nil {
		(*cut)()
	}
	return nil
}

// lacking returns another server of which something has not come down the stream; "": there is none.
func (w *turned) lacking(read string) (server string) {
	if w.had == nil {
		w.had = map[string]event.GTIDSet{}
	}
	for other, had := range w.had {
		if other == read || !w.vis.misses(&had) {
			delete(w.had, other)
		} else {
			server = other
		}
	}
	return server
}

// leadsBack takes note of a look that leads to the server that is read, after one has led to another of which it lacks
// something. If that stays so, what was cached from the other one is in doubt. It fails only with ctx.
func (w *turned) leadsBack(ctx context.Context, address, read, other string) error {
	w.vis.setApart(read, address)
	if _, _, behind := w.vis.lacks(); behind { // it may come down the stream yet
		return nil
	}
	if w.back++; w.back < turnedBack {
		return nil
	}
	err := w.doubtSplit(ctx, address, "the address "+address+" led to server "+other+" for a time, which has "+
		"transactions that do not come to "+read+", to which it leads now, so keys of what was written there may be stale")
	if err == nil {
		clear(w.had)
		w.looks, w.back = 0, 0
		w.vis.setApart(read, "")
	}
	return err
}

// misses reports whether transactions that another server had have not come down the stream. MariaDB's numbers do not
// say whose they are: a server that was promoted without the last ones gives the same numbers to others.
func (v *visibility) misses(had *event.GTIDSet) (is bool) {
	all := v.target()
	if rest := had.Subtract(&all); !rest.IsEmpty() {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	had.Each(func(r event.GTIDRange) {
		is = is || v.logged != nil && v.logged[origin{r.First.Domain, r.First.Server}] < r.Last
	})
	return is
}

// setLogged takes note of what the binlog of MariaDB has of each origin, and of what was executed besides that.
func (v *visibility) setLogged(logged map[origin]uint64, executed ...*event.GTIDSet) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logged, v.held = logged, map[origin]uint64{}
	for _, set := range executed {
		set.Each(func(r event.GTIDRange) {
			of := origin{r.First.Domain, r.First.Server}
			v.held[of] = max(v.held[of], r.Last)
		})
	}
}

// setProcess takes note of which process the stream comes from; "": that is not known.
func (v *visibility) setProcess(process string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.process = process
}

// isAnother reports whether a process is surely another one than that which the stream comes from.
func (v *visibility) isAnother(process string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return process != "" && v.process != "" && process != v.process
}

// setUnheard takes note of why no new connection to the source comes about; "": one does.
func (v *visibility) setUnheard(why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unheard = why
}
