package logtest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// makesProgressDurable: everything that is committed becomes durable, and where durable follows commit, nothing else.
func makesProgressDurable(t *testing.T, h Harness) {
	p := start(t, h)
	fetched, commit := make(chan struct{}), make(chan int)
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		var tokens []eventlog.Token
		for {
			_, token, err := part.Fetch(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
		}
		if h.DurableFollowsCommit {
			close(fetched)
			for n := range commit { // fewer than all, some left out
				part.Commit(tokens[n-1])
			}
		}
		if len(tokens) > 0 {
			part.Commit(tokens[len(tokens)-1])
		}
		return nil
	})
	p.append(1, 10)
	p.o.Close()
	if h.DurableFollowsCommit {
		<-fetched
		if n := p.durable(); n != 0 {
			t.Errorf("%d batches are durable before any was committed", n)
		}
		for _, n := range []int{1, 2, 5, 9} {
			commit <- n
			p.await("what was committed is durable", func(saved event.End, _ bool) bool { return saved.Pos >= uint64(n*step) })
			if d := p.durable(); d != n {
				t.Errorf("%d batches are durable, %d are committed", d, n)
			}
		}
		close(commit)
	}
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	p.awaitAll(10)
}

func commitsWithoutGoingBack(t *testing.T, h Harness) {
	p := start(t, h)
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		var tokens []eventlog.Token
		for {
			_, token, err := part.Fetch(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
		}
		for _, i := range []int{len(tokens) - 2, 0, len(tokens) - 2, len(tokens) - 1, len(tokens) - 1, 0} {
			if i >= 0 {
				part.Commit(tokens[i])
			}
		}
		return nil
	})
	p.append(1, 6)
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	// That it never goes back is watched all the time.
	p.awaitAll(6)
}

// gainsNothingInsideATransaction: a batch that ends inside a transaction has no end, and its commit moves nothing.
func gainsNothingInsideATransaction(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	open := batch(2)
	open.End = event.End{}
	for _, b := range []*event.Batch{batch(1), open} {
		if err := p.o.Log.Append(p.ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	p.o.Close()
	if err := p.result(p.consume(got.all)); err != nil {
		t.Errorf("consume: %v", err)
	}
	p.await("the channel is closed", func(_ event.End, closed bool) bool { return closed })
	if n := p.durable(); n != 1 {
		t.Errorf("%d batches are durable, want 1: the second is in an open transaction", n)
	}
	got.check(t, 1, 2)
}

// deliversAgain: what was fetched and not committed comes again in the next life.
func deliversAgain(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	var enough once
	done := p.consume(got.fetch(5*3, &enough))
	p.append(1, 5)
	enough.wait(p)
	p.crash()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v, want nil after a cancel", err)
	}
	got.check(t, 1, 5)

	next := start(t, h)
	var again deliveries
	done = next.consume(again.all)
	next.append(p.durable()+1, 5)
	next.o.Close()
	if err := next.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	again.check(t, 1, 5)
}

// survivesLostAcknowledgement: the work was committed, and nobody was told.
func survivesLostAcknowledgement(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	restore := func() {}
	if h.LoseAcknowledgements != nil {
		restore = h.LoseAcknowledgements(t)
	}
	var committed once
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		b, token, err := part.Fetch(ctx)
		if err != nil {
			return err
		}
		got.add(b)
		part.Commit(token)
		committed.done()
		<-ctx.Done()
		return ctx.Err()
	})
	if err := p.o.Log.Append(p.ctx, batch(1)); err != nil {
		t.Fatalf("append: %v", err)
	}
	committed.wait(p)
	p.crash()
	restore()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}

	// The end may have been durable, but the checkpoint never heard of it: all is read again.
	next := start(t, h)
	done = next.consume(got.all)
	next.append(1, 3)
	next.o.Close()
	if err := next.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, 3)
}

// losesNothingInCrashes: in life after life, some of the work is done before the process dies. Whatever was not
// committed by then is delivered in a later life.
func losesNothingInCrashes(t *testing.T, h Harness) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const last = 60
	var finished finishedItems
	saved := 0
	for life := 0; saved < last; life++ {
		if life == 500 {
			t.Fatalf("after %d lives %d of %d batches are durable", life, saved, last)
		}
		saved = max(saved, finished.life(t, h, saved+1, last, 1+random.IntN(12), 1+random.IntN(3)))
	}
	for i := 1; i <= last && h.DurableFollowsCommit; i++ {
		for _, it := range items(batch(i)) {
			if !finished.items[it] {
				t.Errorf("batch %d is durable, and key %s of it was never finished", i, it.key)
			}
		}
	}
}

// finishedItems are what was fetched and committed, over all lives.
type finishedItems struct {
	mu    sync.Mutex
	items map[item]bool
}

// life reads the source again from batch first, fetches some batches of each partition, commits at every n-th, and
// crashes. It returns how many batches were durable by then.
func (f *finishedItems) life(t *testing.T, h Harness, first, last, some, nth int) int {
	t.Helper()
	p := start(t, h)
	p.group.Go(func() {
		for i := first; i <= last; i++ {
			if p.o.Log.Append(p.ctx, batch(i)) != nil {
				return // the crash
			}
		}
		p.o.Close()
	})
	var enough once
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		defer enough.done()
		var mine []item
		for n := range some {
			b, token, err := part.Fetch(ctx)
			if err != nil {
				return nil // the end of the log, or of this life
			}
			if mine = append(mine, items(b)...); n%nth == 0 {
				f.finish(mine)
				part.Commit(token)
				mine = nil
			}
		}
		enough.done()
		<-ctx.Done()
		return nil
	})
	enough.wait(p)
	p.crash()
	if err := p.result(done); err != nil {
		t.Fatalf("consume: %v", err)
	}
	return p.durable()
}

func (f *finishedItems) finish(done []item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items == nil {
		f.items = map[item]bool{}
	}
	for _, it := range done {
		f.items[it] = true
	}
}

// stopsAtPoison: an error of the handler ends Consume with that error, and what it failed on comes again.
func stopsAtPoison(t *testing.T, h Harness) {
	p := start(t, h)
	poison := errors.New("cannot take this")
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		if _, _, err := part.Fetch(ctx); err != nil {
			return err
		}
		return poison
	})
	p.append(1, 1)
	if err := p.result(done); !errors.Is(err, poison) {
		t.Errorf("consume: %v, want the handler's error", err)
	}
	p.crash()

	next := start(t, h)
	var got deliveries
	done = next.consume(got.all)
	next.append(p.durable()+1, 2)
	next.o.Close()
	if err := next.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, 2)
}
