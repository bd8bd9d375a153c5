package config

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// events are the words for the kinds of row change.
func events() []string { return []string{"insert", "update", "delete"} }

// mappingKeys are all keys of a mapping.
func mappingKeys() []string {
	return append([]string{"table", "events", "columns", "when", "keys", "second_delete", "rate_limit", "scope"},
		actions()...)
}

// mappings reads the mappings.
func (l *loader) mappings() {
	const first = "write at least one: a table, and the keys that its rows feed"
	n, ok := l.doc.given[mappingsKey]
	if !ok && l.doc.meant[mappingsKey] {
		return
	}
	if !ok {
		// An invalidator that only reads rows learns the mappings from the reader.
		if l.needs("source") && !(l.config.EventLog.Kind == EventLogKafka && l.has("redis")) {
			l.Add(l.doc.place(mappingsKey), "mappings is missing", first)
		}
		return
	}
	nodes, f := l.doc.items(n)
	if f != nil {
		l.at(l.doc.pos(n), mappingsKey, &fault{f.what, first})
		return
	}
	if len(nodes) == 0 {
		l.Add(l.doc.pos(n), "mappings is empty", first)
	}
	same := map[string]spec.Pos{}
	for _, n := range nodes {
		m, ok := l.mapping(n)
		if !ok {
			continue
		}
		l.config.Mappings = append(l.config.Mappings, m)
		c := canonical(&m)
		if at, twice := same[c]; twice {
			l.Add(m.Pos, "this is the same mapping as the one on line "+fmt.Sprint(at.Line), "remove one of them")
			continue
		}
		same[c] = m.Pos
	}
}

// mapping reads one mapping. It is of use to checks when it has a table and something to do; what is missing was
// reported.
func (l *loader) mapping(n *yaml.Node) (spec.Mapping, bool) {
	m := spec.Mapping{
		Pos:    l.doc.pos(n),
		Events: spec.Events{Insert: true, Update: true, Delete: true}, SecondDelete: l.config.Invalidator.SecondDelete,
	}
	if n.Kind != yaml.MappingNode {
		l.Add(m.Pos, "a mapping consists of keys", "write table: and keys: after a hyphen")
		return m, false
	}
	given := map[string]spec.Pos{}
	for _, f := range l.doc.fields(n) {
		given[f.name] = f.at
		if !slices.Contains(mappingKeys(), f.name) {
			given[spec.Nearest(f.name, mappingKeys())] = f.at // what was meant is not missed as well
		}
		l.mappingKey(&m, f)
	}
	if _, ok := given["table"]; !ok {
		l.Add(m.Pos, "the mapping has no table", "write table: schema.table")
	}
	has := func(name string) bool { _, ok := given[name]; return ok }
	if !has("keys") && !slices.ContainsFunc(actions(), has) {
		l.Add(m.Pos, "the mapping has no keys", "write keys: with at least one template")
	}
	l.keysFit(&m, given)
	return m, m.Table.Value != "" && acts(&m)
}

// acts reports whether there is anything to be done for a row of the mapping.
func acts(m *spec.Mapping) bool {
	return len(m.Keys) > 0 || m.Hash != nil || m.Set != nil || m.ZSet != nil || m.Expire != nil || m.Incr.Value != ""
}

// mappingKey reads one key of a mapping.
func (l *loader) mappingKey(m *spec.Mapping, f pair) {
	switch f.name {
	case "table":
		m.Table = l.phrase(f, "write schema.table")
	case "events":
		l.events(m, f)
	case "columns":
		m.Columns = l.phrases(f, "column")
	case "when":
		m.When = l.phrase(f, "write a predicate, or remove the key")
	case "keys":
		m.Keys = l.phrases(f, "key template")
	case "second_delete":
		setting(l, f, secondDelete(), &m.SecondDelete)
	case "rate_limit":
		setting(l, f, rateLimit(), &m.RateLimit)
	case "scope":
		l.scope(m, f)
	default:
		l.action(m, f)
	}
}

// setting reads a value of a kind, and reports whether there is one.
func setting[T any](l *loader, f pair, k kind[T], into *T) bool {
	text, wrong := scalar(f.value)
	if wrong == nil {
		var v T
		if v, wrong = k.parse(text); wrong == nil {
			*into = v
			return true
		}
	}
	l.at(l.doc.pos(f.value), f.name, wrong)
	return false
}

// phrase reads a text that is not empty.
func (l *loader) phrase(f pair, do string) spec.Text {
	text, wrong := scalar(f.value)
	if wrong == nil && text == "" {
		wrong = &fault{"is empty", do}
	}
	if wrong != nil {
		l.at(l.doc.pos(f.value), f.name, wrong)
		return spec.Text{}
	}
	return l.doc.lines.text(l.doc.file, f.value)
}

// phrases reads a list of texts, at least one and none of them empty or twice.
func (l *loader) phrases(f pair, what string) []spec.Text {
	nodes, wrong := l.doc.items(f.value)
	if wrong == nil && len(nodes) == 0 {
		wrong = &fault{"is empty", "write at least one " + what + ", or remove the key"}
	}
	if wrong != nil {
		l.at(l.doc.pos(f.value), f.name, wrong)
		return nil
	}
	var texts []spec.Text
	lines := map[string]int{}
	for _, n := range nodes {
		text, wrong := scalar(n)
		switch {
		case wrong == nil && text == "":
			wrong = &fault{"a " + what + " is empty", "write one, or remove the item"}
		case wrong == nil && lines[text] != 0:
			wrong = &fault{
				fmt.Sprintf("the %s %s is on line %d already", what, spec.Quote(text), lines[text]),
				"remove one of them",
			}
		}
		if wrong != nil {
			l.at(l.doc.pos(n), f.name, wrong)
			continue
		}
		lines[text] = n.Line
		texts = append(texts, l.doc.lines.text(l.doc.file, n))
	}
	return texts
}

// events reads the kinds of row change that a mapping is for.
func (l *loader) events(m *spec.Mapping, f pair) {
	var es spec.Events
	for _, t := range l.phrases(f, "event") {
		switch t.Value {
		case "insert":
			es.Insert = true
		case "update":
			es.Update = true
		case "delete":
			es.Delete = true
		default:
			l.at(t.Pos, f.name, enumerated(t.Value, events()))
		}
	}
	// Without any event, which was reported, the mapping stays one for all.
	if es != (spec.Events{}) {
		m.Events = es
	}
}
