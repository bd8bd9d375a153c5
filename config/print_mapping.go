package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// mappingNode returns a mapping with everything that counts in it, defaults too.
func mappingNode(m *spec.Mapping) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, "table", scalarNode(m.Table.Value, false))
	es := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i, on := range []bool{m.Events.Insert, m.Events.Update, m.Events.Delete} {
		if on {
			es.Content = append(es.Content, scalarNode(events()[i], false))
		}
	}
	put(n, "events", es)
	if len(m.Columns) > 0 {
		put(n, "columns", textNodes(m.Columns, yaml.FlowStyle))
	}
	putText(n, "when", m.When)
	if len(m.Keys) > 0 {
		put(n, "keys", textNodes(m.Keys, 0))
	}
	putActions(n, m)
	put(n, "second_delete", scalarNode(secondDelete().format(m.SecondDelete), true))
	put(n, "rate_limit", scalarNode(rateLimit().format(m.RateLimit), true))
	put(n, "scope", scopeNode(m))
	return n
}

// scopeNode returns how all keys of the mapping are found.
func scopeNode(m *spec.Mapping) *yaml.Node {
	switch {
	case m.ScopeRows:
		return scalarNode("rows", false)
	case len(m.Scope) == 0:
		return scalarNode("keys", false)
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, t := range m.Scope {
		column := scalarNode(t.Column.Value, false)
		if column.Value == "<<" { // else it would be a merge key
			column.Style = yaml.DoubleQuotedStyle
		}
		n.Content = append(n.Content, column, scalarNode(t.Holds.Value, false))
	}
	return n
}

// putActions adds the mapping's actions other than deletes.
func putActions(n *yaml.Node, m *spec.Mapping) {
	if m.Rebuild != nil {
		put(n, "rebuild", rebuildNode(m.Rebuild))
	}
	if h := m.Hash; h != nil {
		put(n, "hash", partNodes(part{"key", h.Key}, part{"field", h.Field}, part{"value", h.Value}))
	}
	if s := m.Set; s != nil {
		put(n, "set", partNodes(part{"key", s.Key}, part{"member", s.Member}))
	}
	if z := m.ZSet; z != nil {
		put(n, "zset", partNodes(part{"key", z.Key}, part{"member", z.Member}, part{"score", z.Score}))
	}
	if e := m.Expire; e != nil {
		in := partNodes()
		put(in, "keys", textNodes(e.Keys, 0))
		put(in, "in", scalarNode(timeToLive().format(e.In), true))
		put(n, "expire", in)
	}
	putText(n, "incr", m.Incr)
	if p := m.Publish; p != nil {
		put(n, "publish", partNodes(part{"channel", p.Channel}, part{"message", p.Message}))
	}
	if s := m.Stream; s != nil {
		in := partNodes(part{"key", s.Key})
		put(in, "maxlen", scalarNode(maxLen().format(s.MaxLen), true))
		put(n, "stream", in)
	}
}

// part is a key of an action that has a text.
type part struct {
	name string
	text spec.Text
}

// partNodes returns the texts of an action, those that there are.
func partNodes(parts ...part) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, p := range parts {
		putText(n, p.name, p.text)
	}
	return n
}

// rebuildNode returns the action with the keys that count in it.
func rebuildNode(r *spec.Rebuild) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if r.FromRow {
		put(n, "from", scalarNode("row", false))
	} else {
		putText(n, "query", r.Query)
		putText(n, "server", r.Server)
		put(n, "timeout", scalarNode(rebuildTimeout().format(r.Timeout), true))
		put(n, "rows", scalarNode(string(r.Rows), false))
	}
	put(n, "as", scalarNode(r.As.String(), false))
	putText(n, "value", r.Value)
	if len(r.Columns) > 0 {
		put(n, "columns", textNodes(r.Columns, yaml.FlowStyle))
	}
	if r.As == event.FormJSON {
		put(n, "decimals", scalarNode(string(r.Decimals), false))
	}
	if r.ExpireAt > 0 {
		put(n, "expire_at", scalarNode(timeToLive().format(r.ExpireAt), true))
	}
	put(n, "ttl", scalarNode(orWord(timeToLive(), "none").format(r.TTL), true))
	if r.TTL > 0 {
		put(n, "jitter", scalarNode(percentages().format(r.Jitter), true))
	}
	if e := r.Missing; e != nil {
		missing := &yaml.Node{Kind: yaml.MappingNode}
		put(missing, "cache", scalarNode(e.Cache.Value, false))
		put(missing, "ttl", scalarNode(timeToLive().format(e.TTL), true))
		put(n, "missing", missing)
	}
	return n
}

// putText adds a text, if there is one.
func putText(section *yaml.Node, name string, t spec.Text) {
	if t.Value != "" {
		put(section, name, scalarNode(t.Value, false))
	}
}

func textNodes(texts []spec.Text, style yaml.Style) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: style}
	for _, t := range texts {
		n.Content = append(n.Content, scalarNode(t.Value, false))
	}
	return n
}
