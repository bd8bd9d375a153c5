package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// watch notes when keys of shop.product's rows are deleted for the first time, as Redis tells it.
type watch struct {
	begin time.Time
	gone  []atomic.Int64 // by the row's id: nanoseconds after begin, 0 while the key is there
	on    []*watchedServer
}

// watchedServer is one server, of one or more, that a watch listens to.
type watchedServer struct {
	rdb   *redis.Client
	sub   *redis.PubSub
	ended chan error
}

// newWatch begins to watch the keys of the rows 1 to rows: the prefix and the row's id. They are on one server, or on
// several. Close it.
func newWatch(ctx context.Context, prefix string, rows int, on ...*redis.Client) (*watch, error) {
	w := &watch{begin: time.Now(), gone: make([]atomic.Int64, rows+1)}
	for _, rdb := range on {
		if err := w.listen(ctx, rdb, prefix); err != nil {
			return nil, errors.Join(err, w.close(ctx))
		}
	}
	return w, nil
}

func (w *watch) listen(ctx context.Context, rdb *redis.Client, prefix string) error {
	if err := rdb.ConfigSet(ctx, "notify-keyspace-events", "Eg").Err(); err != nil {
		return err
	}
	sub := rdb.Subscribe(ctx, "__keyevent@0__:del")
	if _, err := sub.Receive(ctx); err != nil { // the subscription's confirmation
		return errors.Join(err, sub.Close())
	}
	one := &watchedServer{rdb: rdb, sub: sub, ended: make(chan error, 1)}
	w.on = append(w.on, one)
	go func() {
		for {
			m, err := sub.ReceiveMessage(ctx)
			if err != nil {
				one.ended <- err
				return
			}
			at := int64(time.Since(w.begin))
			if id, err := strconv.Atoi(strings.TrimPrefix(m.Payload, prefix)); err == nil && id < len(w.gone) {
				w.gone[id].CompareAndSwap(0, at)
			}
		}
	}()
	return nil
}

func (w *watch) close(ctx context.Context) (err error) {
	for _, one := range w.on {
		err = errors.Join(err, one.sub.Close())
		<-one.ended
		err = errors.Join(err, one.rdb.ConfigSet(context.WithoutCancel(ctx), "notify-keyspace-events", "").Err())
	}
	return err
}

func (w *watch) isGone(id int) bool { return w.gone[id].Load() != 0 }

// await returns when the key of a row was deleted.
func (w *watch) await(ctx context.Context, id int) (time.Time, error) {
	for begin := time.Now(); !w.isGone(id); {
		if time.Since(begin) > goneWithin {
			return time.Time{}, fmt.Errorf("%w: the key of row %d is still there %s after its commit", errInvalid, id, goneWithin)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	return w.begin.Add(time.Duration(w.gone[id].Load())), nil
}

// pause waits for d, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
