package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
)

// readerHalf reads the source into the event log.
type readerHalf interface {
	// Run reads until ctx ends or something fails, or, with [Options].UntilCaughtUp, until everything that the source
	// held at the start is in the event log, which ends there: caughtUp.
	Run(ctx context.Context) (caughtUp bool, err error)
	// Close saves the position once more. It is called after Run, when the invalidator half has ended as well.
	Close() error
	// Status fills in what the half knows.
	Status(s *Status)
	// Ready says what keeps it from its work.
	Ready() []admin.Check
	// Metrics are those of the reading that is under way.
	Metrics() prometheus.Gatherers
	// Stats are those of the reading that is under way, or was last.
	Stats() canal.Stats
}

// invalidatorHalf keeps Redis fresh from the event log.
type invalidatorHalf interface {
	// Run works until ctx ends or something fails, or until the event log has ended and all of it is finished.
	Run(ctx context.Context) error
	// Status fills in what the half knows.
	Status(s *Status)
	// Ready says what keeps it from its work.
	Ready() []admin.Check
	// Acknowledged is how many keys Redis has acknowledged.
	Acknowledged() uint64
	// Letters are the dead letters.
	Letters() operate.LetterStore
	// Hot is what changes most, with keys.
	Hot() any
	// FirstStart returns what is called before reading begins where there was no position; nil: there is nothing to look
	// at.
	FirstStart(keys *operate.Keys) func(ctx context.Context, position string) error
}

// otherReaders stand for the reader half where other processes read the source. With [Options].UntilCaughtUp, what the
// event log holds at the start is all there is.
type otherReaders struct {
	*brokers
	finishAt func(ends map[int]int64)
	began    time.Time
}

// Run implements readerHalf.
func (o *otherReaders) Run(ctx context.Context) (caughtUp bool, err error) {
	if !o.options.UntilCaughtUp {
		<-ctx.Done()
		return false, nil
	}
	ends, err := o.ends(ctx)
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	o.began = time.Now()
	o.finishAt(ends)
	return true, nil
}

// Close implements readerHalf.
func (*otherReaders) Close() error { return nil }

// Status implements readerHalf.
func (*otherReaders) Status(*Status) {}

// Ready implements readerHalf.
func (*otherReaders) Ready() []admin.Check { return nil }

// Metrics implements readerHalf.
func (*otherReaders) Metrics() prometheus.Gatherers { return nil }

// Stats implements readerHalf.
func (o *otherReaders) Stats() canal.Stats { return canal.Stats{FirstByte: o.began} }

// otherInvalidators stand for the invalidator half where other processes keep Redis fresh.
type otherInvalidators struct {
	freshAsOf func() time.Time
	finished  chan struct{} // closed when the event log has ended
}

// Run implements invalidatorHalf.
func (o *otherInvalidators) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-o.finished:
	}
	return nil
}

// finishAt says that the event log ends at these offsets of its partitions: there is nothing to wait for.
func (o *otherInvalidators) finishAt(map[int]int64) { close(o.finished) }

// Status implements invalidatorHalf.
func (o *otherInvalidators) Status(s *Status) { s.FreshAsOf = o.freshAsOf() }

// Ready implements invalidatorHalf.
func (*otherInvalidators) Ready() []admin.Check { return nil }

// Acknowledged implements invalidatorHalf.
func (*otherInvalidators) Acknowledged() uint64 { return 0 }

// Letters implements invalidatorHalf.
func (*otherInvalidators) Letters() operate.LetterStore { return noLetters{} }

// Hot implements invalidatorHalf.
func (*otherInvalidators) Hot() any { return nil }

// FirstStart implements invalidatorHalf.
func (*otherInvalidators) FirstStart(*operate.Keys) func(context.Context, string) error { return nil }
