package app

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/embedded"
)

// leftovers is the end of a log that takes what is only to be forgotten.
type leftovers struct{ *embedded.Log }

// Append implements appender.
func (l leftovers) Append(ctx context.Context, b *event.Batch) error {
	b.Leftover = true
	return l.Log.Append(ctx, b)
}

// again is the partition that a redo is. The engine has all of it done only if that was committed: one that is stopped
// returns without a fault.
type again struct {
	eventlog.Partition
	take func(ctx context.Context, keys int) error

	ended           bool
	last, committed eventlog.Token
	taken           atomic.Int64
	// first and newest are the places in the binlog of the first change that was taken, and of the last one; nil: there is
	// none yet.
	first, newest atomic.Pointer[event.Version]
}

// ID implements [eventlog.Partition].
func (*again) ID() int { return redoPartition }

// Fetch implements [eventlog.Partition].
func (p *again) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	b, t, err := p.Partition.Fetch(ctx)
	if err == io.EOF {
		p.ended = true
	}
	if err != nil {
		return b, t, err
	}
	if err := p.take(ctx, b.Len()); err != nil {
		return nil, nil, err
	}
	p.last = t
	p.taken.Add(int64(b.Len()))
	if b.Len() > 0 {
		first, newest := b.Version(0), b.Version(b.Len()-1)
		p.first.CompareAndSwap(nil, &first)
		p.newest.Store(&newest)
	}
	return b, t, nil
}

// Commit implements [eventlog.Partition].
func (p *again) Commit(t eventlog.Token) {
	p.committed = t
	p.Partition.Commit(t)
}

// finished reports whether all was fetched and is finished. It is asked once the engine has returned.
func (p *again) finished() bool { return p.ended && p.committed == p.last }

// noXA is an xaStore that keeps nothing: the keys of a prepared transaction are forgotten when its rows are read, and
// the live stream has seen its end, or will.
type noXA struct{}

// Begin implements xaStore.
func (noXA) Begin(string, event.Version) xaStash { return noXA{} }

// Append implements xaStash.
func (noXA) Append([]stashedKey) error { return nil }

// Recall implements xaStore.
func (noXA) Recall(string, event.Version, func([]stashedKey) error) error { return nil }

// Resolve implements xaStore.
func (noXA) Resolve(string, event.Version, event.End) {}
