package record

import (
	"encoding/base64"
	"math"

	"github.com/freshet/freshet/event"
)

// highest is how far the rows of a change go: the highest ordinal in its first event, and, if there are further ones,
// the highest place in these.
type highest struct {
	first   uint32
	further bool
	pos     uint64
	row     uint32
}

// note takes note of a row of the event at a position.
func (h *highest) note(further bool, pos uint64, row uint32) {
	switch {
	case !further:
		h.first = max(h.first, row)
	case !h.further || pos > h.pos || pos == h.pos && row > h.row:
		h.further, h.pos, h.row = true, pos, row
	}
}

// rows reads the rows of a change. A number among them is the position of a further event of the same file and
// transaction, which has an origin of its own from then on: what follows is of that one.
func (p *Parser) rows() (h highest) {
	const want = "a row"
	further, pos, bare := false, uint64(0), true
	for more := p.begin('[', ']', "a list of rows"); more; more = p.more(']') {
		row, ok := p.usualRow()
		switch {
		case ok:
		case p.peek() == '[':
			row = p.list()
		case p.peek() == '{' || bare:
			row = p.row()
		default:
			further, pos, bare = true, p.uint(math.MaxUint64, "a row, or the position of a rows event"), true
			p.batch.Origins = append(p.batch.Origins, event.Placed{Event: event.Version{Pos: pos}})
			continue
		}
		bare = false
		h.note(further, pos, row)
	}
	if bare {
		p.fail(want)
	}
	return h
}

// usualRow reads a row that has only keys to delete, in the very form that an Encoder gives it, and returns its
// ordinal. It stays where it was when the row has any other.
func (p *Parser) usualRow() (uint32, bool) {
	at, ok := follows(p.data, p.at, `[`)
	if !ok {
		return 0, false
	}
	row, end := digits(p.data, at)
	if end == at || row > math.MaxUint32 {
		return 0, false
	}
	from := p.batch.Len()
	at, ok = follows(p.data, end, `,"`)
	for ok {
		end := plain(p.data, at)
		if end == len(p.data) || p.data[end] != '"' {
			break
		}
		p.batch.Add(append(p.batch.Text(), p.data[at:end]...), uint32(row), event.ActionDelete)
		if at, ok = follows(p.data, end, `"]`); ok {
			p.at = at
			return uint32(row), true
		}
		at, ok = follows(p.data, end, `","`)
	}
	p.batch.Cut(from)
	return 0, false
}

// follows reports whether want stands at data[at], and returns where it ends.
func follows[T string | []byte](data []byte, at int, want T) (int, bool) {
	end := at + len(want)
	return end, end <= len(data) && string(data[at:end]) == string(want)
}

// hasRow is the field of a row that is no list. The lists follow.
const hasRow fields = 1

// list reads a row that has only keys to delete: a list of its ordinal and the keys.
func (p *Parser) list() uint32 {
	const want = "a row: its ordinal and a key"
	if !p.begin('[', ']', want) {
		p.fail(want)
	}
	from := p.batch.Len()
	row := uint32(p.uint(math.MaxUint32, "the ordinal of a row"))
	for p.more(']') {
		p.batch.Add(append(p.batch.Text(), p.text("a key")...), row, event.ActionDelete)
	}
	if p.batch.Len() == from {
		p.fail(want)
	}
	return row
}

// row reads a row and returns its ordinal. Any field that is not known may be an action, without which the cache would
// not be kept fresh.
func (p *Parser) row() uint32 {
	var has fields
	from, row := p.batch.Len(), uint32(0)
	for more := p.begin('{', '}', "a row"); more; more = p.more('}') {
		name := p.name()
		if string(name) == "row" {
			has.once(&p.scanner, hasRow)
			row = uint32(p.uint(math.MaxUint32, "the ordinal of a row"))
			continue
		}
		l, ok := listNamed(name)
		if !ok {
			p.unknown("a row to have nothing but row and the actions that are known")
			continue
		}
		has.once(&p.scanner, hasRow<<1<<l)
		switch l {
		case listDelete, listDeleteBase64:
			p.keys(l == listDeleteBase64)
		default:
			p.items(l)
		}
	}
	added := p.batch.Invalidations[from:]
	if has&hasRow == 0 || len(added) == 0 {
		p.fail("row and a key before the end of the row")
	}
	for i := range added {
		added[i].Row = row
	}
	return row
}

// keys reads a list of keys to delete.
func (p *Parser) keys(binary bool) {
	for more := p.begin('[', ']', "a list of keys"); more; more = p.more(']') {
		key := p.text("a key")
		text := p.batch.Text()
		if binary {
			var err error
			if text, err = base64.StdEncoding.AppendDecode(text, key); err != nil {
				p.fail("a key in base64")
				return
			}
		} else {
			text = append(text, key...)
		}
		p.batch.Add(text, 0, event.ActionDelete)
	}
}
