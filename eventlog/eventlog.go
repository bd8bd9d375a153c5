// Package eventlog says how invalidations wait durably between the reader and the invalidator.
//
// The log, with its two ends [Input] and [Output], is the one thing that both shapes of freshet differ in. Embedded
// (one process), the binlog itself is the storage: a batch is handed over in memory and the position becomes durable
// once the work up to it is finished. With Kafka, a batch is durable once the brokers have acknowledged it, and
// progress of the work is the consumer group's offset. Neither the reader nor the invalidator knows which of them it
// has.
//
// A log knows neither tables nor Redis.
package eventlog

import (
	"context"

	"github.com/freshet/freshet/event"
)

// Token names a batch to the log that issued it. It is opaque to everybody else: progress is acknowledged with the
// token of the batch that was fetched, never with a number.
type Token interface{ token() }

// Issued is embedded by a log's own token type and makes it a [Token].
type Issued struct{}

func (Issued) token() {}

// Input is the end that the reader of one source appends to.
type Input interface {
	// Append takes a batch, in commit order. It blocks while the log is full and returns the context's error when
	// that ends first; the batch was then not taken. The log keeps nothing of the batch but copies, so that it may be
	// emptied and built again once Append has returned.
	Append(ctx context.Context, b *event.Batch) error
	// Mark passes a mark on, past the batches and never held up by them. It does not block. A newer mark may
	// replace an older one that nobody has seen yet.
	Mark(m event.Mark)
	// Durable delivers how far the source need not be read again, in order. Ends may be added up when nobody
	// looks. The channel is closed when no more will come.
	Durable() <-chan event.End
	// Close says that no more is appended.
	Close()
}

// Output is the end that the invalidators of one Redis take from.
type Output interface {
	// Consume runs handle for each partition that this process is given, until ctx ends or handle fails, or until the
	// log has ended and all of it is finished. It returns when every handle has returned, with the first error that is
	// not the context's.
	Consume(ctx context.Context, handle func(context.Context, Partition) error) error
	// Marks delivers the marks. Only the newest of each source is kept for a slow receiver.
	Marks() <-chan event.Mark
	// Partitions returns how the partitions of this process stand, as far as the log counts what is in them.
	Partitions() []PartitionState
	// Standby reports whether other processes have all partitions, and whether it is known who has them.
	Standby() (standby, known bool)
}

// PartitionState is how a partition stands.
type PartitionState struct {
	Partition int
	// Records is how many are not finished.
	Records int64
	// Stopped is why nothing more is read of it; nil: it is read.
	Stopped error
}

// Partition is a stream of batches in commit order. Fetch and Commit may be called from different goroutines, each
// from one at a time.
type Partition interface {
	// ID is the partition's number, for logs and metrics.
	ID() int
	// Fetch returns the next batch, waiting for it. It fails only when ctx ends or the log is closed (io.EOF: all
	// batches were fetched and no more will come) or broken.
	Fetch(ctx context.Context) (*event.Batch, Token, error)
	// Commit says that everything up to and including the batch of this token is finished. Tokens are committed
	// in the order of Fetch; one may be left out when a later one is committed. It does not block on I/O.
	Commit(t Token)
}
