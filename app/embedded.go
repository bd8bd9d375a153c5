package app

import (
	"context"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
)

// buildEmbedded wires the event log of one process.
func (p *pipeline) buildEmbedded(ctx context.Context) error {
	if p.options.Role != Whole {
		return config.Problems{{
			Pos:  config.Pos{File: p.config.File},
			What: "eventlog.kind is embedded, so reading and deleting happen in one process",
			Do:   "use `freshet run`, or write kind: kafka to have them apart",
		}}
	}
	store, err := embedded.Open(p.config.EventLog.Dir, embedded.Options{Registerer: p.registry})
	if err != nil {
		return err
	}
	p.later("the store", store.Close)
	p.letters = store
	if err := p.buildDoubts(ctx, store); err != nil {
		return err
	}
	log, err := embedded.NewLog(embedded.LogOptions{Latency: p.latency, Registerer: p.registry})
	if err != nil {
		return err
	}
	if err := p.buildInvalidator(store); err != nil {
		return err
	}
	cp := store.Checkpoint()
	if _, err := cp.NextTerm(); err != nil {
		return err
	}
	r, err := p.newReading(ctx, log, cp, embeddedXA{store})
	if err != nil {
		return err
	}
	p.reading.Store(r)
	p.freshAsOf = r.freshAsOf
	p.usage = func() (int, int, error) {
		u, err := store.Usage()
		return u.Parked, u.DeadLetters, err
	}
	p.source = func(ctx context.Context, finish func(bool) error) error {
		return r.run(ctx, func(caughtUp bool, _ <-chan struct{}) error { return finish(caughtUp) })
	}
	p.sink = func(ctx context.Context) error { return p.invalidate(ctx, log) }
	return nil
}

// embeddedXA keeps the keys of prepared XA transactions in the store.
type embeddedXA struct{ *embedded.Store }

// Begin implements xaStore.
func (s embeddedXA) Begin(xid string, first event.Version) xaStash { return s.Stash(xid, first) }

// Resolve implements xaStore.
func (s embeddedXA) Resolve(xid string, v event.Version, end event.End) {
	s.Checkpoint().Resolve(xid, v, end)
}
