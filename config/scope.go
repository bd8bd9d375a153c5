package config

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// scope reads how all keys of a mapping are found: a word, or what the free text in them may be.
func (l *loader) scope(m *spec.Mapping, f pair) {
	const do = `write keys, rows, or what a column's text in keys may be: {sku: "[A-Z0-9-]+"}`
	if f.value.Kind != yaml.MappingNode {
		switch t := l.phrase(f, do); {
		case t.Value == "rows":
			m.ScopeRows = true
		case t.Value != "" && t.Value != "keys":
			l.at(t.Pos, f.name, &fault{spec.Quote(t.Value) + " is unknown", do})
		}
		return
	}
	columns := l.doc.fields(f.value)
	if len(columns) == 0 {
		l.at(l.doc.pos(f.value), f.name, &fault{"is empty", do})
	}
	for _, c := range columns {
		if strings.TrimSpace(c.name) == "" {
			l.at(c.at, f.name, &fault{"a name is empty", "write a column's name"})
			continue
		}
		path := f.name + "." + c.name
		t := l.phrase(pair{path, c.at, c.value}, "write a regular expression, or remove the column")
		if t.Value == "" {
			continue
		}
		if at, wrong := expression(t.Value); wrong != nil {
			l.at(t.At(at), path, wrong)
			continue
		}
		m.Scope = append(m.Scope, spec.FreeText{Column: spec.Text{Value: c.name, Pos: c.at}, Holds: t})
	}
}

// expression checks a regular expression for whole texts, and returns what is wrong with it, and at which byte. It may
// match the empty text: a column can hold it, and its key is the row's like any other.
func expression(text string) (int, *fault) {
	_, err := regexp.Compile(text)
	var bad *syntax.Error
	if errors.As(err, &bad) {
		return max(0, strings.Index(text, bad.Expr)), &fault{
			spec.Quote(text) + " is no regular expression: " + string(bad.Code), "write one such as [A-Z0-9-]+",
		}
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil && anchored(parsed) {
		return 0, &fault{spec.Quote(text) + " has an anchor", `leave out ^, $ and \b: the whole text must match anyway`}
	}
	return 0, nil
}

// anchored reports whether the expression asks for more than characters.
func anchored(e *syntax.Regexp) bool {
	switch e.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary,
		syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(e.Sub, anchored)
}
