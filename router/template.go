package router

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
)

// maxCopies bounds how many keys one template makes of one row image.
const maxCopies = 1024

// template is a parsed template.
type template struct {
	text  spec.Text
	role  role
	parts []node
	// copies is the product of all its spans; 1 without any.
	copies int
}

// node is one part of a template.
type node struct {
	kind nodeKind
	// lit is the text of a literal, the name of a column.
	lit     string
	span    span
	filters []filterSpec
	// at is the byte offset in the text.
	at int
}

type nodeKind uint8

const (
	nodeLiteral nodeKind = iota
	nodeColumn
	nodeSchema
	nodeTable
	nodeCopies
)

// String returns the template as it is written.
func (t *template) String() string {
	var b strings.Builder
	for _, n := range t.parts {
		b.WriteString(n.String())
	}
	return b.String()
}

// String returns the part as it is written, in the one way of all that mean it.
func (n *node) String() string {
	var b strings.Builder
	switch n.kind {
	case nodeLiteral:
		return strings.NewReplacer("{", "{{", "}", "}}").Replace(n.lit)
	case nodeCopies:
		return n.span.String()
	case nodeSchema, nodeTable:
		b.WriteString("{" + special(n.kind))
	default:
		b.WriteString("{" + columnName(n.lit))
	}
	for _, f := range n.filters {
		b.WriteString("|" + f.String())
	}
	b.WriteByte('}')
	return b.String()
}

func special(k nodeKind) string {
	if k == nodeSchema {
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
	return c >= utf8.RuneSelf || c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// parser reads one template. It goes on after a fault, so that all of them are told at once.
type parser struct {
	text   string
	at     int
	lit    strings.Builder
	litAt  int
	parts  []node
	faults []fault
}

// parseTemplate reads a key template.
func parseTemplate(t spec.Text) (*template, []fault) {
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
	out := &template{text: t, parts: p.parts, copies: 1}
	for _, n := range p.parts {
		if n.kind != nodeCopies {
			continue
		}
		if out.copies *= n.span.count(); out.copies > maxCopies {
			p.fault(n.at, "it makes more than "+strconv.Itoa(maxCopies)+" copies", "write smaller runs of numbers")
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
		p.parts = append(p.parts, node{kind: nodeLiteral, lit: p.lit.String(), at: p.litAt})
		p.lit.Reset()
	}
}

// placeholder reads from { to }. After a fault it goes on behind the next }.
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

func (p *parser) content(start int) (node, bool) {
	n := node{at: start}
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
		n.kind, n.span = nodeCopies, s
		if f != nil {
			n.span = span{}
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
			n.filters = append(n.filters, p.filter(n.filters))
		default:
			p.unexpected(&n)
			return n, false
		}
	}
}

func (p *parser) checkMod(n *node) {
	begin, what := maybeInteger, ""
	if n.kind != nodeColumn {
		begin, what = surelyText, "the "+special(n.kind)+"'s name"
	}
	if f := checkMod(begin, what, n.filters); f != nil {
		p.faults = append(p.faults, *f)
	}
}

// name reads what the placeholder stands for.
func (p *parser) name(n *node) bool {
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '`' {
		name, end, f := unquote(p.text, p.at)
		if f != nil {
			p.faults = append(p.faults, *f)
			return false
		}
		n.kind, n.lit, p.at = nodeColumn, name, end
		return true
	}
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	n.kind, n.lit = nodeColumn, p.text[start:p.at]
	switch n.lit {
	case "":
		if p.at < len(p.text) && strings.IndexByte("}|", p.text[p.at]) < 0 {
			p.unexpected(n)
			return false
		}
		p.fault(n.at, "the braces name no column", "write {column}, or {{ and }} for literal braces")
		return false
	case "schema":
		n.kind = nodeSchema
	case "table":
		n.kind = nodeTable
	}
	return true
}

// unexpected tells what stands where the placeholder should go on, or end.
func (p *parser) unexpected(n *node) {
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	do := "write {column} or {column|filter}; a name that holds more than letters, digits, _ and $ in backticks: {`a-b`}"
	rest, _, _ := strings.Cut(p.text[p.at:], "}")
	switch name, _, _ := strings.Cut(rest, "|"); {
	case r == '.' && digits(n.lit):
		do = "write {0..7} or {00..07} for copies, without a filter"
	case r == '.' && (n.lit == "row" || n.lit == "old" || n.lit == "new"):
		do = "write {" + strings.TrimPrefix(name, ".") + "}: both images count"
	case r == ':' && len(n.filters) == 0:
		do = "write {" + n.lit + "|" + strings.TrimPrefix(rest, ":") + "} for a filter"
	case r == '{':
		do = "close the brace before the next one, or write {{ for a literal one"
	case len(n.filters) == 0 && r != '|':
		do = "a name that holds more than letters, digits, _ and $ is written in backticks: {`" + n.lit + strings.TrimSpace(name) + "`}"
	}
	p.fault(p.at, "unexpected "+strconv.QuoteRune(r)+" in a placeholder", do)
}

func (p *parser) blank() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// filter reads one filter behind its |. Its argument goes as far as the next | or }, without the spaces before that.
func (p *parser) filter(before []filterSpec) filterSpec {
	p.blank()
	f := filterSpec{at: p.at}
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	f.name = p.text[f.at:p.at]
	if p.at < len(p.text) && p.text[p.at] == ':' {
		p.at++
		n := strings.IndexAny(p.text[p.at:], "|{}")
		if n < 0 {
			n = len(p.text) - p.at
		}
		f.arg, f.hasArg = p.text[p.at:p.at+n], true
		p.at += n
		if f.name != "default" { // whose spaces are part of the value
			f.arg = strings.TrimRight(f.arg, " \t")
		}
	}
	// What is wrong with one filter does not make the rest of the placeholder unreadable.
	if bad := f.check(before); bad != nil {
		p.faults = append(p.faults, *bad)
	}
	return f
}
