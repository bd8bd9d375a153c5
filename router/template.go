package router

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
)

// maxCopies bounds how many keys one template makes from one row image.
const maxCopies = 1024

// Template is a parsed template.
type Template struct {
	Text  spec.Text
	role  role
	Parts []Node
	// copies is the product of all its spans; 1 without any.
	copies int
}

// Node is one part of a template.
type Node struct {
	Kind NodeKind
	// Lit is the text of a literal, the name of a column.
	Lit     string
	Span    Span
	Filters []Filter
	// At is the byte offset in the text.
	At int
}

// NodeKind says what a [Node] stands for.
type NodeKind uint8

const (
	NodeLiteral NodeKind = iota
	NodeColumn
	NodeSchema
	NodeTable
	NodeCopies
)

// String returns the template as it is written.
func (t *Template) String() string {
	var b strings.Builder
	for _, n := range t.Parts {
		b.WriteString(n.String())
	}
	return b.String()
}

// String returns the part as it is written, in the one way of all that mean it.
func (n *Node) String() string {
	var b strings.Builder
	switch n.Kind {
	case NodeLiteral:
		return strings.NewReplacer("{", "{{", "}", "}}").Replace(n.Lit)
	case NodeCopies:
		return n.Span.String()
	case NodeSchema, NodeTable:
		b.WriteString("{" + special(n.Kind))
	default:
		b.WriteString("{" + columnName(n.Lit))
	}
	for _, f := range n.Filters {
		b.WriteString("|" + f.String())
	}
	b.WriteByte('}')
	return b.String()
}

func special(k NodeKind) string {
	if k == NodeSchema {
		return "schema"
	}
	return "table"
}

// columnName returns the column's name as a template writes it.
func columnName(name string) string {
	if name == "schema" || name == "table" {
		return "`" + name + "`"
	}
	return backtick(name, func(c byte) bool { return nameByte(c) })
}

// nameByte reports whether a name may hold the byte without backticks: the letters, digits, _ and $ of SQL's plain
// identifiers, and all beyond ASCII.
func nameByte(c byte) bool {
	return c >= utf8.RuneSelf || c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' &&
		c <= 'Z'
}

// parser reads one template. It goes on after a fault, so that all of them are told at once.
type parser struct {
	text   string
	at     int
	lit    strings.Builder
	litAt  int
	parts  []Node
	faults []fault
}

// parseTemplate reads a key template.
func parseTemplate(t spec.Text) (*Template, []fault) {
	p := &parser{text: t.Value}
	switch {
	case t.Value == "":
		return nil, []fault{{0, "it is empty", "write a key, such as product:{id}"}}
	case len(t.Value) > MaxKey:
		return nil, []fault{{MaxKey, "it is longer than a key may be", "write at most " + strconv.Itoa(MaxKey) + " bytes"}}
	}
	for p.at < len(p.text) {
		p.next()
	}
	p.flush()
	out := &Template{Text: t, Parts: p.parts, copies: 1}
	for _, n := range p.parts {
		if n.Kind != NodeCopies {
			continue
		}
		if out.copies *= n.Span.Count(); out.copies > maxCopies {
			p.fault(n.At, "it makes more than "+strconv.Itoa(maxCopies)+" copies", "write smaller runs of numbers")
			break
		}
	}
	return out, p.faults
}

func (p *parser) fault(at int, what, do string) { p.faults = append(p.faults, fault{at, what, do}) }

// next reads one literal character, one doubled brace or one placeholder, from left to right.
func (p *parser) next() {
	switch c := p.text[p.at]; {
	case c != '{' && c != '}':
		p.literal(c, 1)
	case strings.HasPrefix(p.text[p.at+1:], string(c)):
		p.literal(c, 2)
	case c == '}':
		p.fault(p.at, "a } without a {", "write }} for a literal brace")
		p.at++
	default:
		p.flush()
		p.placeholder()
	}
}

func (p *parser) literal(c byte, width int) {
	if p.lit.Len() == 0 {
		p.litAt = p.at
	}
	p.lit.WriteByte(c)
	p.at += width
}

func (p *parser) flush() {
	if p.lit.Len() > 0 {
		p.parts = append(p.parts, Node{Kind: NodeLiteral, Lit: p.lit.String(), At: p.litAt})
		p.lit.Reset()
	}
}

// placeholder reads from { to }. After a fault it goes on after the next }.
func (p *parser) placeholder() {
	start := p.at
	p.at++
	n, ok := p.content(start)
	if ok {
		p.parts = append(p.parts, n)
		return
	}
	if end := strings.IndexByte(p.text[p.at:], '}'); end >= 0 {
		p.at += end + 1
	} else {
		p.at = len(p.text)
	}
}

func (p *parser) content(start int) (Node, bool) {
	n := Node{At: start}
	p.blank()
	end := strings.IndexByte(p.text[p.at:], '}')
	if end < 0 {
		p.fault(start, "the { has no }", "close it, or write {{ for a literal brace")
		return n, false
	}
	if s, ok, f := parseSpan(strings.TrimRight(p.text[p.at:p.at+end], " ")); ok {
		if f != nil {
			p.fault(start, f.what, f.do)
		}
		p.at += end + 1
		n.Kind, n.Span = NodeCopies, s
		if f != nil {
			n.Span = Span{}
		}
		return n, true
	}
	if !p.name(&n) {
		return n, false
	}
	for {
		p.blank()
		switch {
		case p.at >= len(p.text):
			p.fault(start, "the { has no }", "close it, or write {{ for a literal brace")
			return n, false
		case p.text[p.at] == '}':
			p.at++
			p.checkMod(&n)
			return n, true
		case p.text[p.at] == '|':
			p.at++
			n.Filters = append(n.Filters, p.filter(n.Filters))
		default:
			p.unexpected(&n)
			return n, false
		}
	}
}

func (p *parser) checkMod(n *Node) {
	begin, what := maybeInteger, ""
	if n.Kind != NodeColumn {
		begin, what = surelyText, "the "+special(n.Kind)+"'s name"
	}
	if f := checkMod(begin, what, n.Filters); f != nil {
		p.faults = append(p.faults, *f)
	}
}

// name reads what the placeholder stands for.
func (p *parser) name(n *Node) bool {
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '`' {
		name, end, f := unquote(p.text, p.at)
		if f != nil {
			p.faults = append(p.faults, *f)
			return false
		}
		n.Kind, n.Lit, p.at = NodeColumn, name, end
		return true
	}
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	n.Kind, n.Lit = NodeColumn, p.text[start:p.at]
	switch n.Lit {
	case "":
		if p.at < len(p.text) && strings.IndexByte("}|", p.text[p.at]) < 0 {
			p.unexpected(n)
			return false
		}
		p.fault(n.At, "the braces name no column", "write {column}, or {{ and }} for literal braces")
		return false
	case "schema":
		n.Kind = NodeSchema
	case "table":
		n.Kind = NodeTable
	}
	return true
}

// unexpected tells what stands where the placeholder should go on, or end.
func (p *parser) unexpected(n *Node) {
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	do := "write {column} or {column|filter}; a name that holds more than letters, digits, _ and $ in backticks: {`a-b`}"
	rest, _, _ := strings.Cut(p.text[p.at:], "}")
	switch name, _, _ := strings.Cut(rest, "|"); {
	case r == '.' && digits(n.Lit):
		do = "write {0..7} or {00..07} for copies, without a filter"
	case r == '.' && (n.Lit == "row" || n.Lit == "old" || n.Lit == "new"):
		do = "write {" + strings.TrimPrefix(name, ".") + "}: both images count"
	case r == ':' && len(n.Filters) == 0:
		do = "write {" + n.Lit + "|" + strings.TrimPrefix(rest, ":") + "} for a filter"
	case r == '{':
		do = "close the brace before the next one, or write {{ for a literal one"
	case len(n.Filters) == 0 && r != '|':
		do = "a name that holds more than letters, digits, _ and $ is written in backticks: {`" + n.Lit +
			strings.TrimSpace(name) + "`}"
	}
	p.fault(p.at, "unexpected "+strconv.QuoteRune(r)+" in a placeholder", do)
}

func (p *parser) blank() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// filter reads one filter after its |. Its argument goes as far as the next | or }, without the spaces before that.
func (p *parser) filter(before []Filter) Filter {
	p.blank()
	f := Filter{at: p.at}
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	f.Name = p.text[f.at:p.at]
	if p.at < len(p.text) && p.text[p.at] == ':' {
		p.at++
		n := strings.IndexAny(p.text[p.at:], "|{}")
		if n < 0 {
			n = len(p.text) - p.at
		}
		f.Arg, f.hasArg = p.text[p.at:p.at+n], true
		p.at += n
		if k := f.kind(); k == nil || k.takes != anyText {
			f.Arg = strings.TrimRight(f.Arg, " \t")
		}
	}
	// What is wrong with one filter does not make the rest of the placeholder unreadable.
	if bad := f.check(before); bad != nil {
		p.faults = append(p.faults, *bad)
	}
	return f
}
