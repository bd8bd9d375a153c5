package logtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// actionsOf makes batch i of every action and intent, with effects and fields of every kind, in the order given by i: a
// log keeps the order of a batch, whatever that is.
func actionsOf(i int) *event.Batch {
	b := batch(i, []string{}...)
	b.Commons[0].RateLimit = i
	told := &event.Effect{Publish: true, Stream: true, MaxLen: 1000}
	value := &event.Effect{
		As: event.FormJSON, TTL: time.Hour, Jitter: 0.25, ExpireAt: time.Minute, Missing: true,
		MissingValue: "\xff", MissingTTL: time.Second,
	}
	hash := &event.Effect{As: event.FormHash, Publish: true}
	query := &event.Effect{As: event.FormString, Query: "0123456789abcdef", Stream: true}
	all := []struct {
		action event.Action
		intent event.Intent
		effect *event.Effect
		fields []any // strings, or nil
	}{
		{event.ActionDelete, event.IntentForget, nil, nil},
		{event.ActionDelete, event.IntentForget, told, []any{"channel", "message\x00", "stream"}},
		{event.ActionDelete, event.IntentForget, told, []any{nil, nil, nil}},
		{event.ActionRebuild, event.IntentPut, value, []any{`{"id":7,"name":"<Zoë>"}`}},
		{event.ActionRebuild, event.IntentPut, value, []any{"{ no document \xff"}},
		{event.ActionRebuild, event.IntentRemove, value, nil},
		{event.ActionRebuild, event.IntentForget, value, nil},
		{
			event.ActionRebuild, event.IntentPut, hash,
			[]any{"channel", "", "name", "Zoë", "avatar", "\x89PNG\xff", "empty", ""},
		},
		{event.ActionRebuild, event.IntentPut, query, []any{"stream", "7", nil, "", "\xff"}},
		{event.ActionHash, event.IntentPut, &event.Effect{}, []any{"field", "value"}},
		{event.ActionHash, event.IntentRemove, nil, []any{"\xff"}},
		{event.ActionSet, event.IntentPut, &event.Effect{}, []any{"member"}},
		{event.ActionSet, event.IntentForget, &event.Effect{}, nil},
		{event.ActionZSet, event.IntentPut, nil, []any{"member", "1.5"}},
		{event.ActionZSet, event.IntentRemove, nil, []any{"member"}},
		{event.ActionExpire, event.IntentForget, &event.Effect{In: 5 * time.Second}, nil},
		{event.ActionIncr, event.IntentForget, &event.Effect{}, nil},
	}
	for n := range all {
		a := all[(n*i)%len(all)] // their number is a prime, so each comes once
		// A few keys, of which each has several actions, also in the same row.
		key := fmt.Sprintf("\xff:%d", n%3)
		it := event.Item{
			Text: append(b.Text(), key...), Key: len(key), Row: uint32(n/4 + 1), Action: a.action, Intent: a.intent,
			Effect: a.effect,
		}
		for _, f := range a.fields {
			if f == nil {
				it.Text = event.AppendNull(it.Text)
			} else {
				it.Text = event.AppendField(it.Text, f.(string))
			}
		}
		b.AddItem(it)
	}
	return b.Clone()
}

// whole is all that is known of an invalidation, as text.
func whole(b *event.Batch, i int) string {
	inv := &b.Invalidations[i]
	o := b.Of(i)
	var effect event.Effect
	if e := b.EffectOf(i); e != nil {
		effect = *e
	}
	return fmt.Sprintf("%q %s %s %v %+v %q of %s under %d with %s, %d a second", b.Key(i), inv.Action, inv.Intent,
		b.EffectOf(i) != nil, effect,
		b.Fields(i), b.Version(i), o.Mapping, o.D, o.RateLimit)
}

// wholes gathers what is delivered of each key.
type wholes struct {
	mu    sync.Mutex
	byKey map[string][]string
	n     int
}

func (w *wholes) add(b *event.Batch) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string][]string{}
	}
	for i := range b.Len() {
		w.byKey[b.Key(i)] = append(w.byKey[b.Key(i)], whole(b, i))
		w.n++
	}
	return w.n
}

// all takes what comes, and commits it.
func (w *wholes) all(ctx context.Context, p eventlog.Partition) error {
	return each(ctx, p, func(b *event.Batch, token eventlog.Token) {
		w.add(b)
		p.Commit(token)
	})
}

// same fails the test unless each key had just what these batches say, in their order.
func (w *wholes) same(t *testing.T, batches ...*event.Batch) {
	t.Helper()
	var want wholes
	for _, b := range batches {
		want.add(b)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, all := range want.byKey {
		got := w.byKey[key]
		if slices.Equal(all, got) {
			continue
		}
		for i := range all {
			if i >= len(got) || got[i] != all[i] {
				t.Errorf("key %q: %d of %d came intact and in order; the next was to be\n%.500s", key, i, len(all), all[i])
				break
			}
		}
		if len(got) > len(all) {
			t.Errorf("key %q: %d came, want %d", key, len(got), len(all))
		}
	}
}

// carriesEveryAction: all that belongs to an action arrives, and the actions of a key in their order.
func carriesEveryAction(t *testing.T, h Harness) {
	p := start(t, h)
	var got wholes
	done := p.consume(got.all)
	var batches []*event.Batch
	for i := 1; i <= 16; i++ {
		b := actionsOf(i)
		batches = append(batches, b.Clone()) // the log may keep what it is given
		if err := p.o.Log.Append(p.ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.same(t, batches...)
}

// carriesActionsAgain: what was not committed comes again in the next life with all that it has.
func carriesActionsAgain(t *testing.T, h Harness) {
	p := start(t, h)
	first := actionsOf(1)
	var seen wholes
	var enough once
	done := p.consume(func(ctx context.Context, part eventlog.Partition) error {
		return each(ctx, part, func(b *event.Batch, _ eventlog.Token) {
			if seen.add(b) >= first.Len() {
				enough.done()
			}
		})
	})
	if err := p.o.Log.Append(p.ctx, actionsOf(1)); err != nil {
		t.Fatal(err)
	}
	enough.wait(p)
	seen.same(t, first)
	p.crash()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v, want nil after a cancel", err)
	}

	next := start(t, h)
	var again wholes
	done = next.consume(again.all)
	if p.durable() == 0 { // the source is read again
		if err := next.o.Log.Append(next.ctx, actionsOf(1)); err != nil {
			t.Fatal(err)
		}
	}
	next.o.Close()
	if err := next.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	// The first life's may come next to what was read again, which is the same once more.
	again.mu.Lock()
	if again.n == 2*first.Len() {
		for key, all := range again.byKey {
			again.byKey[key] = all[len(all)/2:]
		}
	}
	again.mu.Unlock()
	again.same(t, first)
}

// carriesLargeBatches: many invalidations with values of all sizes, more than one record or one request can hold.
func carriesLargeBatches(t *testing.T, h Harness) {
	const items, most = 5000, 256 << 10
	b := batch(1, []string{}...)
	effect := &event.Effect{As: event.FormString, TTL: time.Hour}
	for n := range items {
		size := 20
		switch {
		case n%1000 == 7:
			size = most
		case n%10 == 3:
			size = 4000
		}
		key := fmt.Sprintf("user:%d", n%701)
		text := event.AppendField(append(b.Text(), key...), strings.Repeat(string(rune('a'+n%26)), size))
		b.AddItem(event.Item{
			Text: text, Key: len(key), Row: uint32(n + 1), Action: event.ActionRebuild, Intent: event.IntentPut, Effect: effect,
		})
	}
	want := b.Clone()
	p := start(t, h)
	var got wholes
	done := p.consume(got.all)
	if err := p.o.Log.Append(p.ctx, b.Clone()); err != nil {
		t.Fatal(err)
	}
	p.o.Close()
	if err := p.result(done); err != nil {
		t.Errorf("consume: %v", err)
	}
	got.same(t, want)
	p.await("the batch is durable", func(saved event.End, _ bool) bool { return saved.Pos == step })
}
