package logtest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// mostBuffered is how many batches a log may take before it blocks.
const mostBuffered = 10_000

// fill appends batches from 1 until the log is full, and returns how many it took.
func (p *process) fill() int {
	p.t.Helper()
	for i := 1; i <= mostBuffered; i++ {
		ctx, cancel := context.WithTimeout(p.ctx, blockedAfter)
		err := p.o.Log.Append(ctx, batch(i))
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return i - 1
		case err != nil:
			p.t.Fatalf("append batch %d: %v", i, err)
		}
	}
	p.t.Fatalf("the log took %d batches that nobody fetched", mostBuffered)
	return 0
}

// stall keeps batches from passing, if the log needs help with that.
func (h Harness) stall(t *testing.T) (resume func()) {
	if h.Stall == nil {
		return func() {}
	}
	return h.Stall(t)
}

// blocksWhenFull: a batch that is refused was not taken, and goes in when there is room.
func blocksWhenFull(t *testing.T, h Harness) {
	p := start(t, h)
	resume := h.stall(t)
	n := p.fill()
	if n == 0 {
		t.Fatal("the log takes nothing")
	}
	blocked := make(chan error, 1)
	p.group.Go(func() { blocked <- p.o.Log.Append(p.ctx, batch(n+1)) })
	select {
	case err := <-blocked:
		t.Fatalf("append to a full log returned %v", err)
	case <-time.After(blockedAfter):
	}
	resume()
	var got deliveries
	done := p.consume(got.all)
	if err := <-blocked; err != nil {
		t.Fatalf("append when there is room: %v", err)
	}
	p.append(n+2, n+5)
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, n+5)
	if want := 3 * (n + 5); len(got.items) != want {
		t.Errorf("%d invalidations came, want %d: a batch that was refused was taken", len(got.items), want)
	}
}

// closesWhileFull: what was taken is delivered, what was waiting is not taken.
func closesWhileFull(t *testing.T, h Harness) {
	p := start(t, h)
	resume := h.stall(t)
	n := p.fill()
	blocked := make(chan error, 1)
	p.group.Go(func() { blocked <- p.o.Log.Append(p.ctx, batch(n+1)) })
	p.o.Close()
	if err := <-blocked; err == nil {
		t.Error("append to a log that was closed while it was full says that the batch was taken")
	}
	resume()
	var got deliveries
	if err := p.result(p.consume(got.all)); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, n)
	p.awaitAll(n)
}
