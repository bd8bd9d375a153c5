package write

import "github.com/freshet/freshet/event"

// field returns the call for one field of a hash.
func (b *Builder) field(it *Item) *Call {
	name, rest, ok := it.Fields.Next()
	if !ok || name == nil {
		// Which field is not known: all of them may be stale.
		c := b.call(2)
		c.add("unlink", b.key(it))
		return c
	}
	if it.Effect == nil {
		c := b.call(3)
		c.add("hdel", b.key(it), text(name))
		return c
	}
	op, value, has := it.forgetting(), "", false
	switch it.Intent {
	case event.IntentRemove:
		op = "hdel"
	case event.IntentPut:
		if v, _, ok := rest.Next(); ok && v != nil {
			op, value, has = "hset", text(v), true
		}
	}
	c := b.script(theScripts.field, b.key(it), guardArgs+3, b.name(KindField, it), b.name(KindOldField, it))
	b.guarded(c, op, it, 0, b.entries)
	return c.named(text(name), value, has)
}

// member returns the call for one member of a set or sorted set. Where no member is named the whole key is forgotten,
// whatever is known of its members.
func (b *Builder) member(it *Item) *Call {
	op, score, has := opForget, "", false
	name, rest, ok := it.Fields.Next()
	if ok = ok && name != nil && it.Effect != nil; ok {
		zset := it.Action == event.ActionZSet
		op = it.forgetting()
		switch {
		case it.Intent == event.IntentRemove && zset:
			op = "zrem"
		case it.Intent == event.IntentRemove:
			op = "srem"
		case it.Intent == event.IntentPut && zset:
			if v, _, ok := rest.Next(); ok && v != nil {
				op, score, has = "zadd", text(v), true
			}
		case it.Intent == event.IntentPut:
			op = "sadd"
		}
	}
	c := b.script(theScripts.member, b.key(it), guardArgs+3, b.name(KindMember, it), b.name(KindOldMember, it))
	b.guarded(c, op, it, 0, b.entries)
	return c.named(text(name), score, has)
}

// named adds the name of a field or member, and its value or score if it has one.
func (c *Call) named(name, value string, has bool) *Call {
	c.subject = len(c.words)
	c.add(name)
	if has {
		c.add(value)
	}
	return c
}
