package write

import (
	"fmt"
	"slices"
	"strconv"
)

// A script call costs Redis several times what a plain write does before it has done anything. So calls of a round trip
// that are of one script, with the same arguments but for their keys and what belongs to these, share one call. Such a
// call does what they would have done one after the other. Plain UNLINKs share one as well: a command of its own for
// each key costs the client and Redis twice as much.
const (
	// packKeys, packUnlinks, packWords and packBytes bound a call of several: it keeps Redis from doing else for about
	// 0.1 ms.
	packKeys    = 16
	packUnlinks = 100
	packWords   = 512
	packBytes   = 64 << 10
	// packOpen is how many of them are filled at a time: a change of a member is a call that removes, and one that adds.
	packOpen = 4
)

// Packed is a command that is sent: a call, or several in one.
type Packed struct {
	// Args are the command and its arguments, as [Call].Args.
	Args []any
	// Calls are those that it carries out, in their order.
	Calls []*Call
	// words and bytes are theirs together.
	words, bytes int
}

// Pack puts calls together that can share a script call. What is done to one key stays in its order. Where slots is set
// it puts together calls of one key only: Redis Cluster refuses a call with keys of several slots.
func Pack(calls []*Call, slots bool) []Packed {
	packed := make([]Packed, 0, len(calls))
	first := 0 // of those that may still get more
	for i, c := range calls {
		first = max(first, len(packed)-packOpen)
		if at := share(packed[first:], c, slots); at >= 0 {
			packed[first+at].add(c)
			continue
		}
		packed = append(packed, alone(calls[i:i+1:i+1]))
		if !c.isShared() {
			first = len(packed) // it stays after what comes before it, and before what follows
		}
	}
	for i := range packed {
		if p := &packed[i]; len(p.Calls) > 1 {
			p.Args = together(p.Calls)
		}
	}
	return packed
}

// isShared reports whether a call may share one with others.
func (c *Call) isShared() bool { return c.keys > 0 && !c.Asking }

// share returns which of some commands a call can be added to; -1: none. It must not overtake what it may depend on.
func share(open []Packed, c *Call, slots bool) int {
	if !c.isShared() {
		return -1
	}
	for at := len(open) - 1; at >= 0; at-- {
		p := &open[at]
		if p.Calls[0].isLike(c) && p.hasRoom(c) && (!slots || p.Calls[0].sameKey(c)) &&
			(c.Script == nil || !slices.ContainsFunc(p.Calls, c.follows)) { // to unlink a key twice does no more than once
			return at
		}
		if slices.ContainsFunc(p.Calls, c.sameKey) {
			return -1
		}
	}
	return -1
}

// hasRoom reports whether a command can take another call.
func (p *Packed) hasRoom(c *Call) bool {
	most := packKeys
	if c.Script == nil {
		most = packUnlinks
	}
	return len(p.Calls) < most && p.words+len(c.words) <= packWords && p.bytes+c.Bytes() <= packBytes
}

// add adds a call.
func (p *Packed) add(c *Call) {
	p.Calls = append(p.Calls, c)
	p.words, p.bytes = p.words+len(c.words), p.bytes+c.Bytes()
}

// follows reports whether what a call does may depend on what another one of the same command does.
func (c *Call) follows(o *Call) bool {
	return o.sameKey(c) && (c.subject == 0 || o.words[o.subject] == c.words[c.subject])
}

// isLike says that two calls differ in nothing but their keys and what belongs to these, and are of one epoch.
func (c *Call) isLike(o *Call) bool {
	if c.Script != o.Script || c.keys != o.keys || c.subject != o.subject || len(c.words) != len(o.words) || o.Asking {
		return false
	}
	for i := c.first() + c.keys; i < c.own(); i++ {
		if c.words[i] != o.words[i] {
			return false
		}
	}
	return c.epoch() == o.epoch()
}

// epoch is the beginning of the call's version that says of which epoch it is: see [Builder.ordered].
func (c *Call) epoch() string {
	if c.Script == nil {
		return ""
	}
	version := c.words[c.own()]
	return version[:version[0]-'0'+2]
}

func (c *Call) sameKey(o *Call) bool { return c.words[c.first()] == o.words[o.first()] }

// first is the place of the call's first key among its words.
func (c *Call) first() int {
	if c.Script == nil {
		return 1
	}
	return beforeKeys
}

// own is the first of the words that belong to the call's key, after those that calls have in common.
func (c *Call) own() int {
	if c.Script == nil {
		return len(c.words)
	}
	return beforeKeys + c.keys + guardArgs
}

// together returns the arguments of one call that does what some do that are alike.
func together(calls []*Call) []any {
	first := calls[0]
	own := first.own()
	args := make([]any, 0, own+len(calls)*(first.keys+len(first.words)-own))
	args = append(args, first.Args[0])
	if first.Script != nil {
		args = append(args, first.Script.several.SHA, strconv.Itoa(len(calls)*first.keys))
	}
	for _, c := range calls {
		args = append(args, c.Args[c.first():c.first()+c.keys]...)
	}
	args = append(args, first.Args[first.first()+first.keys:own]...)
	for _, c := range calls {
		args = append(args, c.Args[own:]...)
	}
	return args
}

// Alone puts each call into a command of its own.
func Alone(calls []*Call) []Packed {
	packed := make([]Packed, len(calls))
	for i := range calls {
		packed[i] = alone(calls[i : i+1 : i+1])
	}
	return packed
}

// alone is a command of one call.
func alone(call []*Call) Packed {
	return Packed{Args: call[0].Args, Calls: call, words: len(call[0].words), bytes: call[0].Bytes()}
}

// Answer gives each call its part of what Redis answered. Where Redis, and no connection, refused several together,
// some of them may have been carried out, and no error says which: they are sent again, each alone, which does no harm.
func (p *Packed) Answer(reply any, err error) {
	replies, ok := reply.([]any)
	switch {
	case len(p.Calls) == 1:
		p.Calls[0].Reply, p.Calls[0].Err = nil, err
		if err == nil {
			p.Calls[0].Reply = reply
		}
		return
	case err == nil && p.Calls[0].Script == nil:
		p.count(reply)
		return
	case err == nil && (!ok || len(replies) != len(p.Calls)):
		err = fmt.Errorf("unexpected reply %T to %d calls in one", reply, len(p.Calls))
	}
	for i, c := range p.Calls {
		if c.Reply, c.Err = nil, err; err == nil {
			c.Reply = replies[i]
		}
	}
}

// count gives each UNLINK of several in one its answer. Redis says how many of the keys there were, not which: the
// first ones are taken for them, since all that anybody asks is how many.
func (p *Packed) count(reply any) {
	n, ok := reply.(int64)
	for _, c := range p.Calls {
		if c.Reply, c.Err = int64(0), nil; !ok {
			c.Err = fmt.Errorf("unexpected reply %T to UNLINK", reply)
		} else if n > 0 {
			c.Reply = int64(1)
			n--
		}
	}
}
