package proxy

import (
	"fmt"
	"strconv"
)

const (
	maxReplyDepth = 32      // how deep replies may nest
	maxLength     = 1 << 30 // of a string in bytes, of an array in elements; Redis allows half
)

// reply is what the proxy wants to know of one reply of the server.
type reply struct {
	push  bool     // sent without a command (RESP3)
	kind  byte     // the type byte
	text  string   // of a simple string or an error
	null  bool     // a null of any kind
	elems []string // EXEC: for each element, its error or ""
}

// err is the text of an error reply, or "".
func (r reply) err() string {
	if r.kind == '-' || r.kind == '!' {
		return r.text
	}
	return ""
}

// parseReply reads one whole reply and returns its length; 0 means that more bytes are needed.
// With elems it notes the error of each element of an array.
func parseReply(b []byte, elems bool) (reply, int, error) {
	n, err := skipAttributes(b)
	if n < 0 || err != nil {
		return reply{}, 0, err
	}
	v, used, err := readValue(b[n:])
	if used == 0 || err != nil {
		return reply{}, 0, err
	}
	r := reply{kind: v.kind, push: v.kind == '>', text: string(v.text), null: v.null}
	at := n + used
	for range v.children {
		child, err := skipValue(b[at:], 1)
		if child == 0 || err != nil {
			return reply{}, 0, err
		}
		if elems {
			r.elems = append(r.elems, errorOf(b[at:]))
		}
		at += child
	}
	return r, at, nil
}

// skipAttributes skips RESP3 attributes in front of a reply; -1 means that more bytes are needed.
func skipAttributes(b []byte) (int, error) {
	at := 0
	for at < len(b) && b[at] == '|' {
		n, err := skipValue(b[at:], 1)
		if n == 0 || err != nil {
			return -1, err
		}
		at += n
	}
	return at, nil
}

// errorOf returns the error that a complete value is, or "".
func errorOf(b []byte) string {
	if v, _, _ := readValue(b); v.kind == '-' || v.kind == '!' {
		return string(v.text)
	}
	return ""
}

// skipValue returns the length of a value with all that it holds; 0 means that more bytes are needed.
func skipValue(b []byte, depth int) (int, error) {
	if depth > maxReplyDepth {
		return 0, fmt.Errorf("%w: nested deeper than %d", errRESP, maxReplyDepth)
	}
	v, at, err := readValue(b)
	if at == 0 || err != nil {
		return 0, err
	}
	for range v.children {
		n, err := skipValue(b[at:], depth+1)
		if n == 0 || err != nil {
			return 0, err
		}
		at += n
	}
	return at, nil
}

// value is one value without its children.
type value struct {
	kind     byte
	text     []byte // of simple strings and errors
	null     bool
	children int
}

// readValue reads one value up to where its children start; a length of 0 means that more
// bytes are needed.
func readValue(b []byte) (value, int, error) {
	line, at := cutLine(b)
	if at == 0 {
		return value{}, 0, nil
	}
	v := value{kind: line[0]}
	switch v.kind {
	case '+', '-':
		v.text = line[1:]
		return v, at, nil
	case ':', '#', ',', '(':
		return v, at, nil
	case '_':
		v.null = true
		return v, at, nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n > maxLength {
		return v, 0, fmt.Errorf("%w: reply starts with %q", errRESP, line)
	}
	if n < 0 {
		v.null = true
		return v, at, nil
	}
	switch v.kind {
	case '*', '~', '>':
		v.children = n
	case '%', '|':
		v.children = 2 * n
	case '$', '=', '!':
		if len(b) < at+n+2 {
			return v, 0, nil
		}
		if v.kind == '!' {
			v.text = b[at : at+n]
		}
		at += n + 2
	default:
		return v, 0, fmt.Errorf("%w: reply of type %q", errRESP, v.kind)
	}
	return v, at, nil
}
