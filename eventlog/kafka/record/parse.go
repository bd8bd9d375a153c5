package record

import (
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
	if p.batch.Len() > keptKeys || len(p.item.parts[partOwn]) > keptText || len(p.batch.Text()) > keptText ||
		cap(p.buf) > keptText {
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
	begin, from, added, first := p.at, p.batch.Len(), len(p.added), len(p.batch.Origins)
	p.batch.Origins = append(p.batch.Origins, event.Placed{})
	if o, ok := p.usualChange(); ok {
		rows := p.rows()
		if !p.more('}') {
			p.settle(first, o)
			p.reached(o.Event, rows)
			return
		}
		// There is more to it, so it is read once more, whatever comes first.
		p.batch.Cut(from)
		p.batch.Origins = p.batch.Origins[:first+1]
		p.at, p.added = begin, p.added[:added]
	}
	var o event.Origin
	var has fields
	var rows highest
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
			rows = p.rows()
		default:
			p.skip(0)
		}
	}
	has |= p.inherit(&o, has)
	if has&changeFields != changeFields {
		p.fail("table, version, second_delete_ms, mapping and rows before the end of the change")
	}
	if !p.known(o, first, from) {
		n := len(p.batch.Origins)
		p.batch.Origins = p.batch.Origins[:first]
		p.batch.AddOrigin(o)
		p.batch.Origins = p.batch.Origins[:n]
		p.settle(first, p.batch.Origins[first])
	}
	p.reached(o.Event, rows)
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

// known looks whether the origin of a change was there a moment ago, and gives its invalidations, from the given one
// on, to that: under two mappings the rows of an event take turns between two changes, and batches wait long in memory.
func (p *Parser) known(o event.Origin, first, from int) bool {
	if len(p.batch.Origins) != first+1 {
		return false
	}
	at := p.batch.FindOrigin(&o, first)
	if at < 0 {
		return false
	}
	p.batch.Origins = p.batch.Origins[:first]
	for j := from; j < p.batch.Len(); j++ {
		p.batch.Invalidations[j].Origin = uint32(at)
	}
	p.before = at + 1
	return true
}

// settle makes the origins from first on those of a change's events: o is of the first, and all but the position is the
// same for the others.
func (p *Parser) settle(first int, o event.Placed) {
	for i := first; i < len(p.batch.Origins); i++ {
		if i > first {
			o.Event.Pos = p.batch.Origins[i].Event.Pos
		}
		p.batch.Origins[i] = o
	}
	p.before = len(p.batch.Origins)
}

// reached takes note of the highest version of a change, whose first event is at v.
func (p *Parser) reached(v event.Version, rows highest) {
	v.Row = rows.first
	if v.Compare(p.max) > 0 {
		p.max = v
	}
	if v.Pos, v.Row = rows.pos, rows.row; rows.further && v.Compare(p.max) > 0 {
		p.max = v
	}
}
