package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marshal returns the effective configuration as YAML: every key that counts, in the order of the documentation,
// secrets masked, each value with a comment that says where it comes from. It loads again, masks aside.
func (c *Config) Marshal() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The effective configuration of %s.\n", c.File)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c.node()); err != nil {
		return nil, fmt.Errorf("config: print %s: %w", c.File, err)
	}
	return b.Bytes(), e.Close()
}

// MarshalYAML returns what Marshal prints.
func (c *Config) MarshalYAML() (any, error) { return c.node(), nil }

// String returns what Marshal does.
func (c *Config) String() string {
	text, err := c.Marshal()
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// LogValue returns the file, how many mappings it has, and their hash.
func (c *Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("file", c.File), slog.Int("mappings", len(c.Mappings)), slog.String("mappings_hash", c.MappingsHash()),
	)
}

func (c *Config) node() *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": top}
	all := keys()
	for _, k := range all {
		if !c.shown(k, all) {
			continue
		}
		var value *yaml.Node
		if k.list {
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, text := range k.get(c) {
				value.Content = append(value.Content, scalarNode(text, k.bare))
			}
		} else {
			value = scalarNode(k.get(c)[0], k.bare)
		}
		value.LineComment = c.origin(k.path)
		section, name := split(k.path)
		put(parent(sections, section), name, value)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range c.Mappings {
		list.Content = append(list.Content, mappingNode(&c.Mappings[i]))
	}
	if c.HasSource() {
		put(top, mappingsKey, list)
	}
	return top
}

// shown reports whether a key counts: not those of Kafka without it, of a source or Redis that is not there, nor a
// secret that comes from a file or a command.
func (c *Config) shown(k key, all []key) bool {
	switch part := section(k.path); {
	case ofKafka(k) && c.EventLog.Kind != EventLogKafka, part == "source" && !c.HasSource(), part == "redis" &&
		!c.HasRedis():
		return false
	}
	return k.secret == nil || !slices.ContainsFunc(all, func(from key) bool {
		return (from.path == k.path+"_file" || from.path == k.path+"_command") && from.get(c)[0] != ""
	})
}

// origin says where a key's value comes from.
func (c *Config) origin(path string) string {
	p, ok := c.origins[path]
	switch {
	case !ok:
		return "default"
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("line %d", p.Line)
}

// split returns the section of a path and the name in it.
func split(path string) (section, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// parent returns the node of a section, made when it is not there yet.
func parent(sections map[string]*yaml.Node, path string) *yaml.Node {
	if n, ok := sections[path]; ok {
		return n
	}
	above, name := split(path)
	n := &yaml.Node{Kind: yaml.MappingNode}
	sections[path] = n
	put(parent(sections, above), name, n)
	return n
}

func put(section *yaml.Node, name string, value *yaml.Node) {
	section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
}

// scalarNode returns a text as YAML, in quotes where other YAML readers would take it for something else; a bare one
// is a number or the like and has none.
func scalarNode(text string, bare bool) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if !bare {
		n.Tag = "!!str"
	}
	return n
}
