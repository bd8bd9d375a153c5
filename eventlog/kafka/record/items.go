package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/freshet/freshet/event"
)

// itemReader is an item that is being read. Its fields may come in any order; they have their own once they are put
// together.
type itemReader struct {
	key    []byte
	has    fields
	intent event.Intent
	effect uint16 // its ordinal plus one
	parts  [parts][]byte
	bytes  []byte // of the last base64
}

// The parts of an item, in the order of [event.Batch.Fields]; value is all of the action's own but a second.
const (
	partChannel = iota
	partMessage
	partStream
	partOwn
	partSecond
	parts
)

// addedItem remembers what an item had, for when all effects are known.
type addedItem struct {
	invalidation int
	has          fields
}

// items reads a list of items.
func (p *Parser) items(l list) {
	for more := p.begin('[', ']', "a list of items"); more; more = p.more(']') {
		p.readItem()
		r := &p.item
		if r.has&itemKey == 0 {
			p.fail("key before the end of the item")
		}
		text := append(p.batch.Text(), r.key...)
		for i := range r.parts {
			text = append(text, r.parts[i]...)
		}
		p.batch.AddItem(event.Item{Text: text, Key: len(r.key), Action: l.action(), Intent: r.intent})
		n := p.batch.Len() - 1
		p.batch.Invalidations[n].Effect = r.effect
		p.added = append(p.added, addedItem{n, r.has &^ (itemKey | itemEffect | itemIntent)})
	}
}

// readItem reads an item. A field that is not known may be what its action needs.
func (p *Parser) readItem() {
	r := &p.item
	r.has, r.key, r.intent, r.effect = 0, r.key[:0], event.IntentForget, 0
	for i := range r.parts {
		r.parts[i] = r.parts[i][:0]
	}
	for more := p.begin('{', '}', "an item"); more; more = p.more('}') {
		switch string(p.name()) {
		case "key":
			r.has.once(&p.scanner, itemKey)
			r.key = append(r.key, p.bytes("a key")...)
		case "effect":
			r.has.once(&p.scanner, itemEffect)
			r.effect = uint16(p.uint(maxEffects-1, "the ordinal of an effect")) + 1
		case "intent":
			r.has.once(&p.scanner, itemIntent)
			r.intent = p.intent()
		case "channel":
			p.part(itemChannel, partChannel)
		case "message":
			p.part(itemMessage, partMessage)
		case "stream":
			p.part(itemStream, partStream)
		case "string":
			p.part(itemString, partOwn)
		case "field":
			p.part(itemField, partOwn)
		case "value":
			p.part(itemValue, partSecond)
		case "member":
			p.part(itemMember, partOwn)
		case "score":
			p.part(itemScore, partSecond)
		case "json":
			r.has.once(&p.scanner, itemJSON)
			r.parts[partOwn] = event.AppendField(r.parts[partOwn], p.document())
		case "hash":
			r.has.once(&p.scanner, itemHash)
			r.parts[partOwn] = p.hash(r.parts[partOwn])
		case "params":
			r.has.once(&p.scanner, itemParams)
			for more := p.begin('[', ']', "a list of parameters"); more; more = p.more(']') {
				r.parts[partOwn] = p.field(r.parts[partOwn])
			}
		default:
			p.unknown("an item to have nothing else")
		}
	}
}

// part reads a field that is one part of an item.
func (p *Parser) part(bit fields, part int) {
	p.item.has.once(&p.scanner, bit)
	p.item.parts[part] = p.field(p.item.parts[part])
}

// hash reads the fields of a hash.
func (p *Parser) hash(dst []byte) []byte {
	for more := p.begin('{', '}', "the fields of a hash"); more; more = p.more('}') {
		dst = event.AppendField(dst, p.name())
		dst = p.field(dst)
	}
	return dst
}

// field reads a string, {"base64": …} or null and appends it as a field.
func (p *Parser) field(dst []byte) []byte {
	if p.peek() == 'n' {
		p.word("null", "a text")
		return event.AppendNull(dst)
	}
	return event.AppendField(dst, p.bytes("a text"))
}

// bytes reads a string, or {"base64": …}. They are valid until the next are read.
func (p *Parser) bytes(want string) []byte {
	if p.peek() != '{' {
		return p.text(want)
	}
	p.begin('{', '}', want)
	if name := p.name(); string(name) != "base64" {
		p.unknown("base64")
	}
	text := p.text("base64")
	var err error
	if p.item.bytes, err = base64.StdEncoding.AppendDecode(p.item.bytes[:0], text); err != nil {
		p.fail("base64")
	}
	if p.more('}') {
		p.fail("nothing besides base64")
	}
	return p.item.bytes
}

// document reads a JSON value and returns its text without white space.
func (p *Parser) document() []byte {
	p.peek()
	from, blanks := p.at, p.blanks
	p.skip(0)
	if p.err != nil {
		return nil
	}
	text := p.data[from:p.at]
	if p.blanks == blanks {
		return text
	}
	var tight bytes.Buffer
	if err := json.Compact(&tight, text); err != nil {
		p.failAt(from, "a JSON value")
	}
	return tight.Bytes()
}

func (p *Parser) intent() event.Intent {
	const want = "forget, put or remove"
	text := p.text(want)
	for i := event.IntentForget; i <= event.IntentRemove; i++ {
		if i.String() == string(text) {
			return i
		}
	}
	p.unknown(want)
	return 0
}

// unknown stops at what a newer freshet may have written.
func (p *Parser) unknown(want string) {
	if p.err == nil {
		p.stop(fmt.Errorf("%w at byte %d: want %s", ErrUnknownFormat, p.at, want))
	}
}

// match makes sure that each item has the fields that its effect says.
func (p *Parser) match() {
	for _, a := range p.added {
		inv := &p.batch.Invalidations[a.invalidation]
		var effect *event.Effect
		if inv.Effect != 0 {
			if int(inv.Effect) > len(p.effects) {
				p.fail("the effect of each item")
				return
			}
			effect = p.effects[inv.Effect-1]
		}
		has := a.has
		if has&itemJSON != 0 && (effect == nil || effect.As == event.FormJSON) {
			has ^= itemJSON | itemString // a document says the same as a string of it; not both
		}
		if has != layout(inv.Action, inv.Intent, effect) {
			p.fail("each item to have what its action and effect need, and nothing else")
			return
		}
	}
	p.batch.Effects = append(p.batch.Effects[:0], p.effects...)
}
