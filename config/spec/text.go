package spec

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// Pos is a place in the configuration. Line and Column count from 1, Column in characters; 0 means that the place is
// the whole file. For a value from the environment File is "$" and the name of the variable.
type Pos struct {
	File         string
	Line, Column int
}

// At returns a place in a file.
func At(file string, line, column int) Pos { return Pos{file, line, column} }

// String returns file:line:column, without what is not known.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Compare orders places: those of files before those of the environment, then by name, line and column.
func (p Pos) Compare(o Pos) int {
	return cmp.Or(
		cmp.Compare(p.environment(), o.environment()),
		strings.Compare(p.File, o.File), cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column),
	)
}

// environment is 1 for a variable, 0 for the file.
func (p Pos) environment() int {
	if strings.HasPrefix(p.File, "$") {
		return 1
	}
	return 0
}

// Text is a text of the file that has a language of its own (a table pattern, a template, a predicate), with its
// place, so that a fault within it can be shown where it stands.
type Text struct {
	// Value is the text itself, quotes and escapes undone.
	Value string
	// Pos is where its first character stands, after an opening quote.
	Pos Pos
	// Runs are where the text and the file do not go side by side: after escapes and at line breaks. In the order of
	// their offsets; empty: the text stands in one line as it is.
	Runs []Run
}

// Run says that from the byte offset of the value on, the file goes on at line and column.
type Run struct{ Offset, Line, Column int }

// String returns the value.
func (t Text) String() string { return t.Value }

// At returns where the character at a byte offset of Value stands in the file; an offset after the end is where the
// text ends.
func (t Text) At(offset int) Pos {
	offset = min(max(offset, 0), len(t.Value))
	p, from := t.Pos, 0
	if i := sort.Search(len(t.Runs), func(i int) bool { return t.Runs[i].Offset > offset }); i > 0 {
		r := t.Runs[i-1]
		p.Line, p.Column, from = r.Line, r.Column, r.Offset
	}
	if p.Column > 0 {
		p.Column += utf8.RuneCountInString(t.Value[from:offset])
	}
	return p
}
