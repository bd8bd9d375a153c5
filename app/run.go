package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/freshet/freshet/config"
)

// Role is the part of the path that a process runs.
type Role int

// The roles. With the embedded event log there is only the whole.
const (
	// Whole reads the source and keeps Redis fresh.
	Whole Role = iota
	// Reader reads the source into the event log.
	Reader
	// Invalidator keeps Redis fresh from the event log.
	Invalidator
)

// String returns the role as the command that runs it is called.
func (r Role) String() string { return [...]string{"run", "reader", "invalidator"}[r] }

// Options are what Run can be given besides the configuration.
type Options struct {
	// Role is the part of the path to run. Default Whole.
	Role Role
	// Log takes the log. Default slog.Default().
	Log *slog.Logger
	// Version is freshet's own, for the status.
	Version string
	// UntilCaughtUp ends Run once everything that the source held at the start is finished, final deletes included.
	UntilCaughtUp bool
	// SkipLost goes on where records of the event log were lost, from what is left of them. Kafka only.
	SkipLost bool
}

// Summary is what Run has done.
type Summary struct {
	// CaughtUp is true when Run ended because everything was finished.
	CaughtUp bool
	// Rows are the row changes of mapped tables, Keys those that Redis acknowledged.
	Rows, Keys uint64
	// Duration is from the first byte of the binlog to the last acknowledgement.
	Duration time.Duration
}

// Run keeps the cache fresh until ctx ends, which is no error.
func Run(ctx context.Context, c *config.Config, o Options) (Summary, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p, err := build(ctx, c, o)
	if err != nil {
		return Summary{}, errors.Join(failure(ctx, err), p.close())
	}
	sum, err := p.run(ctx)
	return sum, errors.Join(err, p.close())
}

// failure returns err, unless it says no more than that ctx has ended, which is no failure.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
