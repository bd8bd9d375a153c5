package write

import "unsafe"

// Call is one Redis command. Who sends it fills in Reply and Err.
type Call struct {
	// Args are the command and its arguments, each a *string. They, and what they point to, are valid until the
	// [Builder] is reset.
	Args []any
	// Script is the script of an EVALSHA, nil for other commands. When Redis answers NOSCRIPT, its Source must be
	// loaded (SCRIPT LOAD) and the call sent again.
	Script *Script
	// Asking sends ASKING before it: the slot of its key is being moved to the node.
	Asking bool
	// Reply is what Redis answered: an int64, a string, or nil for no value.
	Reply any
	// Err is the call's own error: Redis', or the connection's, after which nobody knows whether the call took effect.
	Err error

	words []string
	args  []any // pointers to all of words' capacity
	// keys is how many keys a call has that may share one with others: see [Pack]. 0: it goes alone.
	keys int
	// subject is the word that names a part of its key; 0: it is about the key as a whole.
	subject int
}

// Bytes returns about how many bytes the call sends.
func (c *Call) Bytes() int {
	n := 0
	for i := range c.words {
		n += len(c.words[i]) + 16
	}
	return n
}

// begin empties the call for up to n words.
func (c *Call) begin(n int) {
	if cap(c.words) < n {
		c.words = make([]string, n)
		c.args = make([]any, n)
		for i := range c.words {
			c.args[i] = &c.words[i]
		}
	}
	c.words, c.Args, c.Script, c.Asking, c.Reply, c.Err = c.words[:0], nil, nil, false, nil, nil
	c.keys, c.subject = 0, 0
}

func (c *Call) add(words ...string) {
	c.words = append(c.words, words...)
	c.Args = c.args[:len(c.words)]
}

func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// What a Builder keeps of its memory for the next use.
const (
	keepWords = 1024
	keepText  = 1 << 20
	keepCalls = 4096
)

// memory is what a Builder makes calls of, used again for each round trip.
type memory struct {
	calls []*Call
	used  int
	buf   []byte
}

// call returns an empty call for up to n words.
func (m *memory) call(n int) *Call {
	if m.used == len(m.calls) {
		m.calls = append(m.calls, new(Call))
	}
	c := m.calls[m.used]
	m.used++
	c.begin(n)
	return c
}

// mark and since make text in the buffer: what was appended since the mark. It stays valid until reset, for when the
// buffer grows the old one is left behind.
func (m *memory) mark() int { return len(m.buf) }

func (m *memory) since(mark int) string { return text(m.buf[mark:]) }

// reset makes all calls free again, and lets go of what they point to.
func (m *memory) reset() {
	for _, c := range m.calls[:m.used] {
		if cap(c.words) > keepWords {
			*c = Call{}
			continue
		}
		clear(c.words)
		c.begin(0)
	}
	if len(m.calls) > keepCalls {
		clear(m.calls[keepCalls:])
		m.calls = m.calls[:keepCalls]
	}
	m.used, m.buf = 0, m.buf[:0]
	if cap(m.buf) > keepText {
		m.buf = nil
	}
}

// Key returns a key that the call is about, as it is in Redis; "": it is about none.
func (c *Call) Key() string {
	switch {
	case c.Script != nil:
		return c.words[beforeKeys]
	case c.words[0] == "publish":
		return ""
	}
	return c.words[1]
}

// Stream returns the key of the stream that the call adds to. It may lie in another slot than the key that it tells of.
func (c *Call) Stream() (key string, ok bool) {
	if c.Script != nil || len(c.words) < 2 || c.words[0] != "xadd" {
		return "", false
	}
	return c.words[1], true
}

// Name returns what is called: the command, or the script.
func (c *Call) Name() string {
	if c.Script != nil {
		return "script " + c.Script.Name
	}
	if len(c.words) == 0 {
		return "nothing"
	}
	return c.words[0]
}
