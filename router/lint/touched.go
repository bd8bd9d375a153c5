package lint

import (
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
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

// Touches returns what the mappings touch, each template once. It may be called from any goroutine.
func Touches(r *router.Router) []Touched {
	var all []Touched
	for _, m := range r.Mappings() {
		for i := range m.Actions {
			a := &m.Actions[i]
			all = append(all, touched(m, Touched{Action: a.Kind}, a.Key))
			if a.Notices == nil || i > 0 {
				continue // all keys of a mapping share the notices
			}
			if t := a.Notices.Channel; t != nil {
				all = append(all, touched(m, Touched{Channel: true}, t))
			}
			if t := a.Notices.Stream; t != nil {
				all = append(all, touched(m, Touched{Stream: true}, t))
			}
		}
	}
	return all
}

func touched(m *router.Mapping, e Touched, t *router.Template) Touched {
	e.Pos, e.Template = t.Text.At(0), t.Text.Value
	schema, table := m.Example()
	var pattern strings.Builder
	for i := range t.Parts {
		switch n := &t.Parts[i]; n.Kind {
		case router.NodeLiteral:
			e.Example += n.Lit
			pattern.WriteString(router.EscapeGlob(n.Lit))
			continue
		case router.NodeCopies:
			e.Example += string(n.Span.Append(nil, 0))
		case router.NodeSchema:
			e.Example += n.Of(schema)
		case router.NodeTable:
			e.Example += n.Of(table)
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

// Whole names an action that needs whole row images.
type Whole struct {
	// Pos is where the action stands, and What names it: rebuild of "product:{id}".
	Pos  spec.Pos
	What string
}

// Writes returns the actions that write, and so delete instead where a row image lacks a column that they need:
// wherever binlog_row_image is not FULL. It may be called from any goroutine.
func Writes(r *router.Router) []Whole {
	var all []Whole
	for _, m := range r.Mappings() {
		for i := range m.Actions {
			if a := &m.Actions[i]; a.Writes() {
				all = append(all, Whole{Pos: a.Key.Text.At(0), What: a.Kind.String() + " of " + spec.Quote(a.Key.Text.Value)})
			}
		}
	}
	return all
}
