package logtest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

func mark(n int) event.Mark {
	return event.Mark{Source: source, Term: 1, Version: event.Version{Epoch: 1, File: 1, Pos: uint64(n)}}
}

// awaitMark receives marks until the one of n comes, and fails the test if they go back.
func (p *process) awaitMark(n int) {
	p.t.Helper()
	var last event.Version
	for {
		select {
		case m := <-p.o.Log.Marks():
			if m.Source != source || m.Term != 1 || m.Version.Compare(last) < 0 {
				p.t.Errorf("mark %+v came after %s", m, last)
			}
			if last = m.Version; last == mark(n).Version {
				return
			}
		case <-p.ctx.Done():
			p.t.Fatalf("mark %d does not come; the last was %s", n, last)
		}
	}
}

// consumeNothing runs a consumer that fetches nothing: marks come to who consumes.
func (p *process) consumeNothing() {
	p.consume(func(ctx context.Context, _ eventlog.Partition) error {
		<-ctx.Done()
		return nil
	})
}

func passesMarksWhenFull(t *testing.T, h Harness) {
	p := start(t, h)
	p.consumeNothing()
	resume := h.stall(t)
	defer resume()
	p.fill()
	p.o.Log.Mark(mark(1))
	p.awaitMark(1)
	// What empties the queue at the end of all work are marks: they pass when nothing else does any more.
	p.o.Close()
	p.o.Log.Mark(mark(2))
	p.awaitMark(2)
}

func keepsNewestMark(t *testing.T, h Harness) {
	p := start(t, h)
	p.consumeNothing()
	for n := range 1000 {
		p.o.Log.Mark(mark(n)) // nobody receives, and it does not block
	}
	p.awaitMark(999)
	select {
	case m := <-p.o.Log.Marks():
		t.Errorf("after the newest mark came %s", m.Version)
	default:
	}
}

// worksUnderLoad: appending, fetching, committing, marks and durable ends all at once.
func worksUnderLoad(t *testing.T, h Harness) {
	const last = 3000
	p := start(t, h)
	var got deliveries
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		var group sync.WaitGroup
		tokens := make(chan eventlog.Token, 100)
		group.Go(func() { // commits come from another goroutine, and leave some out
			var held eventlog.Token
			n := 0
			for held = range tokens {
				if n++; n%7 == 0 {
					part.Commit(held)
				}
			}
			if held != nil {
				part.Commit(held)
			}
		})
		defer group.Wait()
		defer close(tokens)
		for {
			b, token, err := part.Fetch(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			got.add(b)
			tokens <- token
		}
	})
	p.group.Go(func() {
		for n := range last {
			p.o.Log.Mark(mark(n))
		}
	})
	p.append(1, last)
	p.o.Close()
	p.awaitMark(last - 1)
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, last)
	p.awaitAll(last)
}
