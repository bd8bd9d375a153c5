package canal

import (
	"context"
	"time"

	"github.com/freshet/freshet/event"
)

// turnedAfter is at how many looks in a row something must lack of the server that an address leads to, before that is
// read.
const turnedAfter = 2

// turned knows whether the address that is read leads to another server by now, as a name or a virtual IP does after a
// failover. The server before may still answer on the connections that there are, and would be read forever. Where all
// that is written on the other one comes to it, as it does to one replica of several, it is read on.
type turned struct {
	*Canal
	to    string        // the other server
	had   event.GTIDSet // what that had at the look before
	looks int           // in a row, at which the stream lacked something of that
}

// watchAddress looks at the one address until ctx ends.
func (c *Canal) watchAddress(ctx context.Context) {
	w := &turned{Canal: c}
	t := time.NewTicker(lookAtServers)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.look(ctx)
		}
	}
}

// look finds out where a new connection leads to. One that fails says nothing.
func (w *turned) look(ctx context.Context) {
	address, o := w.o.Servers.Current(), w.o
	o.briefly = true
	s, err := o.connectTo(ctx, address, lookTimeout)
	if err != nil {
		return
	}
	defer s.quit()
	if info, err := o.identify(s); err == nil {
		w.judge(address, info)
	}
}

// judge takes note of the server that the address leads to.
func (w *turned) judge(address string, info *SourceInfo) {
	read, _ := w.vis.stream()
	lacks := false
	if info.Server != read && info.Server == w.to {
		rest := w.vis.target()
		rest = w.had.Subtract(&rest)
		lacks = !info.GTID || !rest.IsEmpty() // without GTIDs nobody knows
	}
	w.to, w.had = info.Server, info.Executed
	if !lacks {
		if w.looks > 0 {
			w.vis.setApart(read, "")
		}
		w.looks = 0
		return
	}
	w.vis.setApart(read, address)
	if w.looks++; w.looks%turnedAfter != 0 {
		return
	}
	w.o.Logger.Warn("the address leads to another server than the one that is read, which lacks what is written there: that "+
		"is read from now on", "source", w.o.Source, "address", address, "server", info.Server, "was", read)
	if cut := w.cut.Load(); cut != nil {
		(*cut)()
	}
}
