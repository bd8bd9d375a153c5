package scope

import (
	"context"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/router/keyspace"
)

// Forget has keys forgotten that somebody names, without the prefix: at once, and again after D, the longest of the
// task's mappings. A key that no template can have made is deleted. It returns nil once all is finished.
//
// Both deletes are under the version that is the newest visible one now, and a newer change may be finished before the
// second of them: by another mapping of the key, with a shorter D. So they are no leftovers, which would leave what a
// slow reader has filled since.
func (s *Scope) Forget(ctx context.Context, t Task, keys []string) error {
	n := &named{pass: pass{scope: s, task: t}, keys: keys}
	for _, target := range t.Keys.Targets() {
		n.d = max(n.d, target.Mapping.Spec.SecondDelete)
	}
	return s.serve(ctx, n)
}

// named is a partition that hands out keys that are known.
type named struct {
	pass
	keys []string
}

// Fetch implements [eventlog.Partition].
func (n *named) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	b := n.newBatch()
	b.Leftover, b.Named = false, true
	for b.Len() < batchKeys {
		switch {
		case len(n.hashes) > 0:
			if err := n.fields(ctx, b); err != nil {
				return nil, nil, err
			}
		case len(n.keys) > 0:
			n.name(b, n.keys[0])
			n.keys = n.keys[1:]
		case b.Len() > 0:
			return b, n.issue(), nil
		default:
			return n.end()
		}
	}
	return b, n.issue(), nil
}

// name adds what is forgotten of a key: whatever its templates say, and all of it where there is none.
func (n *named) name(b *event.Batch, key string) {
	known := false
	whole := n.scope.options.Prefix + key
	n.task.Keys.Match(whole, func(*keyspace.Target) { known = true })
	if known {
		n.look(b, whole)
		return
	}
	v := n.version()
	row := v.Row
	v.Row = 0
	b.AddOrigin(event.Origin{Table: "by hand", Event: v, D: n.d})
	b.Add(append(b.Text(), key...), row, event.ActionDelete)
}
