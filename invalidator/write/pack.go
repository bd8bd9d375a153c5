package write

import (
	"fmt"
	"strconv"
)

// A script call costs Redis several times what a plain write does before it has done anything. So calls that follow one
// another, of one script and with the same arguments but for their keys and what belongs to these, share one call. Such
// a call does what they would have done one after the other.
const (
	// packKeys, packWords and packBytes bound a call of several: it keeps Redis from doing else for about 0.1 ms.
	packKeys  = 16
	packWords = 512
	packBytes = 64 << 10
)

// Packed is a command that is sent: a call, or several in one.
type Packed struct {
	// Args are the command and its arguments, as [Call].Args.
	Args []any
	// Calls are those that it carries out, in their order.
	Calls []*Call
}

// Pack puts calls together that can share a script call. Where slots is set it does so for calls of one key only: Redis
// Cluster refuses a call with keys of several slots.
func Pack(calls []*Call, slots bool) []Packed {
	packed := make([]Packed, 0, len(calls))
	for len(calls) > 0 {
		n := run(calls, slots)
		packed = append(packed, Packed{calls[0].Args, calls[:n]})
		if n > 1 {
			packed[len(packed)-1].Args = together(calls[:n])
		}
		calls = calls[n:]
	}
	return packed
}

// run returns how many of the calls, from the first one on, can share one.
func run(calls []*Call, slots bool) int {
	first := calls[0]
	if first.keys == 0 || first.Asking {
		return 1
	}
	words, bytes := len(first.words), first.Bytes()
	for n := 1; n < min(packKeys, len(calls)); n++ {
		c := calls[n]
		words, bytes = words+len(c.words), bytes+c.Bytes()
		if !first.isLike(c) || slots && !first.sameKey(c) || words > packWords || bytes > packBytes {
			return n
		}
		for _, o := range calls[:n] {
			if o.sameKey(c) && (c.subject == 0 || o.words[c.subject] == c.words[c.subject]) {
				return n // the second one may depend on the first one
			}
		}
	}
	return min(packKeys, len(calls))
}

// isLike says that two calls differ in nothing but their keys and what belongs to these, and are of one epoch.
func (c *Call) isLike(o *Call) bool {
	if c.Script != o.Script || c.keys != o.keys || c.subject != o.subject || len(c.words) != len(o.words) || o.Asking {
		return false
	}
	for i := beforeKeys + c.keys; i < c.own(); i++ {
		if c.words[i] != o.words[i] {
			return false
		}
	}
	return c.epoch() == o.epoch()
}

// epoch is the beginning of the call's version that says of which epoch it is: see [Builder.ordered].
func (c *Call) epoch() string {
	version := c.words[c.own()]
	return version[:version[0]-'0'+2]
}

func (c *Call) sameKey(o *Call) bool { return c.words[beforeKeys] == o.words[beforeKeys] }

// own is the first of the words that belong to the call's key, after those that calls have in common.
func (c *Call) own() int { return beforeKeys + c.keys + guardArgs }

// together returns the arguments of one call that does what some do that are alike.
func together(calls []*Call) []any {
	first := calls[0]
	own := first.own()
	args := make([]any, 0, own+len(calls)*(first.keys+len(first.words)-own))
	args = append(args, first.Args[0], first.Script.several.SHA, strconv.Itoa(len(calls)*first.keys))
	for _, c := range calls {
		args = append(args, c.Args[beforeKeys:beforeKeys+c.keys]...)
	}
	args = append(args, first.Args[beforeKeys+first.keys:own]...)
	for _, c := range calls {
		args = append(args, c.Args[own:]...)
	}
	return args
}

// Alone puts each call into a command of its own.
func Alone(calls []*Call) []Packed {
	packed := make([]Packed, len(calls))
	for i, c := range calls {
		packed[i] = Packed{c.Args, calls[i : i+1]}
	}
	return packed
}

// Answer gives each call its part of what Redis answered. Where Redis, and no connection, refused several together,
// some of them may have been carried out, and no error says which: they are sent again, each alone, which does no harm.
func (p *Packed) Answer(reply any, err error) {
	replies, ok := reply.([]any)
	switch {
	case len(p.Calls) == 1:
		replies = []any{reply}
	case err == nil && (!ok || len(replies) != len(p.Calls)):
		err = fmt.Errorf("unexpected reply %T to %d calls in one", reply, len(p.Calls))
	}
	for i, c := range p.Calls {
		if c.Reply, c.Err = nil, err; err == nil {
			c.Reply = replies[i]
		}
	}
}
