package app

import (
	"context"
	"errors"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// storeLetters are the dead letters of a pipeline; its store is opened after the listeners.
type storeLetters struct{ p *pipeline }

func (s storeLetters) letters() operate.Box {
	if s.p.letters == nil {
		return operate.Box{Store: noLetters{}}
	}
	return operate.Box{Store: s.p.letters}
}

// List implements admin.Letters.
func (s storeLetters) List(ctx context.Context, table string, after uint64, limit int) ([]admin.Letter, error) {
	return s.letters().List(ctx, table, after, limit)
}

// Replay implements admin.Letters.
func (s storeLetters) Replay(ctx context.Context, sel admin.Selection) (int, error) {
	return s.letters().Replay(ctx, sel)
}

// Purge implements admin.Letters.
func (s storeLetters) Purge(ctx context.Context, sel admin.Selection) (int, error) {
	return s.letters().Purge(ctx, sel)
}

// noLetters are the dead letters of a process that deletes no keys.
type noLetters struct{}

var errNoLetters = errors.New("this process deletes no keys, so it has no dead letters: ask an invalidator, or leave out --url")

func (noLetters) DeadLetters(context.Context, retry.Filter, uint64, int) ([]retry.Entry, error) {
	return nil, errNoLetters
}
func (noLetters) Replay(context.Context, retry.Filter, time.Time) (int, error) {
	return 0, errNoLetters
}
func (noLetters) Purge(context.Context, retry.Filter) (int, error) { return 0, errNoLetters }

// tail shows the invalidations that pass.
func (p *pipeline) tail(ctx context.Context, each func(any) error) error {
	return p.tap.watch(ctx, func(b *event.Batch, missed int64) error { return tailEvents(b, missed, each) })
}
