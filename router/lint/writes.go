package lint

import (
	"fmt"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/shape"
)

// events tells of a mapping that writes, but is not for every change that makes what it wrote untrue.
func (k *checker) events(m *router.Mapping, t *event.Table) {
	if !m.Writes {
		return
	}
	at := m.Spec.Table.At(0)
	z := m.Spec.ZSet
	unscored := z != nil && z.Score.Value == ""
	if unscored && (m.Events[event.Insert] || m.Events[event.Update]) {
		k.report(z.Key.At(0), t, "without a score, an INSERT or UPDATE deletes the whole sorted set: where the member "+
			"belongs cannot be known",
			"write score:, or events: [delete]")
	}
	if unscored && m.Spec.Rebuild == nil && m.Spec.Hash == nil && m.Spec.Set == nil {
		return // it writes nothing, but removes
	}
	if !m.Events[event.Delete] {
		k.report(at, t, "the mapping writes what rows hold, and is not for delete: what was written of a row stays when "+
			"the row goes",
			"add delete to events")
	}
	if !m.Events[event.Update] {
		k.report(at, t, "the mapping writes what rows hold, and is not for update: what was written of a row stays when "+
			"the row changes",
			"add update to events")
	}
}

// score tells of a score that is made of a text, which need not be a number.
func (k *checker) score(a *router.Action, t *event.Table) {
	if a.Kind != event.ActionZSet || a.Value == nil {
		return
	}
	for i := range a.Value.Parts {
		p, ok := placeholder{}, false
		if n := &a.Value.Parts[i]; n.Kind == router.NodeColumn {
			p, ok = newPlace(n, t)
		}
		if number := shape.Bytes("0-9.e+").Or(shape.Bytes("-")); ok && p.shape.Set.And(number) != p.shape.Set {
			k.report(a.Value.Text.At(p.node.At), t,
				fmt.Sprintf("the score %s is made of %s: a row in which it is no number deletes the whole sorted set", p.node,
					p.column.TypeName()),
				"take a number, or a generated column that makes one of the text")
		}
	}
}

// fights tells of two actions that write the same key. A template stands for one action over many tables, and
// deletes, counters and shorter lives do not mind whatever is written.
func (k *checker) fights() {
	for i := range k.seen {
		for j := range i {
			a, b := &k.seen[j], &k.seen[i]
			if a.by == b.by || a.twin >= 0 || b.twin >= 0 {
				continue
			}
			what := fight(a.by, b.by)
			if what == "" || a.mapping == b.mapping && a.by.Effect == b.by.Effect {
				continue
			}
			if key, ok := common(a.language, b.language); ok {
				k.report(b.t.Text.At(0), b.table,
					fmt.Sprintf("%s is also a key of %s (%s), and %s", spec.Quote(key), spec.Quote(a.t.Text.Value), a.t.Text.At(0),
						what),
					"give one of them a key of its own, or let one mapping write it")
			}
		}
	}
}

// fight says why two actions cannot have the same key; "" if they can.
func fight(a, b *router.Action) string {
	typed := func(x *router.Action) string {
		switch x.Kind {
		case event.ActionRebuild:
			if x.Effect.As == event.FormHash {
				return "a hash"
			}
			return "a string"
		case event.ActionHash:
			return "a hash"
		case event.ActionSet:
			return "a set"
		case event.ActionZSet:
			return "a sorted set"
		case event.ActionIncr:
			return "a counter"
		}
		return ""
	}
	one, other := typed(a), typed(b)
	rebuilt := a.Kind == event.ActionRebuild || b.Kind == event.ActionRebuild
	switch {
	case one == "" || other == "":
		return ""
	case one != other:
		return "one takes it for " + one + ", the other for " + other + ": each deletes what the other wrote"
	case rebuilt:
		return "both write it: each overwrites what the other wrote"
	case a.Kind == event.ActionZSet && a.Value != nil && b.Value != nil:
		return "both write scores to it: of a member of both, the last change wins"
	case a.Kind == event.ActionHash && a.Value != nil && b.Value != nil && a.Field.Text.Value == b.Field.Text.Value:
		return "both set the same field of it: each overwrites what the other wrote"
	}
	return ""
}
