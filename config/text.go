package config

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// lines is the file, for finding what YAML's nodes do not say.
type lines []string

func newLines(data []byte) lines {
	// What YAML counts as the end of a line.
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.Split(ends.Replace(string(data)), "\n")
}

// cursor walks over the characters of the file. Column counts characters from 1; the end of a line is a '\n', the end
// of the file a 0.
type cursor struct {
	lines        lines
	line, column int
	rest         string
}

func (l lines) at(line, column int) cursor {
	c := cursor{lines: l, line: line, column: 1}
	if line >= 1 && line <= len(l) {
		c.rest = l[line-1]
	}
	for c.column < column && c.rest != "" {
		c.next()
	}
	return c
}

func (c *cursor) peek() rune {
	if c.rest != "" {
		r, _ := utf8.DecodeRuneInString(c.rest)
		return r
	}
	if c.line >= len(c.lines) {
		return 0
	}
	return '\n'
}

func (c *cursor) next() {
	if c.rest != "" {
		_, n := utf8.DecodeRuneInString(c.rest)
		c.rest = c.rest[n:]
		c.column++
		return
	}
	c.line++
	c.column = 1
	if c.line <= len(c.lines) {
		c.rest = c.lines[c.line-1]
	}
}

// blank skips spaces and line breaks.
func (c *cursor) blank() {
	for strings.ContainsRune(" \t\n", c.peek()) {
		c.next()
	}
}

// text returns a scalar with its places. Where source and value cannot be brought together, the last place that is
// certain stands for the rest.
func (l lines) text(file string, n *yaml.Node) spec.Text {
	c := l.at(n.Line, n.Column)
	for r := c.peek(); r == '&' || r == '!'; r = c.peek() {
		for !strings.ContainsRune(" \t\n\x00", c.peek()) {
			c.next()
		}
		c.blank()
	}
	block := n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
	double := n.Style&yaml.DoubleQuotedStyle != 0
	single := n.Style&yaml.SingleQuotedStyle != 0
	switch {
	case block:
		// The content begins on the next line, after its indentation.
		c = l.at(c.line+1, 1)
	case double || single:
		c.next()
	}
	t := spec.Text{Value: n.Value, Pos: spec.At(file, c.line, c.column)}
	line, column := c.line, c.column
	for i, r := range n.Value {
		if !c.align(r, double) {
			break
		}
		if i == 0 {
			t.Pos.Line, t.Pos.Column = c.line, c.column
		} else if c.line != line || c.column != column {
			t.Runs = append(t.Runs, spec.Run{Offset: i, Line: c.line, Column: c.column})
		}
		line = c.line
		column = c.column + 1
		c.take(double, single)
	}
	return t
}

// align moves the cursor to where the character r of the value stands, and reports whether it stands there.
func (c *cursor) align(r rune, double bool) bool {
	for {
		switch p := c.peek(); {
		case double && p == '\\':
			after := *c
			after.next()
			if after.peek() != '\n' {
				return true
			}
			// An escaped line break is no character of the value.
			c.next()
			c.blank()
		case p == r:
			return true
		case (r == ' ' || r == '\n') && (p == '\n' || p == 0):
			// A folded line break, or the last one of a block that the file does not end with.
			return true
		case p == '\n' || p == ' ' || p == '\t':
			// Indentation, or an empty line.
			c.next()
		default:
			return false
		}
	}
}

// take moves the cursor past one character of the value.
func (c *cursor) take(double, single bool) {
	p := c.peek()
	c.next()
	switch {
	case double && p == '\\':
		digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c.peek()]
		for range 1 + digits {
			c.next()
		}
	case single && p == '\'':
		c.next()
	}
}
