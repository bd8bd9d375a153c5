package invalidator

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// setTroubleApart takes the keys that Redis refused out of a unit and gives them one of their own, which is
// retried without holding up the others. It returns what is left of the unit, nil if nothing is.
func (s *partitionLoop) setTroubleApart(u *unit) *unit {
	failed := u.failed
	u.failed = nil
	t := &trouble{errors: make([]string, len(failed)), first: time.Now()}
	if u.trouble != nil {
		t.attempts, t.first = u.trouble.attempts, u.trouble.first
	} else {
		s.troubled.Add(int64(len(failed)))
	}
	t.attempts++
	if !slices.ContainsFunc(failed, func(f failure) bool { return !f.permanent }) {
		t.attempts = max(t.attempts, min(s.policy().ParkAfter, s.policy().MaxAttempts-1)) // no more in place
	}
	t.last = time.Now()
	t.note(failed)
	if len(failed) == u.size {
		more := t.bytes
		if u.trouble != nil {
			more -= u.trouble.bytes
		}
		u.entry.hold(s, more)
		u.trouble = t
		s.retryLater(u)
		return nil
	}
	bad, good := make([]uint32, 0, len(failed)), make([]uint32, 0, u.size-len(failed))
	for i := range u.size {
		if n := len(bad); n < len(failed) && failed[n].at == i {
			bad = append(bad, uint32(u.ordinal(i)))
		} else {
			good = append(good, uint32(u.ordinal(i)))
		}
	}
	apart := &unit{
		entry: u.entry, d: u.d, node: u.node, routed: u.routed, moved: u.moved, asks: u.asks,
		class: u.class, first: u.first, idx: bad, size: len(bad), known: u.known, deleted: true, final: u.final, trouble: t,
	}
	more := unitBytes + int64(4*len(bad)+4*len(good)) + t.bytes + s.shareAbsorbed(u, apart)
	u.entry.bytes += more
	s.take(load{bytes: more})
	u.entry.open++
	u.idx, u.size = good, len(good)
	if u.trouble != nil {
		s.troubled.Add(int64(-len(good)))
		u.trouble = nil
	}
	s.retryLater(apart)
	return u
}

// note keeps what Redis said of each key, and how much that holds. Mostly it says the same of all of them.
func (t *trouble) note(failed []failure) {
	last := ""
	t.bytes = int64(unsafe.Sizeof(*t)) + int64(len(failed))*int64(unsafe.Sizeof(last))
	for i, f := range failed {
		if f.error != last {
			last = strings.Clone(f.error)
			t.bytes += int64(len(last))
		}
		t.errors[i] = last
	}
}

// retryLater decides where keys that failed again are tried next.
func (s *partitionLoop) retryLater(u *unit) {
	t := u.trouble
	step, wait := s.policy().Next(t.attempts)
	if step == retry.InPlace {
		u.begin()
		t.retryAt = s.engine.clock().add(wait)
		heap.Push(&s.outboxTo(u.node).retries, u)
		return
	}
	// A parked key must lack one action only, so it waits here until that one could be its last.
	t.park = true
	u.known = s.since(u)
	s.awaitFinal(u)
}

// policy is what becomes of keys in trouble.
func (s *partitionLoop) policy() retry.Policy { return s.engine.options.Retry }

// parkable reports whether the unit must be parked once its final delete is due.
func (u *unit) parkable() bool { return u.trouble != nil && u.trouble.park }

// retryHeap is the units in trouble, the one that is tried next first.
type retryHeap []*unit

func (h retryHeap) Len() int           { return len(h) }
func (h retryHeap) Less(i, j int) bool { return h[i].trouble.retryAt < h[j].trouble.retryAt }
func (h retryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *retryHeap) Push(u any) { *h = append(*h, u.(*unit)) }

// Pop implements [heap.Interface].
func (h *retryHeap) Pop() any {
	n := len(*h) - 1
	u := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return u
}

func (h *retryHeap) pop() { heap.Pop(h) }

// parkAtOnce is how many keys are parked in one write of the store.
const parkAtOnce = 500

// park is the parker: it stores units in trouble, one hand-over at a time, for as long as it takes.
func (s *partitionLoop) park(ctx context.Context) {
	for {
		select {
		case units := <-s.toPark:
			letters := s.letters(units)
			if err := s.parkAll(ctx, letters); err != nil {
				return
			}
			s.parked <- units
		case <-ctx.Done():
			return
		}
	}
}

// letters returns what the store is to keep of the units.
func (s *partitionLoop) letters(units []*unit) []retry.Entry {
	var entries []retry.Entry
	for _, u := range units {
		b, t := u.entry.batch, u.trouble
		step, wait := s.policy().Next(t.attempts)
		for i := range u.size {
			n := u.ordinal(i)
			e := retry.Entry{
				Key: u.key(i), Action: b.Invalidations[n].Action, Source: b.Source, Table: b.Of(n).Table,
				Version: b.Version(n), Foreign: u.entry.foreign, D: u.d, Error: t.errors[i], Attempts: t.attempts,
				First: t.first, Last: t.last, Notices: noticesOf(b, n),
			}
			if step != retry.Bury {
				e.Due = time.Now().Add(max(wait, outdated(e.Action, u.d)))
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// outdated returns for how long an older value of a parked key may still come, from when its change was known to be
// visible, and be written: without D that is so where nothing is known of the key. Its attempt comes after that.
func outdated(a event.Action, d time.Duration) time.Duration {
	if d > 0 {
		return 0
	}
	switch a {
	case event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet:
		return write.ConfirmsAfter(d)
	}
	return 0
}

// parkAll stores the entries. It fails only with ctx.
func (s *partitionLoop) parkAll(ctx context.Context, entries []retry.Entry) error {
	loop := retry.Loop{
		Backoff:  retry.Backoff{Min: s.policy().MinBackoff, Max: s.policy().MaxBackoff, Rand: s.policy().Rand},
		Reporter: &retry.Reporter{Failed: s.storeFailed},
		Note:     func(error, time.Duration) { s.setFull(true) }, // nothing more is fetched until the store takes keys again
	}
	defer s.setFull(false)
	for n := parkAtOnce; len(entries) > 0; {
		n = min(n, len(entries))
		err := s.engine.store.Park(ctx, entries[:n])
		switch {
		case err == nil:
			s.engine.parkedNow(entries[:n])
			entries = entries[n:]
			n = parkAtOnce
			loop.Succeeded()
			s.setFull(false)
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, retry.ErrFull) && n > 1:
			n = (n + 1) / 2 // what fits shall fit
			continue
		}
		if err := loop.Wait(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// storeFailed says that the store takes no keys.
func (s *partitionLoop) storeFailed(err error) {
	if errors.Is(err, retry.ErrFull) {
		s.engine.alarms.Raise(alarm.StoreFull, "the store of parked keys and dead letters is full, so reading has "+
			"stopped: fix what keeps the keys from being deleted, then replay or purge dead letters (freshet dlq)")
		return
	}
	s.engine.alarms.Raise(alarm.StoreFailed,
		fmt.Sprintf("keys in trouble cannot be stored (%v), so reading has stopped: %s", err, s.engine.advice()))
}

// adviser is a store that knows what an operator can do when it fails for longer.
type adviser interface{ Advice() string }

// advice is what to do when the store fails.
func (e *Engine) advice() string {
	if a, ok := e.store.(adviser); ok {
		return a.Advice()
	}
	return "look at the store"
}

func (s *partitionLoop) setFull(full bool) {
	if s.full.Swap(full) != full {
		s.engine.room.changed()
	}
}
