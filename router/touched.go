package router

import (
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// Touched is what the rows of one mapping touch in Redis by one template.
type Touched struct {
	// Pos is the template's place, and Template its text.
	Pos      spec.Pos
	Template string
	// Action is what is done to the key; 0 for a channel or a stream.
	Action event.Action
	// Channel and Stream say that the template makes the name of one.
	Channel, Stream bool
	// Example is a name that the template could make, of numbers, and Pattern matches all that it makes, in the glob
	// language of Redis (https://redis.io/docs/latest/commands/keys/). Neither has the prefix of keys.
	Example, Pattern string
}

// Touched returns what the mappings touch, each template once. It may be called from any goroutine.
func (r *Router) Touched() []Touched {
	var all []Touched
	for _, m := range r.mappings {
		for i := range m.actions {
			a := &m.actions[i]
			all = append(all, m.touched(Touched{Action: a.kind}, a.key))
			if a.notices == nil || i > 0 {
				continue // all keys of a mapping share the notices
			}
			if t := a.notices.channel; t != nil {
				all = append(all, m.touched(Touched{Channel: true}, t))
			}
			if t := a.notices.stream; t != nil {
				all = append(all, m.touched(Touched{Stream: true}, t))
			}
		}
	}
	return all
}

func (m *mapping) touched(e Touched, t *template) Touched {
	e.Pos, e.Template = t.text.At(0), t.text.Value
	var pattern strings.Builder
	for i := range t.parts {
		switch n := &t.parts[i]; n.kind {
		case nodeLiteral:
			e.Example += n.lit
			pattern.WriteString(EscapeGlob(n.lit))
			continue
		case nodeCopies:
			e.Example += string(n.span.append(nil, 0))
		case nodeSchema:
			e.Example += constant(m.pattern.schema.example(), n.filters).lit
		case nodeTable:
			e.Example += constant(m.pattern.table.example(), n.filters).lit
		default:
			e.Example += strconv.Itoa(exampleNumber)
		}
		pattern.WriteByte('*')
	}
	e.Pattern = pattern.String()
	return e
}

// exampleNumber is the value of a column in an example.
const exampleNumber = 17

// example returns a name that the glob matches.
func (g glob) example() string {
	var b []byte
	for _, p := range g {
		switch p.kind {
		case pieceLiteral:
			b = append(b, p.lit...)
		case pieceSpan:
			b = p.span.append(b, 0)
		}
	}
	return string(b)
}

// EscapeGlob returns the pattern that matches a text alone, in the glob language of Redis.
func EscapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}
