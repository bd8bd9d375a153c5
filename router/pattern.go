package router

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// pattern matches tables by name. Names compare byte by byte, as the servers do with lower_case_table_names=0.
type pattern struct{ schema, table glob }

// folded returns the pattern for names in lower case, for servers that compare names without letter case.
func (p *pattern) folded() pattern { return pattern{p.schema.folded(), p.table.folded()} }

func (g glob) folded() glob {
	out := slices.Clone(g)
	for i := range out {
		out[i].lit = strings.ToLower(out[i].lit)
	}
	return out
}

// glob matches one name.
type glob []piece

// piece is a literal, a number of a span, or any run of characters.
type piece struct {
	kind pieceKind
	lit  string
	span Span
}

type pieceKind uint8

const (
	pieceLiteral pieceKind = iota
	pieceAny
	pieceSpan
)

// maxPattern bounds a pattern and the names that it is matched with: MySQL's names have at most 64 characters.
const maxPattern = 512

// parsePattern reads schema.table. Backticks quote, as in SQL, what would mean something else.
func parsePattern(text string) (pattern, []fault) {
	const form = "write schema.table, with * or {00..63} where tables are many"
	switch {
	case strings.TrimSpace(text) == "":
		return pattern{}, []fault{{0, "it is empty", form}}
	case len(text) > maxPattern:
		return pattern{}, []fault{{maxPattern, "it is too long to be a table's name", form}}
	}
	var names []glob
	var starts []int
	var faults []fault
	for at := 0; ; at++ {
		starts = append(starts, at)
		g, end, fs := parseGlob(text, at)
		names, faults = append(names, g), append(faults, fs...)
		if at = end; at == len(text) {
			break
		}
	}
	if len(faults) > 0 {
		return pattern{}, faults
	}
	for i, g := range names {
		if len(g) == 0 {
			return pattern{}, []fault{{starts[i], "a name is missing next to the dot", form}}
		}
	}
	switch {
	case len(names) == 1:
		return pattern{}, []fault{{0, "it does not say the schema", "write schema." + text}}
	case len(names) > 2:
		return pattern{}, []fault{{
			starts[2] - 1, "it has more than one dot",
			form + "; a dot within a name is written in backticks: schema.`a.b`",
		}}
	}
	return pattern{names[0], names[1]}, nil
}

// parseGlob reads a name that begins at the offset at and returns where it ends: at a dot, or the end of the text.
func parseGlob(text string, at int) (glob, int, []fault) {
	var g glob
	var faults []fault
	for at < len(text) && text[at] != '.' {
		switch c := text[at]; {
		case c == '*':
			g = append(g, piece{kind: pieceAny})
			at++
		case c == '{':
			end := strings.IndexByte(text[at:], '}')
			if end < 0 {
				return g, len(text), append(faults, fault{at, "the { has no }", "write {00..63}"})
			}
			s, ok, f := parseSpan(text[at+1 : at+end])
			switch {
			case f != nil:
				faults = append(faults, fault{at, f.what, f.do})
			case !ok:
				faults = append(faults, fault{at, spec.Quote(text[at:at+end+1]) + " is no run of numbers", "write {00..63}"})
			}
			g = append(g, piece{kind: pieceSpan, span: s})
			at += end + 1
		case c == '`':
			name, end, f := unquote(text, at)
			if f != nil {
				return g, len(text), append(faults, *f)
			}
			g = g.literal(name)
			at = end
		default:
			if f := misplaced(c, at); f != nil {
				faults = append(faults, *f)
			}
			g = g.literal(text[at : at+1])
			at++
		}
	}
	return g, at, faults
}

func (g glob) literal(s string) glob {
	if n := len(g); n > 0 && g[n-1].kind == pieceLiteral {
		g[n-1].lit += s
		return g
	}
	return append(g, piece{lit: s})
}

// misplaced names what people write in a pattern that means nothing here.
func misplaced(c byte, at int) *fault {
	switch c {
	case '%', '?':
		return &fault{
			at, "'" + string(c) + "' is no wildcard here",
			"write * for any run of characters, or the name in backticks",
		}
	case '}':
		return &fault{at, "a } without a {", "write {00..63}"}
	case '[', ']', '(', ')', '|', '^', '$', '+', '\\', ' ', '\t', '\n', '\r', ',', '"', '\'':
		if c == '$' {
			return nil
		}
		return &fault{
			at, "'" + strings.Trim(spec.Quote(string(c)), `"`) + "' has no meaning here",
			"write the name in backticks if it holds one",
		}
	}
	return nil
}

// unquote reads a name in backticks, in which “ stands for one, and returns where it ends.
func unquote(text string, at int) (string, int, *fault) {
	var name strings.Builder
	for i := at + 1; i < len(text); i++ {
		if text[i] != '`' {
			name.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '`' {
			name.WriteByte('`')
			i++
			continue
		}
		if name.Len() == 0 {
			return "", i + 1, &fault{at, "there is no name between the backticks", "write a name"}
		}
		return name.String(), i + 1, nil
	}
	return "", len(text), &fault{at, "the backtick is never closed", "write a second one"}
}

// match reports whether the pattern matches a table; without one, whether it may match one of the schema.
func (p *pattern) match(schema, table string) bool {
	return p.schema.match(schema) && (table == "" || p.table.match(table))
}

// exact returns the one table that the pattern matches, if it has no wildcard.
func (p *pattern) exact() (tableName, bool) {
	schema, one := p.schema.exact()
	table, only := p.table.exact()
	return tableName{schema, table}, one && only
}

// exact returns the one name that is matched; false when there may be several.
func (g glob) exact() (string, bool) {
	if len(g) == 1 && g[0].kind == pieceLiteral {
		return g[0].lit, true
	}
	return "", false
}

// match runs the pieces over the set of places that the ones before may have ended at, so that it takes at most
// pieces × length steps, whatever the pattern.
func (g glob) match(name string) bool {
	if len(g) == 1 && g[0].kind == pieceLiteral {
		return g[0].lit == name
	}
	if len(name) > maxPattern {
		return false
	}
	var here, next [maxPattern + 1]bool
	here[0] = true
	for _, p := range g {
		clear(next[:])
		for i := range len(name) + 1 {
			if !here[i] {
				continue
			}
			switch p.kind {
			case pieceLiteral:
				if strings.HasPrefix(name[i:], p.lit) {
					next[i+len(p.lit)] = true
				}
			case pieceAny:
				for j := i; j <= len(name); j++ {
					next[j] = true
				}
			case pieceSpan:
				for j := i + 1; j <= min(len(name), i+spanDigits); j++ {
					next[j] = next[j] || p.span.holds(name[i:j])
				}
			}
			if p.kind == pieceAny {
				break
			}
		}
		here = next
	}
	return here[len(name)]
}

// String returns the pattern as it is written.
func (p *pattern) String() string { return p.schema.String() + "." + p.table.String() }

// String returns the glob as it is written, its literals in backticks where they must be.
func (g glob) String() string {
	var b strings.Builder
	for _, p := range g {
		switch p.kind {
		case pieceAny:
			b.WriteByte('*')
		case pieceSpan:
			b.WriteString(p.span.String())
		default:
			b.WriteString(backtick(p.lit, func(c byte) bool {
				return strings.IndexByte(".*{`", c) < 0 && misplaced(c, 0) == nil
			}))
		}
	}
	return b.String()
}

// backtick returns the name, in backticks if it holds anything but plain bytes.
func backtick(name string, plain func(c byte) bool) string {
	for i := 0; i < len(name); i++ {
		if !plain(name[i]) {
			return "`" + strings.ReplaceAll(name, "`", "``") + "`"
		}
	}
	return name
}

// example returns a name that the glob matches.
func (g glob) example() string {
	var b []byte
	for _, p := range g {
		switch p.kind {
		case pieceLiteral:
			b = append(b, p.lit...)
		case pieceSpan:
			b = p.span.Append(b, 0)
		}
	}
	return string(b)
}
