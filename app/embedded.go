package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/eventlog/embedded"
)

// buildEmbedded wires the event log of one process.
func (p *process) buildEmbedded(ctx context.Context) error {
	if p.options.Role != Whole {
		return spec.Problems{{
			Pos:  spec.Pos{File: p.config.File},
			What: "eventlog.kind is embedded, so reading and deleting happen in one process",
			Do:   "use `freshet run`, or write kind: kafka to have them apart",
		}}
	}
	store, err := embedded.Open(p.config.EventLog.Dir, embedded.Options{Registerer: p.registry})
	if err != nil {
		return err
	}
	p.later("the store", store.Close)
	if err := p.buildDoubts(store); err != nil {
		return err
	}
	if err := p.doubts.Load(ctx); err != nil {
		return err
	}
	log, err := embedded.NewLog(embedded.LogOptions{Latency: p.latency, Registerer: p.registry})
	if err != nil {
		return err
	}
	reader := &embeddedReader{}
	place := func() (string, bool) { return p.answers.Load().place() }
	deleting, err := p.newDeleting(log, store, func() time.Time { return reader.freshAsOf() },
		stamping{place: place})
	if err != nil {
		return err
	}
	p.invalidator = deleting
	cp := store.Checkpoint()
	if _, err := cp.NextTerm(); err != nil {
		return err
	}
	if reader.reading, err = p.newReading(ctx, log, cp, keptXA{store.Stash()}); err != nil {
		return err
	}
	if err := reader.keepMappings(ctx); err != nil {
		return err
	}
	p.reader, p.log = reader, inProcess{}
	return p.buildAnswering(reader.reading, deleting)
}

// embeddedReader is the reader half of the one process that there is: it reads once, to the end.
type embeddedReader struct{ *reading }

// Run implements readerHalf.
func (r *embeddedReader) Run(ctx context.Context) (caughtUp bool, err error) { return r.read(ctx) }

// Close implements readerHalf.
func (r *embeddedReader) Close() error { return r.saveLast() }

// Status implements readerHalf.
func (r *embeddedReader) Status(s *Status) { r.status(s) }

// Ready implements readerHalf.
func (r *embeddedReader) Ready() []admin.Check {
	return []admin.Check{{Name: "source", Err: r.connected()}}
}

// Metrics implements readerHalf.
func (r *embeddedReader) Metrics() prometheus.Gatherers { return r.metrics() }

// Stats implements readerHalf.
func (r *embeddedReader) Stats() canal.Stats { return r.stats() }

// inProcess is an event log without servers of its own.
type inProcess struct{}

// Status implements carrier.
func (inProcess) Status(*Status) {}

// Ready implements carrier.
func (inProcess) Ready(func() Status) []admin.Check { return nil }
