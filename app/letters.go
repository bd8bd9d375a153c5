package app

import (
	"context"
	"errors"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// noLetters are the dead letters of a process that deletes no keys.
type noLetters struct{}

var errNoLetters = errors.New("this process deletes no keys, so it has no dead letters: ask an invalidator, or leave " +
	"out --url")

func (noLetters) DeadLetters(context.Context, retry.Filter, uint64, int) ([]retry.Entry, error) {
	return nil, errNoLetters
}

func (noLetters) Replay(context.Context, retry.Filter, time.Time) (int, error) {
	return 0, errNoLetters
}
func (noLetters) Purge(context.Context, retry.Filter) (int, error) { return 0, errNoLetters }

// tail shows the invalidations that pass.
func (p *process) tail(ctx context.Context, each func(any) error) error {
	return p.tap.watch(ctx, func(b *event.Batch, missed int64) error { return tailEvents(b, missed, each) })
}
