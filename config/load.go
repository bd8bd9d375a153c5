package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/credential"
)

// Load reads the file and the environment. The error is always [spec.Problems]; there is no Config then.
func Load(file string, checks ...Check) (*Config, error) {
	data, err := readFile(file)
	if err != nil {
		do := "make it readable for the user that freshet runs as"
		if errors.Is(err, fs.ErrNotExist) {
			do = "write it, or name another one with --config"
		}
		what := "the file cannot be read: " + credential.Cause(err).Error()
		return nil, spec.Problems{{Pos: spec.Pos{File: file}, What: what, Do: do}}
	}
	return Parse(file, data, checks...)
}

// readFile returns the content of a file, or a little more than a configuration may have of it.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse is [Load] for a file whose content is already here.
func Parse(file string, data []byte, checks ...Check) (*Config, error) {
	l := &loader{
		keys: keys(), config: &Config{File: file, origins: map[string]spec.Pos{}},
		itemsAt: map[string][]spec.Pos{}, bad: map[string]bool{},
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	top := parse(file, data, &l.Collector)
	if top == nil {
		return nil, l.Err()
	}
	l.doc = newDocument(file, data, top, l.keys, &l.Collector)
	l.values()
	checkVariables(l.keys, os.Environ(), &l.Collector)
	l.secretSources()
	l.mappings()
	l.validate()
	for _, check := range checks {
		for _, p := range check(l.config) {
			l.Add(p.Pos, p.What, p.Do)
		}
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.config, nil
}

// loader is one load under way.
type loader struct {
	spec.Collector
	keys   []key
	doc    *document
	config *Config
	// itemsAt are where the items of lists from the file stand, by path.
	itemsAt map[string][]spec.Pos
	// bad are the keys that were reported already, so that nothing else is said about them.
	bad map[string]bool
}

// place is where a key's value comes from, or where it would stand in the file.
func (l *loader) place(path string) spec.Pos {
	if p, ok := l.config.origins[path]; ok {
		return p
	}
	return l.doc.place(path)
}

// item is where an item of a list stands.
func (l *loader) item(path string, i int) spec.Pos {
	if at := l.itemsAt[path]; i < len(at) {
		return at[i]
	}
	return l.place(path)
}

// given reports whether a key has a value of its own, other than the empty one.
func (l *loader) given(path string) bool {
	_, ok := l.config.origins[path]
	return ok && strings.Join(l.text(path), "") != ""
}

// text returns a key's value as text; secrets are masked.
func (l *loader) text(path string) []string {
	i := slices.IndexFunc(l.keys, func(k key) bool { return k.path == path })
	return l.keys[i].get(l.config)
}

// fault reports a key's fault, and that nothing else need be said about it.
func (l *loader) fault(at spec.Pos, path string, f *fault) {
	l.at(at, path, f)
	l.bad[path] = true
}

// values reads every key outside of the mappings: first how invalidations travel, since that decides what is needed.
func (l *loader) values() {
	isKind := func(k key) bool { return k.path == "eventlog.kind" }
	l.read(slices.DeleteFunc(slices.Clone(l.keys), func(k key) bool { return !isKind(k) }))
	l.read(slices.DeleteFunc(slices.Clone(l.keys), isKind))
}

func ofKafka(k key) bool { return strings.HasPrefix(k.path, "eventlog.kafka.") }

// needs reports whether a part of the configuration (source or redis) must be there. With Kafka, readers and
// invalidators are processes of their own: a file without source and mappings is an invalidator's, one without redis
// a reader's.
func (l *loader) needs(part string) bool {
	return l.config.EventLog.Kind != EventLogKafka || l.has(part) || part == "source" && l.has(mappingsKey) ||
		!l.has("source") && !l.has(mappingsKey) && !l.has("redis")
}

// has reports whether file or environment say anything about a part of the configuration.
func (l *loader) has(part string) bool {
	if _, ok := l.doc.sections[part]; ok || l.doc.meant[part] || l.doc.given[part] != nil {
		return true
	}
	return slices.ContainsFunc(l.keys, func(k key) bool {
		_, ok := variable(k)
		return ok && strings.HasPrefix(k.path, part+".")
	})
}

// read reads some keys from file and environment.
func (l *loader) read(keys []key) {
	texts := map[string][]string{}
	for _, k := range keys {
		if n, ok := l.doc.given[k.path]; ok {
			if ts, ok := l.texts(k, n); ok {
				texts[k.path] = ts
			}
		}
	}
	all := effective(keys, texts)
	for _, k := range keys {
		k.set(l.config, k.def)
		if _, ok := texts[k.path]; ok {
			l.config.origins[k.path] = l.doc.pos(l.doc.given[k.path])
		}
		if at, ok := variable(k); ok {
			l.config.origins[k.path] = at
			delete(l.itemsAt, k.path)
		}
		for i, f := range k.set(l.config, all[k.path]) {
			if f != nil {
				l.fault(l.item(k.path, i), k.path, f)
			}
		}
		if k.required && l.needs(section(k.path)) && !l.bad[k.path] && !l.meant(k.path) &&
			strings.Join(k.get(l.config), "") == "" {
			l.missing(k)
		}
	}
}

// section is the part of the configuration that a key is in.
func section(path string) string {
	part, _, _ := strings.Cut(path, ".")
	return part
}

// meant reports whether an unknown key was probably meant to be this one, or its section.
func (l *loader) meant(path string) bool {
	section, _ := split(path)
	_, given := l.doc.sections[section]
	return l.doc.meant[path] || l.doc.meant[section] && !given
}

// texts returns the texts of a key in the file, after reporting what has none.
func (l *loader) texts(k key, n *yaml.Node) ([]string, bool) {
	if !k.list {
		text, f := scalar(n)
		if f != nil {
			l.fault(l.doc.pos(n), k.path, f)
			return nil, false
		}
		return []string{text}, true
	}
	nodes, f := l.doc.items(n)
	if f != nil {
		l.fault(l.doc.pos(n), k.path, f)
		return nil, false
	}
	texts := []string{}
	for _, n := range nodes {
		text, f := scalar(n)
		if f != nil {
			l.fault(l.doc.pos(n), k.path, f)
			continue
		}
		texts = append(texts, text)
		l.itemsAt[k.path] = append(l.itemsAt[k.path], l.doc.pos(n))
	}
	return texts, true
}

// missing reports a required key without a value.
func (l *loader) missing(k key) {
	what := k.path + " is missing"
	if _, ok := l.config.origins[k.path]; ok {
		what = k.path + " is empty"
	}
	section, name, _ := strings.Cut(k.path, ".")
	l.bad[k.path] = true
	l.Add(l.place(k.path), what, fmt.Sprintf("write %s below %s, or set %s", name, section, k.env()))
}
