package canal

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

const (
	// resolveEach is how often the names of fill servers are looked up.
	resolveEach = 10 * time.Second
	// lookFillEach is how often a new connection asks which server answers at an address.
	lookFillEach = 5 * time.Second
	// fillMargin is how much earlier than the first change that a fill server lacked is done again from: with Kafka the
	// place is found by the clock of a broker, which may differ from ours.
	fillMargin = 5 * time.Second
)

// fills watches the fill servers: those that the application reads when it fills its cache. A reader of one that lags
// fills the cache with what was before a change, so the final delete waits until all of them have the change. One that
// cannot be waited for any longer is left out, which is a doubt: once it has all that it lacked, and its readers are
// over, the changes since are done again.
type fills struct {
	o   *Options
	vis *visibility
	m   *metrics
	// alone: there is no stream that says which transactions the source has.
	alone bool
}

// watchFills asks the fill servers what they have until ctx ends. A stream that follows another one knows of none, and
// answers for none: that is up to the other one.
func (c *Canal) watchFills(ctx context.Context) {
	if c.o.Follow {
		return
	}
	w := &fills{o: &c.o, vis: c.vis, m: c.m}
	var g sync.WaitGroup
	defer g.Wait()
	found, whole := w.resolve(ctx)
	if whole { // of what an earlier run has left out, and is no fill server any more
		is := found
		g.Go(func() { w.gone(ctx, func(address string) bool { return is[address] == "" }) })
	}
	type running struct {
		*fillServer
		stop context.CancelFunc
	}
	known := map[string]running{}
	for len(c.o.FillFrom) > 0 {
		for address, name := range found {
			if _, is := known[address]; is {
				continue
			}
			serving, cancel := context.WithCancel(ctx)
			s := w.server(address, name)
			known[address] = running{s, cancel}
			g.Go(func() { s.run(serving) })
		}
		w.vis.known()
		// A name was watched itself as long as it led nowhere. An address that a name leads to no longer is watched for as
		// long as it answers: readers may still be connected to it.
		for address, s := range known {
			if _, still := found[address]; still || !whole || !slices.Contains(c.o.FillFrom, address) && !s.isOut() {
				continue
			}
			s.stop()
			delete(known, address)
			g.Go(func() { w.gone(ctx, func(other string) bool { return other == address }) })
		}
		if retry.Beat(ctx, resolveEach) != nil {
			break
		}
		found, whole = w.resolve(ctx)
	}
	for _, s := range known {
		s.stop()
	}
}

// gone has the doubts answered about servers that are no fill servers any more, once their readers are over.
func (w *fills) gone(ctx context.Context, is func(address string) bool) {
	if len(w.about(is)) > 0 && retry.Sleep(ctx, w.o.FillSettles) == nil {
		_ = (&postponed{}).answer(ctx, w.o, w.about(is)) // only ctx can stop it
	}
}

// about returns the doubts about servers that were left out.
func (w *fills) about(is func(address string) bool) []doubt.Doubt {
	return slices.DeleteFunc(w.o.Doubts.List(), func(d doubt.Doubt) bool {
		return d.Cause != alarm.FillServerLeftOut || d.Source != w.o.Source || !is(d.Subject)
	})
}

// resolve returns the addresses of the fill servers, each with the name that leads to it. A name that leads nowhere is
// an address itself, and not whole.
func (w *fills) resolve(ctx context.Context) (found map[string]string, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	found, whole = map[string]string{}, true
	for _, at := range w.o.FillFrom {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			found[at] = at
			continue
		}
		hosts, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil || len(hosts) == 0 {
			found[at], whole = host, false
			continue
		}
		for _, ip := range hosts {
			found[net.JoinHostPort(ip, port)] = host
		}
	}
	return found, whole
}

// FillProbe is what a fill server says of itself.
type FillProbe struct {
	Address, Server, Version string
	// Lacks says that it lacked something that the source had when it was asked, and ReadOnly that it takes no writes.
	Lacks, ReadOnly bool
	// Err is why it cannot be one.
	Err error
}

// ProbeFills asks the fill servers about themselves, as Watch does.
func ProbeFills(ctx context.Context, o Options, source *SourceInfo) ([]FillProbe, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &fills{o: &o, vis: newVisibility(o.Heartbeat, 0), alone: true}
	found, _ := w.resolve(ctx)
	var all []FillProbe
	for _, address := range slices.Sorted(maps.Keys(found)) {
		s := w.server(address, found[address])
		all = append(all, s.probe(ctx, source))
		s.hangUp()
	}
	return all, nil
}
