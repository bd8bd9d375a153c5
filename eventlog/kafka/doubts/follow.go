package doubts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

const (
	// fetchBytes is how much one fetch asks for, fetchWait for how long the broker holds an answer back that is empty.
	fetchBytes = 1 << 20
	fetchWait  = 10 * time.Second
	// patience is how long this topic may fail, by what passes by itself, before an operator hears of it: brokers that
	// are away are everybody's trouble, and reported sooner by processes that have work to do.
	patience = time.Minute
	// stale is after how long without an answer all is read again: the brokers forget a removal after
	// delete.retention.ms, a day, and a process that has not seen it by then would believe forever what was removed.
	stale = 12 * time.Hour
)

// Follow implements [doubt.Follower].
func (k *Keeper) Follow(ctx context.Context, changed func()) {
	loop := retry.Loop{
		Backoff:  retry.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second},
		Reporter: k.newReporter(),
	}
	last := time.Now()
	for ctx.Err() == nil {
		if time.Since(last) > stale {
			k.next = -1
		}
		news, err := k.read(ctx)
		if err == nil {
			last = time.Now()
			loop.Succeeded()
			if news {
				changed()
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		_ = loop.Wait(ctx, k.handle(ctx, err)) // it ends early with ctx only
	}
}

// errHandled is reported only if it comes again and again.
var errHandled = errors.New("the topic is not the one that it was")

// handle does what can be done about a failure, and returns what is left of it.
func (k *Keeper) handle(ctx context.Context, err error) error {
	class := broker.Classify(err)
	if class != broker.OutOfRange && class != broker.Missing {
		return err
	}
	k.next, k.gone = -1, true
	if class == broker.Missing && k.o.Ensure != nil {
		err = k.o.Ensure(ctx)
	}
	if class == broker.OutOfRange || err == nil {
		return errHandled
	}
	return err
}

func (k *Keeper) newReporter() *retry.Reporter {
	r := broker.Reporter(func(err error) {
		k.o.Alarms.Raise(alarm.KafkaAway,
			fmt.Sprintf("it is not known what is in doubt, nor can a doubt be kept: %v; trying again forever", err))
	}, nil)
	r.Grace = patience
	return r
}

// read reads what came since the last call, or all, and reports whether that was anything new.
func (k *Keeper) read(ctx context.Context) (news bool, err error) {
	if k.next < 0 {
		return true, k.readAll(ctx)
	}
	f, err := k.client.Fetch(ctx, k.o.Topic, 0, k.next, fetchBytes, fetchWait)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range f.Records {
		news = k.view.take(&f.Records[i]) || news
	}
	k.next = f.Next
	k.view.forget(k.next)
	k.move()
	return news, nil
}

// readAll reads the topic from its beginning. If it is not the topic that it was, what was known before and is not in
// it, neither kept nor removed, is written again.
func (k *Keeper) readAll(ctx context.Context) error {
	fresh := newView()
	k.build(fresh)
	defer k.build(nil)
	next, err := k.client.ReadAll(ctx, k.o.Topic, 0, func(r broker.Record) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		fresh.take(&r)
		return nil
	})
	if err == nil && k.gone {
		err = k.rewrite(ctx, fresh)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.view, k.next, k.gone = fresh, next, false
	k.view.forget(next)
	k.move()
	select {
	case <-k.loaded:
	default:
		close(k.loaded)
	}
	return nil
}

// move lets those go on who wait for what was just read. The caller has the lock.
func (k *Keeper) move() {
	k.reached, k.heard = k.next, time.Now()
	close(k.moved)
	k.moved = make(chan struct{})
}

// Deaf returns since when the topic cannot be read, if that has been so for a minute: what is in doubt by now is not
// known then. Zero: it can be.
func (k *Keeper) Deaf() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heard.IsZero() || time.Since(k.heard) <= patience {
		return time.Time{}
	}
	return k.heard
}

// CatchUp implements [doubt.Follower].
func (k *Keeper) CatchUp(ctx context.Context) error {
	end, err := k.client.End(ctx, k.o.Topic, 0)
	if err != nil {
		return err
	}
	for {
		k.mu.Lock()
		reached, moved := k.reached, k.moved
		k.mu.Unlock()
		if reached >= end {
			return k.ready(ctx)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (k *Keeper) build(v *view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.building = v
}

// rewrite writes what fresh lacks of what is known.
func (k *Keeper) rewrite(ctx context.Context, fresh *view) error {
	k.mu.Lock()
	keys := fresh.lacks(k.view)
	k.mu.Unlock()
	for _, key := range keys {
		k.mu.Lock()
		_, known := fresh.kept[key] // by now, since it was written here meanwhile
		value := k.view.kept[key].value
		k.mu.Unlock()
		if known || value == nil {
			continue
		}
		if err := k.write(ctx, key, value); err != nil {
			return err
		}
	}
	return nil
}
