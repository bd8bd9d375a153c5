package router

import (
	"fmt"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// Whole names an action that needs whole row images.
type Whole struct {
	// Pos is where the action stands, and What names it: rebuild of "product:{id}".
	Pos  spec.Pos
	What string
}

// Whole returns the actions that write, and so delete instead where a row image lacks a column that they need: wherever
// binlog_row_image is not FULL.
// It may be called from any goroutine.
func (r *Router) Whole() []Whole {
	var all []Whole
	for _, m := range r.mappings {
		for i := range m.actions {
			if a := &m.actions[i]; a.writes() {
				all = append(all, Whole{Pos: a.key.text.At(0), What: a.kind.String() + " of " + spec.Quote(a.key.text.Value)})
			}
		}
	}
	return all
}

// events tells of a mapping that writes, but is not for every change that makes what it wrote untrue.
func (k *checker) events(m *mapping, t *event.Table) {
	if !m.writes {
		return
	}
	at := m.spec.Table.At(0)
	z := m.spec.ZSet
	unscored := z != nil && z.Score.Value == ""
	if unscored && (m.events[event.Insert] || m.events[event.Update]) {
		k.report(z.Key.At(0), t, "without a score, an INSERT or UPDATE deletes the whole sorted set: where the member belongs cannot be known",
			"write score:, or events: [delete]")
	}
	if unscored && m.spec.Rebuild == nil && m.spec.Hash == nil && m.spec.Set == nil {
		return // it writes nothing, but removes
	}
	if !m.events[event.Delete] {
		k.report(at, t, "the mapping writes what rows hold, and is not for delete: what was written of a row stays when the row goes",
			"add delete to events")
	}
	if !m.events[event.Update] {
		k.report(at, t, "the mapping writes what rows hold, and is not for update: what was written of a row stays when the row changes",
			"add update to events")
	}
}

// score tells of a score that is made of a text, which need not be a number.
func (k *checker) score(a *action, t *event.Table) {
	if a.kind != event.ActionZSet || a.value == nil {
		return
	}
	for i := range a.value.parts {
		p, ok := place{}, false
		if n := &a.value.parts[i]; n.kind == nodeColumn {
			p, ok = newPlace(n, t)
		}
		if number := bytesOf("0-9.e+").or(bytesOf("-")); ok && p.shape.set.and(number) != p.shape.set {
			k.report(a.value.text.At(p.node.at), t, fmt.Sprintf("the score %s is made of %s: a row in which it is no number deletes the whole sorted set", p.node, typeName(p.column)),
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
			if what == "" || a.mapping == b.mapping && a.by.effect == b.by.effect {
				continue
			}
			if key, ok := common(a.language, b.language); ok {
				k.report(b.t.text.At(0), b.table, fmt.Sprintf("%s is also a key of %s (%s), and %s", spec.Quote(key), spec.Quote(a.t.text.Value), a.t.text.At(0), what),
					"give one of them a key of its own, or let one mapping write it")
			}
		}
	}
}

// fight says why two actions cannot have the same key; "" if they can.
func fight(a, b *action) string {
	typed := func(x *action) string {
		switch x.kind {
		case event.ActionRebuild:
			if x.effect.As == event.FormHash {
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
	rebuilt := a.kind == event.ActionRebuild || b.kind == event.ActionRebuild
	switch {
	case one == "" || other == "":
		return ""
	case one != other:
		return "one takes it for " + one + ", the other for " + other + ": each deletes what the other wrote"
	case rebuilt:
		return "both write it: each overwrites what the other wrote"
	case a.kind == event.ActionZSet && a.value != nil && b.value != nil:
		return "both write scores to it: of a member of both, the last change wins"
	case a.kind == event.ActionHash && a.value != nil && b.value != nil && a.field.text.Value == b.field.text.Value:
		return "both set the same field of it: each overwrites what the other wrote"
	}
	return ""
}
