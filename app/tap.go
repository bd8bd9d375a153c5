package app

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/freshet/freshet/event"
)

// tapBuffer is how many batches wait for a slow watcher before it misses some.
const tapBuffer = 64

// tap lets people watch the batches as they pass (`freshet tail`). It costs the reader one atomic load a batch
// while nobody watches, and never makes it wait: a watcher that is too slow is told how many batches it missed.
type tap struct {
	watched  atomic.Int32
	mu       sync.Mutex
	watchers []*watcher
}

type watcher struct {
	batches chan *event.Batch
	missed  atomic.Int64
}

// show hands a copy of a batch to all watchers.
func (t *tap) show(b *event.Batch) {
	if t == nil || t.watched.Load() == 0 || b.Len() == 0 {
		return
	}
	b = b.Clone()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watchers {
		select {
		case w.batches <- b:
		default:
			w.missed.Add(1)
		}
	}
}

// watch calls each with every batch that passes until ctx ends or each fails, and with the number of batches
// missed since the last call.
func (t *tap) watch(ctx context.Context, each func(b *event.Batch, missed int64) error) error {
	w := &watcher{batches: make(chan *event.Batch, tapBuffer)}
	t.mu.Lock()
	t.watchers = append(t.watchers, w)
	t.mu.Unlock()
	t.watched.Add(1)
	defer func() {
		t.watched.Add(-1)
		t.mu.Lock()
		t.watchers = slices.DeleteFunc(t.watchers, func(o *watcher) bool { return o == w })
		t.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-w.batches:
			if err := each(b, w.missed.Swap(0)); err != nil {
				return err
			}
		}
	}
}
