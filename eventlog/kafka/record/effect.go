package record

import (
	"math"
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// usedEffect is an effect of the record that is being written.
type usedEffect struct {
	effect *event.Effect
	quiet  bool // it is written without its notices
}

// effect returns the ordinal of an effect in the record, adding it if it is not there. A configuration has few.
func (e *Encoder) effect(of *event.Effect, quiet bool) int {
	used := usedEffect{of, quiet}
	for i := len(e.effects) - 1; i >= 0; i-- {
		if e.effects[i] == used {
			return i
		}
	}
	if len(e.effects) > 0 {
		e.table = append(e.table, ',')
	}
	e.table = appendEffect(e.table, of, quiet)
	e.effects = append(e.effects, used)
	return len(e.effects) - 1
}

// appendEffect appends an effect as an object. What it is without is left out.
func appendEffect(b []byte, of *event.Effect, quiet bool) []byte {
	w := objectWriter{b: append(b, '{'), first: true}
	if of.Publish && !quiet {
		w.name("publish")
		w.b = append(w.b, "true"...)
	}
	if of.Stream && !quiet {
		w.name("stream")
		w.b = append(w.b, "true"...)
	}
	w.number("maxlen", of.MaxLen)
	if of.As != event.FormJSON {
		w.name("as")
		w.b = appendString(w.b, of.As.String())
	}
	if of.Query != "" {
		w.name("query")
		w.b = appendString(w.b, of.Query)
	}
	w.number("ttl_ms", roundUp(of.TTL))
	if of.Jitter > 0 {
		w.name("jitter")
		w.b = strconv.AppendFloat(w.b, min(of.Jitter, 1), 'g', -1, 64)
	}
	w.number("expire_at_ms", roundUp(of.ExpireAt))
	if of.Missing {
		w.name("missing")
		w.b = appendText(append(w.b, `{"cache":`...), of.MissingValue)
		w.number("ttl_ms", roundUp(of.MissingTTL))
		w.b = append(w.b, '}')
	}
	w.number("in_ms", roundUp(of.In))
	return append(w.b, '}')
}

// objectWriter writes the fields of an object.
type objectWriter struct {
	b     []byte
	first bool
}

func (w *objectWriter) name(name string) {
	if !w.first {
		w.b = append(w.b, ',')
	}
	w.first = false
	w.b = append(append(append(w.b, '"'), name...), `":`...)
}

// number writes a number above 0.
func (w *objectWriter) number(name string, n int64) {
	if n > 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

// The fields of an effect.
const (
	effectPublish fields = 1 << iota
	effectStream
	effectMaxLen
	effectAs
	effectQuery
	effectTTL
	effectJitter
	effectExpireAt
	effectMissing
	effectIn
)

// maxEffects is how many effects a batch can have.
const maxEffects = math.MaxUint16 - 1

// effectTable reads the effects of a record. They are mostly those of the record before, and then the same are used.
func (p *Parser) effectTable() {
	if at, ok := follows(p.data, p.at, p.effectsText); ok && len(p.effectsText) > 0 {
		p.at, p.effects = at, p.kept
		return
	}
	from := p.at
	var table []*event.Effect
	more := p.begin('[', ']', "a list of effects")
	if !more {
		p.fail("an effect")
	}
	for ; more; more = p.more(']') {
		if len(table) == maxEffects {
			p.fail("fewer effects")
			break
		}
		table = append(table, p.effect())
	}
	p.effects = table
	if p.err == nil && p.at-from <= keptTable {
		p.kept, p.effectsText = table, append(p.effectsText[:0], p.data[from:p.at]...)
	}
}

// keptTable bounds the text of a list of effects that is kept for the next record.
const keptTable = 64 << 10

// effect reads an effect. An unknown field may change the action.
func (p *Parser) effect() *event.Effect {
	var e event.Effect
	var has fields
	for more := p.begin('{', '}', "an effect"); more; more = p.more('}') {
		switch string(p.name()) {
		case "publish":
			has.once(&p.scanner, effectPublish)
			e.Publish = p.bool("whether messages are published")
		case "stream":
			has.once(&p.scanner, effectStream)
			e.Stream = p.bool("whether entries are added to a stream")
		case "maxlen":
			has.once(&p.scanner, effectMaxLen)
			e.MaxLen = int64(p.uint(math.MaxInt64, "the length of a stream"))
		case "as":
			has.once(&p.scanner, effectAs)
			e.As = p.form()
		case "query":
			has.once(&p.scanner, effectQuery)
			e.Query = string(p.text("what identifies a query"))
		case "ttl_ms":
			has.once(&p.scanner, effectTTL)
			e.TTL = p.millis()
		case "jitter":
			has.once(&p.scanner, effectJitter)
			e.Jitter = p.share()
		case "expire_at_ms":
			has.once(&p.scanner, effectExpireAt)
			e.ExpireAt = p.millis()
		case "missing":
			has.once(&p.scanner, effectMissing)
			e.Missing = true
			e.MissingValue, e.MissingTTL = p.missing()
		case "in_ms":
			has.once(&p.scanner, effectIn)
			e.In = p.millis()
		default:
			p.unknown("an effect to have nothing else")
		}
	}
	return &e
}

// missing reads what is kept where a row is gone.
func (p *Parser) missing() (value string, ttl time.Duration) {
	const hasCache, hasTTL = fields(1), fields(2)
	var has fields
	for more := p.begin('{', '}', "what is kept where a row is gone"); more; more = p.more('}') {
		switch string(p.name()) {
		case "cache":
			has.once(&p.scanner, hasCache)
			value = string(p.bytes("a value"))
		case "ttl_ms":
			has.once(&p.scanner, hasTTL)
			ttl = p.millis()
		default:
			p.unknown("what is kept where a row is gone to be cache and ttl_ms")
		}
	}
	if has&hasCache == 0 {
		p.fail("cache before the end of what is kept where a row is gone")
	}
	return value, ttl
}

func (p *Parser) form() event.Form {
	const want = "json, hash or string"
	f, err := event.ParseForm(string(p.text(want)))
	if err != nil {
		p.unknown(want)
	}
	return f
}

func (p *Parser) millis() time.Duration {
	return time.Duration(p.uint(uint64(maxMillis), "milliseconds")) * time.Millisecond
}

// share reads a number from 0 to 1.
func (p *Parser) share() float64 {
	const want = "a number from 0 to 1"
	p.peek()
	from := p.at
	p.number()
	if p.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(p.data[from:p.at]), 64)
	if err != nil || f < 0 || f > 1 {
		p.failAt(from, want)
		return 0
	}
	return f
}
