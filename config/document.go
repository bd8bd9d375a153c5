package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// mappingsKey is the one key of the file that is not in the table of keys: it comes from the file alone.
const mappingsKey = "mappings"

// maxNodes bounds how much of a document is looked at, since aliases can make a small file large without end.
const maxNodes = 1 << 20

// maxMerge bounds how deep merge keys lead from one to the next; they can lead in a circle.
const maxMerge = 16

// document is what the file says, key by key.
type document struct {
	*spec.Collector
	file  string
	lines lines
	// left is how many nodes may still be looked at.
	left int
	// given are the nodes of the keys in the file, by path.
	given map[string]*yaml.Node
	// sections are where the sections of the file begin, by path.
	sections map[string]spec.Pos
	// meant are the paths of keys that an unknown one was probably meant to be: they are not missed as well.
	meant map[string]bool
}

// tree is the table of keys, section by section.
type tree struct {
	under map[string]*tree
	names []string
	paths []string
}

func newTree(keys []key) *tree {
	root := &tree{}
	for _, k := range keys {
		root.add(k.path, k.path)
	}
	root.add(mappingsKey, mappingsKey)
	return root
}

func (t *tree) add(rest, path string) {
	name, rest, deeper := strings.Cut(rest, ".")
	if t.under == nil {
		t.under = map[string]*tree{}
	}
	next := t.under[name]
	if next == nil {
		next = &tree{}
		t.under[name] = next
		t.names = append(t.names, name)
	}
	t.paths = append(t.paths, path)
	if deeper {
		next.add(rest, path)
	}
}

// newDocument goes through the file and reports unknown and duplicate keys.
func newDocument(file string, data []byte, top *yaml.Node, keys []key, problems *spec.Collector) *document {
	d := &document{
		Collector: problems, file: file, lines: newLines(data), left: maxNodes,
		given: map[string]*yaml.Node{}, sections: map[string]spec.Pos{}, meant: map[string]bool{},
	}
	root := newTree(keys)
	d.section("", top, root, root)
	return d
}

// pos is where a node stands.
func (d *document) pos(n *yaml.Node) spec.Pos { return spec.At(d.file, n.Line, n.Column) }

// place is where a key stands, or its section, or the top of the file.
func (d *document) place(path string) spec.Pos {
	if n, ok := d.given[path]; ok {
		return d.pos(n)
	}
	for {
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return spec.At(d.file, 1, 1)
		}
		path = path[:i]
		if p, ok := d.sections[path]; ok {
			return p
		}
	}
}

// section takes in the keys below a path.
func (d *document) section(path string, n *yaml.Node, t, root *tree) {
	for _, f := range d.fields(n) {
		full := strings.TrimPrefix(path+"."+f.name, ".")
		next := t.under[f.name]
		switch {
		case next == nil:
			d.unknown(f, path, t, root)
		case next.under == nil:
			d.given[full] = f.value
		case f.value.Kind == yaml.MappingNode:
			d.sections[full] = f.at
			d.section(full, f.value, next, root)
		case f.value.Kind == yaml.ScalarNode && f.value.Tag == "!!null":
			d.sections[full] = f.at // all its keys are commented out
		default:
			d.Add(d.pos(f.value), full+" is a section, not a value", "write its keys below it: "+list(next.names, "and"))
		}
	}
}

// unknown reports a key that there is not, with the one that was meant.
func (d *document) unknown(f pair, path string, t, root *tree) {
	what := fmt.Sprintf("unknown key %s", spec.Quote(f.name))
	if path != "" {
		what += " in " + path
	}
	near := spec.Nearest(f.name, t.names)
	d.meant[strings.TrimPrefix(path+"."+near, ".")] = true
	var elsewhere []string
	for _, p := range root.paths {
		if _, name := split(p); name == f.name {
			elsewhere = append(elsewhere, p)
		}
	}
	if len(elsewhere) == 1 && near == "" {
		section, name := split(elsewhere[0])
		where := "in " + section
		if section == "" {
			where = "at the top level"
		}
		d.Add(f.at, what, name+" belongs "+where)
		return
	}
	d.Add(f.at, what, oneOfKeys(f.name, t.names))
}

// pair is a key of a YAML mapping with its value, aliases resolved.
type pair struct {
	name  string
	at    spec.Pos
	value *yaml.Node
}

// fields returns the keys of a YAML mapping in order, then those that come in by merge keys. Duplicates are
// reported, and the first one counts.
func (d *document) fields(n *yaml.Node) []pair {
	seen := map[string]bool{}
	fs, merged := d.own(n, seen)
	return append(fs, d.merge(merged, seen, 0)...)
}

// own returns the keys of a mapping that are not in seen yet, and what its merge keys name.
func (d *document) own(n *yaml.Node, seen map[string]bool) (fs []pair, merged []*yaml.Node) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content) && d.spend(1); i += 2 {
		k, v := resolve(n.Content[i]), resolve(n.Content[i+1])
		at := d.pos(n.Content[i])
		if k.Kind != yaml.ScalarNode {
			d.Add(at, "a key must be a word", "write key: value, and put a template in quotes")
			continue
		}
		if line := lines[k.Value]; line != 0 {
			d.Add(at, "duplicate key "+spec.Quote(k.Value), fmt.Sprintf("it is already on line %d; remove one", line))
			continue
		}
		lines[k.Value] = k.Line
		if k.Tag == "!!merge" {
			merged = append(merged, v)
			continue
		}
		if !seen[k.Value] {
			fs = append(fs, pair{k.Value, at, v})
		}
	}
	for name := range lines {
		seen[name] = true
	}
	return fs, merged
}

// merge returns the keys of the mappings that merge keys name. An earlier one goes before a later one.
func (d *document) merge(from []*yaml.Node, seen map[string]bool, depth int) []pair {
	var all []pair
	for _, n := range from {
		n = resolve(n)
		switch {
		case !d.spend(1):
			return all
		case depth == maxMerge:
			d.Add(d.pos(n), "merge keys (<<) are nested too deeply", "write the keys out")
		case n.Kind == yaml.SequenceNode:
			all = append(all, d.merge(n.Content, seen, depth+1)...)
		case n.Kind == yaml.MappingNode:
			fs, deeper := d.own(n, seen)
			all = append(append(all, fs...), d.merge(deeper, seen, depth+1)...)
		default:
			d.Add(d.pos(n), "a merge key (<<) needs keys, and this has none", "name an anchor of a section or a mapping")
		}
	}
	return all
}

// spend counts nodes that are looked at, and reports once when there are too many.
func (d *document) spend(n int) bool {
	if d.left < 0 {
		return false
	}
	if d.left -= n; d.left < 0 {
		d.Add(spec.Pos{File: d.file}, "the file's aliases and merge keys make it too large to read",
			"write the keys out, or match shards with one pattern")
	}
	return d.left >= 0
}

// items returns the items of a list, or a fault.
func (d *document) items(n *yaml.Node) ([]*yaml.Node, *fault) {
	switch {
	case n.Kind == yaml.SequenceNode:
		if !d.spend(len(n.Content)) {
			return nil, nil
		}
		resolved := slices.Clone(n.Content)
		for i := range resolved {
			resolved[i] = resolve(resolved[i])
		}
		return resolved, nil
	case n.Kind == yaml.MappingNode:
		return nil, &fault{"a list is needed here, not keys", "write its items in brackets or after hyphens"}
	case n.Tag == "!!null":
		return nil, &fault{"has no value", "write its items in brackets, or remove the key"}
	}
	return nil, &fault{"a list is needed here, not one value", "write it in brackets"}
}

// scalar returns the text of a value, or a fault.
func scalar(n *yaml.Node) (string, *fault) {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "", &fault{"one value is needed here, not a list", "remove the brackets or hyphens"}
	case n.Kind == yaml.MappingNode:
		return "", &fault{"one value is needed here, not keys", "put a value that holds { } or a colon in quotes"}
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str":
		// The tag may be a password that begins with an exclamation mark: it is not shown.
		return "", &fault{"the value begins with !, which makes it a YAML tag", "put it in quotes"}
	case n.Tag == "!!null" && n.Anchor != "":
		return "", &fault{"the value begins with &, which makes it a YAML anchor", "put it in quotes"}
	case n.Tag == "!!null":
		return "", &fault{"has no value", `write one ("" is the empty text), or remove the key`}
	}
	return n.Value, nil
}

// resolve returns what an alias stands for. YAML has no alias of an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
