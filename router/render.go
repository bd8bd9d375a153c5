package router

import "github.com/freshet/freshet/event"

// outcome says what became of a text.
type outcome uint8

const (
	made outcome = iota
	// isNull: a column is NULL, and no default stands for it.
	isNull
	// isAbsent: the image lacks a column, or holds no text for it.
	isAbsent
	// notNumber: mod was asked of a text whose type was not known before.
	notNumber
	tooLong
	// unnamed: the template is broken.
	unnamed
)

// render appends a text to dst: the template over one image, copy i of all. On any other outcome than made it says
// which part was the reason, and what dst holds beyond its former end means nothing.
func (k *textPlan) render(dst []byte, image []event.Value, i int) ([]byte, outcome, int) {
	if k.broken {
		return dst, unnamed, 0
	}
	from := len(dst)
	for at := range k.parts {
		p := &k.parts[at]
		switch p.kind {
		case NodeLiteral:
			dst = append(dst, p.lit...)
		case NodeCopies:
			dst = p.span.Append(dst, i/p.stride%p.span.Count())
		default:
			var out outcome
			if dst, out = p.value(dst, &image[p.slot], k.most); out != made {
				return dst, out, at
			}
		}
		if len(dst)-from > k.most {
			return dst, tooLong, at
		}
	}
	return dst, made, 0
}

// value appends a column's text as the filters make it; it need not copy one that is longer than most.
func (p *part) value(dst []byte, v *event.Value, most int) ([]byte, outcome) {
	start, steps, ok := len(dst), p.filters, true
	switch v.Kind {
	case event.Null:
		if !p.nullable {
			return dst, isNull
		}
		dst, steps = append(dst, p.fallback...), steps[p.after:]
	case event.Int, event.Uint:
		dst = v.AppendText(dst)
	case event.Decimal, event.Text, event.Bytes, event.JSON:
		if len(steps) == 0 {
			// Before the copy: the value may be far larger than what it is for.
			if len(v.Text) > most {
				return dst, tooLong
			}
			return append(dst, v.Text...), made
		}
		// The first filter reads the value where it is, so that a digest of a large one costs no memory.
		if dst, ok = steps[0](dst, v.Text); !ok {
			return dst, notNumber
		}
		steps = steps[1:]
	default:
		return dst, isAbsent
	}
	if dst, ok = chain(dst, start, steps); !ok {
		return dst, notNumber
	}
	return dst, made
}
