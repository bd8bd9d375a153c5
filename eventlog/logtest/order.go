package logtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

func keepsOrder(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	done := p.consume(got.all)
	p.append(1, 300)
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, 300)
	if len(got.items) != 900 {
		t.Errorf("%d invalidations came, want 900: nothing has crashed", len(got.items))
	}
}

// carriesWhatIsOdd: keys of any bytes and sizes, batches without invalidations.
func carriesWhatIsOdd(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	done := p.consume(got.all)
	keys := []string{
		"", " ", "\x00\xff\xfe", "ключ", "a\nb", `{"a":1}`, string(bytes.Repeat([]byte{0x80}, 300)),
		strings.Repeat("long", 64<<10),
	}
	for i, b := range []*event.Batch{batch(1, keys...), batch(2, []string{}...), batch(3)} {
		if err := p.o.Log.Append(p.ctx, b); err != nil {
			t.Fatalf("append batch %d: %v", i+1, err)
		}
	}
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	want := append(items(batch(1, keys...)), items(batch(3))...)
	missing := slices.DeleteFunc(want, func(it item) bool { return slices.Contains(got.items, it) })
	if len(missing) > 0 {
		t.Errorf("%d invalidations did not come unchanged, among them %.100q", len(missing), missing[0].key)
	}
	p.await("the last batch is durable", func(saved event.End, _ bool) bool { return saved.Pos == 3*step })
}

func endsWithEOF(t *testing.T, h Harness) {
	p := start(t, h)
	var fetched once
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		for {
			_, token, err := part.Fetch(ctx)
			if errors.Is(err, io.EOF) {
				if _, _, err := part.Fetch(ctx); !errors.Is(err, io.EOF) {
					t.Errorf("fetch after the end: %v, want EOF again", err)
				}
				return nil
			}
			if err != nil {
				return err
			}
			part.Commit(token)
			fetched.done()
		}
	})
	p.append(1, 1)
	fetched.wait(p)
	p.o.Close() // while Fetch waits
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	p.await("the channel of durable ends is closed behind the last", func(saved event.End, closed bool) bool {
		return closed && saved.Pos == step
	})
}

func takesNothingAfterClose(t *testing.T, h Harness) {
	p := start(t, h)
	var got deliveries
	p.append(1, 1)
	p.o.Close()
	p.o.Close() // does no harm
	if err := p.o.Log.Append(p.ctx, batch(2)); err == nil {
		t.Error("a closed log takes a batch")
	}
	if err := p.result(p.consume(got.all)); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.check(t, 1, 1)
	if len(got.items) != len(keysOf(1)) {
		t.Errorf("%d invalidations came, want those of the first batch only", len(got.items))
	}
}

func returnsWhenContextEnds(t *testing.T, h Harness) {
	p := start(t, h)
	var fetched once
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		_, _, err := part.Fetch(ctx)
		if err != nil {
			return err
		}
		fetched.done()
		_, _, err = part.Fetch(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("fetch: %v, want the context's error", err)
		}
		return err
	})
	p.append(1, 1)
	fetched.wait(p)
	p.cancel()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v, want nil after a cancel", err)
	}
	if err := p.o.Log.Append(p.ctx, batch(2)); !errors.Is(err, context.Canceled) {
		t.Errorf("append with an ended context: %v, want its error", err)
	}
}
