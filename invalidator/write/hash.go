package write

import (
	"strconv"

	"github.com/freshet/freshet/event"
)

// appendHash appends the calls that replace a whole hash. A small one is written by the guard's script; a large one is
// put together in pieces in a temporary key, so that no script takes long, and the guard's script renames it.
func (b *Builder) appendHash(calls []*Call, it *Item) []*Call {
	fields, bytes, ok := measure(it.Fields)
	if !ok {
		return append(calls, b.forgetKey(it))
	}
	if fields == 0 {
		// Redis has no empty hash. A row whose columns are all NULL is known to be nothing, as a row that is gone is.
		return append(calls, b.drop(it))
	}
	l := b.lives(it.Effect)
	if it.Effect.ExpireAt > 0 {
		fields++
	}
	if fields <= inlineFields && bytes <= inlineBytes {
		c := b.rebuild(it, "hash", l, 2*fields)
		for p := b.pairs(it); p.next(); {
			c.add(p.name, p.value)
		}
		return append(calls, b.ends(c, l))
	}
	return b.appendStaged(calls, it, fields, l)
}

// appendStaged appends the calls that put a large hash together, and then the one that decides on it.
func (b *Builder) appendStaged(calls []*Call, it *Item, fields int, l lives) []*Call {
	temporary := b.temporary(it)
	names := make(map[string]struct{}, fields)
	var c *Call
	room, bytes := 0, 0
	for p := b.pairs(it); p.next(); {
		names[p.name] = struct{}{}
		if size := len(p.name) + len(p.value); c == nil || room == 0 || bytes+size > inlineBytes {
			c = b.call(6 + 2*inlineFields)
			c.Script = theScripts.stage
			c.add("evalsha", theScripts.stage.SHA, digits[1], temporary, b.millis(stageTTL))
			if bytes == 0 && room == 0 {
				c.add("1")
			} else {
				c.add("0")
			}
			calls = append(calls, c)
			room, bytes = inlineFields, 0
		}
		c.add(p.name, p.value)
		room--
		bytes += len(p.name) + len(p.value)
	}
	c = b.rebuild(it, "swap", l, 1, temporary)
	c.add(b.number(int64(len(names))))
	c.keys = 0 // it goes alone: its script takes another key
	return append(calls, b.ends(c, l))
}

// temporary names a key next to the item's that nobody else uses.
func (b *Builder) temporary(it *Item) string {
	m := b.mark()
	b.buf = b.names.Append(b.buf, KindTemporary, it.Key)
	b.buf = append(b.buf, ':')
	b.buf = strconv.AppendUint(b.buf, b.random(), 36)
	return b.since(m)
}

// measure counts the pairs of a hash that are not null, and their bytes.
func measure(f event.Fields) (pairs, bytes int, ok bool) {
	for len(f) > 0 {
		name, rest, ok := f.Next()
		if !ok || name == nil {
			return 0, 0, false
		}
		value, rest, ok := rest.Next()
		if !ok {
			return 0, 0, false
		}
		f = rest
		if value != nil {
			pairs, bytes = pairs+1, bytes+len(name)+len(value)
		}
	}
	return pairs, bytes, true
}

// pairs goes through the fields and values of a hash that was measured; the last may be its logical expiry.
type pairs struct {
	name, value string

	rest     event.Fields
	expireAt string
}

func (b *Builder) pairs(it *Item) pairs {
	p := pairs{rest: it.Fields}
	if it.Effect.ExpireAt > 0 {
		p.expireAt = b.number(it.Now.Add(it.Effect.ExpireAt).UnixMilli())
	}
	return p
}

func (p *pairs) next() bool {
	for len(p.rest) > 0 {
		name, rest, _ := p.rest.Next()
		value, rest, _ := rest.Next()
		p.rest = rest
		if value != nil {
			p.name, p.value = text(name), text(value)
			return true
		}
	}
	if p.expireAt != "" {
		p.name, p.value, p.expireAt = expireAtField, p.expireAt, ""
		return true
	}
	return false
}
