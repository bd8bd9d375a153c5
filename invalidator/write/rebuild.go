package write

import (
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// expireAtField is the name of the logical expiry inside a value.
const expireAtField = "expire_at"

// appendRebuild appends the calls that rebuild a key: almost always one.
func (b *Builder) appendRebuild(calls []*Call, it *Item) []*Call {
	e := it.Effect
	switch {
	case it.Intent == event.IntentRemove && e != nil && e.Missing:
		return append(calls, b.setValue(it, "remove", e.MissingValue, lives{e.MissingTTL, e.MissingTTL}))
	case it.Intent == event.IntentRemove:
		return append(calls, b.drop(it))
	case it.Intent != event.IntentPut || e == nil:
		return append(calls, b.forgetKey(it))
	case e.As == event.FormHash:
		return b.appendHash(calls, it)
	}
	value, rest, ok := it.Fields.Next()
	if !ok || len(rest) > 0 {
		return append(calls, b.forgetKey(it))
	}
	if e.As == event.FormJSON && e.ExpireAt > 0 {
		value = b.splice(value, it.Now.Add(e.ExpireAt))
	}
	return append(calls, b.setValue(it, "set", text(value), b.lives(e)))
}

// rebuild returns a call of the script with its guard's arguments and room for more. [Builder.ends] must follow.
func (b *Builder) rebuild(it *Item, op string, l lives, args int, more ...string) *Call {
	c := b.call(beforeKeys + 2 + len(more) + guardArgs + 1 + args + 1)
	c.Script = theScripts.rebuild
	c.add("evalsha", theScripts.rebuild.SHA, digits[2+len(more)], b.key(it), b.name(KindVersion, it))
	c.add(more...)
	ttl := ""
	if !l.isOwn() {
		ttl = b.millis(l.ttl)
	}
	b.guarded(c, op, it, l.most, ttl)
	return c
}

// ends adds how long the value of a rebuild lives, if it has a time of its own.
func (b *Builder) ends(c *Call, l lives) *Call {
	if l.isOwn() {
		c.add(b.millis(l.ttl))
	}
	return c
}

// setValue writes a string: a value, or a negative entry.
func (b *Builder) setValue(it *Item, op, value string, l lives) *Call {
	c := b.rebuild(it, op, l, 1)
	c.add(value)
	return b.ends(c, l)
}

// drop removes the key of a row that is gone.
func (b *Builder) drop(it *Item) *Call { return b.rebuild(it, "drop", it.lifetime(), 0) }

func (b *Builder) forgetKey(it *Item) *Call { return b.rebuild(it, it.forgetting(), it.lifetime(), 0) }

// lifetime is about how long a value of the item's key lives; 0: forever, or unknown.
func (it *Item) lifetime() lives {
	if it.Effect == nil {
		return lives{}
	}
	return lives{it.Effect.TTL, it.Effect.TTL}
}

// splice puts the time at which the value must be renewed into a JSON object. What is no object stays as it is.
func (b *Builder) splice(value []byte, at time.Time) []byte {
	if len(value) < 2 || value[0] != '{' || value[len(value)-1] != '}' {
		return value
	}
	m := b.mark()
	b.buf = append(b.buf, value[:len(value)-1]...)
	if len(value) > 2 {
		b.buf = append(b.buf, ',')
	}
	b.buf = append(b.buf, `"`+expireAtField+`":`...)
	b.buf = strconv.AppendInt(b.buf, at.UnixMilli(), 10)
	b.buf = append(b.buf, '}')
	return b.buf[m:len(b.buf):len(b.buf)]
}
