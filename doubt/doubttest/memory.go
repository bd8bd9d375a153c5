package doubttest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet/freshet/doubt"
)

// Memory is a keeper in memory, whose content is there for as long as the test. Fail, if it is set, is asked before
// each call and may refuse it; After is asked when it has taken effect, and may say that the reply was lost.
type Memory struct {
	Fail, After func(ctx context.Context, op, id string) error

	mu     sync.Mutex
	doubts map[string][]byte
	facts  map[string][]byte
}

var (
	_ Keeper            = (*Memory)(nil)
	_ doubt.SharedFacts = (*Memory)(nil)
)

func newEnded(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// do calls f between Fail and After.
func (m *Memory) do(ctx context.Context, op, id string, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.Fail != nil {
		if err := m.Fail(ctx, op, id); err != nil {
			return err
		}
	}
	m.mu.Lock()
	if m.doubts == nil {
		m.doubts, m.facts = map[string][]byte{}, map[string][]byte{}
	}
	f()
	m.mu.Unlock()
	if m.After != nil {
		return m.After(ctx, op, id)
	}
	return nil
}

// Doubts implements [doubt.Keeper].
func (m *Memory) Doubts(ctx context.Context) (out []doubt.Doubt, err error) {
	err = m.do(ctx, "list", "", func() {
		for _, text := range m.doubts {
			var d doubt.Doubt
			if err := json.Unmarshal(text, &d); err != nil {
				panic(err)
			}
			out = append(out, d)
		}
	})
	return out, err
}

// PutDoubt implements [doubt.Keeper].
func (m *Memory) PutDoubt(ctx context.Context, d doubt.Doubt) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return m.do(ctx, "put", d.ID, func() { m.doubts[d.ID] = text })
}

// DropDoubt implements [doubt.Keeper].
func (m *Memory) DropDoubt(ctx context.Context, id string) error {
	return m.do(ctx, "drop", id, func() { delete(m.doubts, id) })
}

// Fact implements [doubt.Facts].
func (m *Memory) Fact(ctx context.Context, name string) (value []byte, err error) {
	err = m.do(ctx, "fact", name, func() { value = slices.Clone(m.facts[name]) })
	return value, err
}

// SetFact implements [doubt.Facts].
func (m *Memory) SetFact(ctx context.Context, name string, value []byte) error {
	if len(value) > doubt.MaxFact {
		return fmt.Errorf("fact %s: %d bytes", name, len(value))
	}
	return m.do(ctx, "set fact", name, func() { m.facts[name] = slices.Clone(value) })
}

// FactsUnder implements [doubt.SharedFacts].
func (m *Memory) FactsUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	facts := map[string][]byte{}
	err := m.do(ctx, "facts", prefix, func() {
		for name, value := range m.facts {
			if strings.HasPrefix(name, prefix) {
				facts[name] = slices.Clone(value)
			}
		}
	})
	return facts, err
}

// DropFact implements [doubt.Facts].
func (m *Memory) DropFact(ctx context.Context, name string) error {
	return m.do(ctx, "drop fact", name, func() { delete(m.facts, name) })
}

// IDs returns the ids of the doubts that are kept, sorted.
func (m *Memory) IDs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.doubts))
}

// Shared is one process's view of a [Memory] that several processes write to: it hears of changes.
type Shared struct {
	*Memory
	// Changes holds a value for each time that Follow is to tell of a change.
	Changes chan struct{}
}

// Follow implements [doubt.Follower].
func (s Shared) Follow(ctx context.Context, changed func()) {
	changed()
	for {
		select {
		case <-s.Changes:
			changed()
		case <-ctx.Done():
			return
		}
	}
}

// CatchUp implements [doubt.Follower]. There is nothing between the memory and who reads it.
func (Shared) CatchUp(context.Context) error { return nil }
