package record

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/freshet/freshet/event"
)

// maxDocument bounds the length of a document, in bytes. Kafka's own bound is 1 MiB unless somebody raises it
// (message.max.bytes); the batch's offsets have 32 bits.
const maxDocument = 256 << 20

// Parser makes batches of records. The zero Parser is ready for use. A reader of many records keeps one: what records
// have in common is then made once.
type Parser struct {
	scanner
	batch  event.Batch // built roomy, handed out snug
	header Header
	last   event.Version // as the record says
	max    event.Version // of its changes
	before int           // ordinal of the origin of the change before, plus one; 0: there is none

	item        itemReader
	added       []addedItem
	effects     []*event.Effect // of the record
	kept        []*event.Effect // those of a record before
	effectsText []byte          // and how they were written

	source, table interned
	gtids         gtidReader
	times         timeReader
}

// Parse is [Parser.Parse] of a new Parser.
func Parse(data []byte) (*event.Batch, Header, error) {
	var p Parser
	return p.Parse(data)
}

// The bounds of what a Parser keeps for the next record.
const (
	keptKeys = 64 << 10
	keptText = 4 << 20
)

// Parse makes a batch of a record. Its Source, Term, Age and Last are set; At and End are zero, for the reader's clock
// and the source's position say nothing here. The batch shares no memory with data. The error is [ErrMalformed] or
// [ErrUnknownFormat].
func (p *Parser) Parse(data []byte) (*event.Batch, Header, error) {
	if len(data) > maxDocument {
		return nil, Header{}, fmt.Errorf("record: %w: %d bytes, and %d are the most", ErrMalformed, len(data), maxDocument)
	}
	p.scanner = scanner{data: data, buf: p.buf}
	p.batch.Reset()
	p.added, p.effects = p.added[:0], nil
	p.header, p.last, p.max = Header{Age: event.Unknown}, event.Version{}, event.Version{}
	p.record()
	p.end()
	err := p.err
	p.scanner, p.before = scanner{buf: p.buf}, 0
	if err != nil {
		return nil, Header{}, fmt.Errorf("record: %w", reason(err, data, Format))
	}
	p.batch.Source, p.batch.Term = p.header.Source, p.header.Term
	p.batch.Age, p.batch.Last = p.header.Age, p.max
	b := p.batch.Clone()
	if p.batch.Len() > keptKeys || len(p.item.parts[partOwn]) > keptText || len(p.batch.Text()) > keptText || cap(p.buf) > keptText {
		p.batch, p.buf, p.item, p.added = event.Batch{}, nil, itemReader{}, nil
	}
	return b, p.header, nil
}

func isMalformed(err error) bool { return errors.Is(err, ErrMalformed) }

// reason returns what is wrong with the document: being of a format above newest comes first.
func reason(err error, data []byte, newest uint64) error {
	if isMalformed(err) {
		if other := otherFormat(data, newest); other != nil {
			return other
		}
	}
	return err
}

// The fields of a record, and those that it must have.
const (
	hasFormat fields = 1 << iota
	hasSource
	hasTerm
	hasSeq
	hasPrev
	hasLast
	hasAge
	hasEffects
	hasChanges
	recordFields = hasFormat | hasSource | hasTerm | hasSeq | hasPrev | hasLast | hasChanges
)

const maxMillis = math.MaxInt64 / int64(time.Millisecond)

func (p *Parser) record() {
	var has fields
	for more := p.begin('{', '}', "an object"); more; more = p.more('}') {
		switch string(p.name()) {
		case "format":
			has.once(&p.scanner, hasFormat)
			p.format(Format)
		case "source":
			has.once(&p.scanner, hasSource)
			p.header.Source = p.source.of(p.text("the name of a source"))
		case "term":
			has.once(&p.scanner, hasTerm)
			p.header.Term = p.uint(math.MaxUint64, "a term")
		case "seq":
			has.once(&p.scanner, hasSeq)
			p.header.Seq = p.uint(math.MaxUint64, "a sequence number")
		case "prev":
			has.once(&p.scanner, hasPrev)
			p.header.Prev = p.version()
		case "last":
			has.once(&p.scanner, hasLast)
			p.last = p.version()
		case "age_ms":
			has.once(&p.scanner, hasAge)
			p.header.Age = p.millis()
		case "effects":
			has.once(&p.scanner, hasEffects)
			p.effectTable()
		case "changes":
			has.once(&p.scanner, hasChanges)
			p.changes()
		default:
			p.skip(0)
		}
	}
	switch {
	case has&recordFields != recordFields:
		p.fail("format, source, term, seq, prev, last and changes before the end of the record")
	case p.header.Source == "":
		p.fail("a source that has a name")
	case p.header.Seq == 0:
		p.fail("a sequence number above 0")
	case p.last != p.max:
		p.fail("last to be the highest version of the changes")
	}
	p.match()
}

func (p *Parser) changes() {
	more := p.begin('[', ']', "a list of changes")
	if !more {
		p.fail("a change")
	}
	for ; more; more = p.more(']') {
		p.change()
	}
}

// The fields of a change, and those that it must have.
const (
	hasTable fields = 1 << iota
	hasVersion
	hasGTID
	hasCommitted
	hasSecondDelete
	hasMapping
	hasRateLimit
	hasRows
	changeFields = hasTable | hasVersion | hasSecondDelete | hasMapping | hasRows
)

// change reads a change into an origin and its invalidations. These are added before it is known where the change
// stands, for the fields of an object have no order.
func (p *Parser) change() {
	begin, from, added := p.at, p.batch.Len(), len(p.added)
	p.batch.Origins = append(p.batch.Origins, event.Placed{})
	if like, ok := p.usualChange(); ok {
		row := p.rows()
		if !p.more('}') {
			n := len(p.batch.Origins)
			p.batch.Origins[n-1], p.before = like, n
			p.reached(like.Event, row)
			return
		}
		// There is more to it, so it is read once more, whatever comes first.
		p.batch.Cut(from)
		p.at, p.added = begin, p.added[:added]
	}
	var o event.Origin
	var has fields
	var row uint32
	for more := p.begin('{', '}', "a change"); more; more = p.more('}') {
		switch string(p.name()) {
		case "table":
			has.once(&p.scanner, hasTable)
			o.Table = p.table.of(p.text("the name of a table"))
		case "version":
			has.once(&p.scanner, hasVersion)
			o.Event = p.place()
		case "gtid":
			has.once(&p.scanner, hasGTID)
			o.Tx.GTID = p.gtids.read(&p.scanner)
		case "committed":
			has.once(&p.scanner, hasCommitted)
			o.Tx.Committed = p.times.read(&p.scanner)
		case "second_delete_ms":
			has.once(&p.scanner, hasSecondDelete)
			o.D = p.millis()
		case "mapping":
			has.once(&p.scanner, hasMapping)
			o.Mapping = int(p.uint(math.MaxInt32, "the ordinal of a mapping"))
		case "rate_limit":
			has.once(&p.scanner, hasRateLimit)
			o.RateLimit = int(p.uint(math.MaxInt32, "keys a second"))
		case "rows":
			has.once(&p.scanner, hasRows)
			row = p.rows()
		default:
			p.skip(0)
		}
	}
	has |= p.inherit(&o, has)
	if has&changeFields != changeFields {
		p.fail("table, version, second_delete_ms, mapping and rows before the end of the change")
	}
	p.before = p.origin(o, from) + 1
	p.reached(o.Event, row)
}

// reached takes note of the highest row of a change.
func (p *Parser) reached(v event.Version, row uint32) {
	v.Row = row
	if v.Compare(p.max) > 0 {
		p.max = v
	}
}

// usualChange reads a change of the same mapping as the one before, and of a transaction of the same server, up to its
// rows, in the very form that an Encoder gives it. It stays where it was if the change has any other.
func (p *Parser) usualChange() (event.Placed, bool) {
	at, ok := follows(p.data, p.at, `{"version":"`)
	if !ok || p.before == 0 {
		return event.Placed{}, false
	}
	o := p.batch.Origins[p.before-1]
	if o.Event, at = placeOf(p.data, at); at == 0 {
		return event.Placed{}, false
	}
	if next, ok := follows(p.data, at, `","gtid":"`); ok {
		if o.Number, at = p.gtids.number(p.data, next, &p.batch.Commons[o.Common]); at == 0 {
			return event.Placed{}, false
		}
	}
	if next, ok := follows(p.data, at, `","committed":"`); ok {
		if o.Committed, at = p.times.micros(p.data, next); at == 0 {
			return event.Placed{}, false
		}
	}
	if at, ok = follows(p.data, at, `","rows":`); ok {
		p.at = at
	}
	return o, ok
}

// inherit takes what a change without a table leaves out from the change before, and returns which of the fields that
// each must have it was given so.
func (p *Parser) inherit(o *event.Origin, has fields) fields {
	if has&hasTable != 0 || p.before == 0 {
		return 0
	}
	l := p.batch.Origin(p.before - 1)
	o.Table = l.Table
	if has&hasGTID == 0 {
		o.Tx.GTID = l.Tx.GTID
	}
	if has&hasCommitted == 0 {
		o.Tx.Committed = l.Tx.Committed
	}
	if has&hasSecondDelete == 0 {
		o.D = l.D
	}
	if has&hasMapping == 0 {
		o.Mapping = l.Mapping
	}
	if has&hasRateLimit == 0 {
		o.RateLimit = l.RateLimit
	}
	return hasTable | hasSecondDelete | hasMapping
}

// origin makes o the origin of the invalidations from the given one on, and returns its ordinal. Under two mappings the
// rows of an event take turns between two changes: an origin that was there a moment ago is used again, since batches
// wait long in memory.
func (p *Parser) origin(o event.Origin, from int) int {
	const near = 4
	n := len(p.batch.Origins) - 1
	p.batch.Origins = p.batch.Origins[:n]
	for i := n - 1; i >= 0 && i >= n-near; i-- {
		if p.batch.Origins[i].Event == o.Event && p.batch.Origin(i) == o {
			for j := from; j < p.batch.Len(); j++ {
				p.batch.Invalidations[j].Origin = uint32(i)
			}
			return i
		}
	}
	p.batch.AddOrigin(o)
	return n
}

// rows reads the rows of a change and returns the highest ordinal.
func (p *Parser) rows() (highest uint32) {
	more := p.begin('[', ']', "a list of rows")
	if !more {
		p.fail("a row")
	}
	for ; more; more = p.more(']') {
		row, ok := p.usualRow()
		switch {
		case ok:
		case p.peek() == '[':
			row = p.list()
		default:
			row = p.row()
		}
		highest = max(highest, row)
	}
	return highest
}

// usualRow reads a row that has only keys to delete, in the very form that an Encoder gives it, and returns its ordinal.
// It stays where it was when the row has any other.
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
