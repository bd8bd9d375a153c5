package write

import (
	"github.com/freshet/freshet/event"
)

// Notice is what is told about one acknowledged action on a key.
type Notice struct {
	// Key is without the prefix.
	Key    string
	Action event.Action
	// Effect and Fields are the action's: Fields are those of its notices, or all of them.
	Effect *event.Effect
	Fields event.Fields
	// Table, Source and Version are the change's.
	Table, Source string
	Version       event.Version
}

// Notices appends the calls that tell of an action: PUBLISH to the channel of the mapping, which has no prefix, and
// XADD to its stream, whose entries have the fields key (as it is in Redis), table, source, version and action. To send
// them again tells it again. Damaged fields tell nothing.
func (b *Builder) Notices(calls []*Call, n *Notice) []*Call {
	e, f := n.Effect, n.Fields
	if e == nil {
		return calls
	}
	if e.Publish {
		channel, rest, ok := f.Next()
		if !ok {
			return calls
		}
		message, rest, ok := rest.Next()
		if !ok {
			return calls
		}
		f = rest
		c := b.call(3)
		c.add("publish", text(channel), text(message))
		calls = append(calls, c)
	}
	if e.Stream {
		stream, _, ok := f.Next()
		if !ok {
			return calls
		}
		calls = append(calls, b.xadd(n, text(stream)))
	}
	return calls
}

func (b *Builder) xadd(n *Notice, stream string) *Call {
	c := b.call(16)
	c.add("xadd", b.key(&Item{Key: stream}))
	if n.Effect.MaxLen > 0 {
		c.add("maxlen", "~", b.number(n.Effect.MaxLen))
	}
	c.add("*", "key", b.key(&Item{Key: n.Key}), "table", n.Table, "source", n.Source,
		"version", n.Version.String(), "action", n.Action.String())
	return c
}
