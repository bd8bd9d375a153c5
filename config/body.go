package config

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// body is the keys of an action.
type body struct {
	l *loader
	// name is that of the action, such as rebuild or rebuild.missing, and at is where it stands.
	name string
	at   spec.Pos
	// given are its keys; the name in a pair is the whole one, such as rebuild.ttl.
	given map[string]pair
	// meant are keys that an unknown one was probably meant to be: they are not missed as well.
	meant map[string]bool
	// broken are keys with a fault: nothing else is said about them.
	broken map[string]bool
}

// body reads the keys of an action and reports those that it does not have. example is one that is right.
func (l *loader) body(f pair, example string, names []string) (*body, bool) {
	if f.value.Kind != yaml.MappingNode {
		what := "keys are needed here, not one value"
		switch {
		case f.value.Kind == yaml.SequenceNode:
			what = "keys are needed here, not a list"
		case f.value.Tag == "!!null":
			what = "has no value"
		}
		l.at(l.doc.pos(f.value), f.name, &fault{what, "write them in braces, such as " + example})
		return nil, false
	}
	b := &body{l: l, name: f.name, at: f.at, given: map[string]pair{}, meant: map[string]bool{}, broken: map[string]bool{}}
	for _, p := range l.doc.fields(f.value) {
		if !slices.Contains(names, p.name) {
			l.Add(p.at, "unknown key "+spec.Quote(p.name)+" in "+f.name, oneOfKeys(p.name, names))
			b.meant[spec.Nearest(p.name, names)] = true
			continue
		}
		b.given[p.name] = pair{f.name + "." + p.name, p.at, p.value}
	}
	return b, true
}

// set has a key read if it is given, and reports whether it has no fault.
func (b *body) set(name string, read func(pair) bool) bool {
	if p, ok := b.given[name]; ok && !read(p) {
		b.broken[name] = true
	}
	return !b.broken[name]
}

// text reads a text that is not empty, if it is given.
func (b *body) text(name, do string) (t spec.Text) {
	b.set(name, func(p pair) bool {
		t = b.l.phrase(p, do)
		return t.Value != ""
	})
	return t
}

// texts reads a list of texts, if it is given.
func (b *body) texts(name, what string) (ts []spec.Text) {
	b.set(name, func(p pair) bool {
		ts = b.l.phrases(p, what)
		return len(ts) > 0
	})
	return ts
}

// need reads a text that must be there.
func (b *body) need(name, do string) spec.Text {
	b.lacks(name, do)
	return b.text(name, do)
}

// lacks reports a key that is not there, and whether it is not.
func (b *body) lacks(name, do string) bool {
	_, ok := b.given[name]
	if !ok && !b.meant[name] {
		b.l.at(b.at, b.name+"."+name, &fault{"is missing", do})
	}
	return !ok
}

// wrong reports a key that is given, unless something was said about it already.
func (b *body) wrong(name, what, do string) {
	if p, ok := b.given[name]; ok && !b.broken[name] {
		b.broken[name] = true
		b.l.at(b.l.doc.pos(p.value), p.name, &fault{what, do})
	}
}

// without reports those of the keys that are given and have no effect.
func (b *body) without(effect, do string, names ...string) {
	for _, name := range names {
		b.wrong(name, "has no effect "+effect, do)
	}
}
