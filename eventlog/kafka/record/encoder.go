package record

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

// Format is the number of the format of the records that this package writes. It reads those of format 2 as well, in
// which every rows event is a change of its own, and of format 1, in which also every change has all of its fields and
// every row is an object.
const Format = 3

// Header is what a record says in addition to its changes.
type Header struct {
	// Source is the source's name. It is UTF-8.
	Source string
	// Term is the leader's that wrote the record.
	Term uint64
	// Seq counts the records of the term in the partition: 1, 2, 3… A record that was produced again because its
	// acknowledgement was lost has the same.
	Seq uint64
	// Prev is the highest version that the source is known to have in the partition before this record: within a term
	// the last version of the record before, in a term's first one what its leader found out before. Zero: none.
	Prev event.Version
	// Age is the batch's: for how long everybody had been known to see the changes when they were handed over, in whole
	// milliseconds, rounded down; [event.Unknown] if that was not yet known.
	Age time.Duration
}

// Encoder makes a record out of invalidations of one source and term. The zero Encoder is ready for use.
type Encoder struct {
	state
	body    []byte // the changes so far, the last one without its closing brackets
	table   []byte // the effects so far
	effects []usedEffect

	gtids gtidWriter
	times timeWriter
	json  scanner
}

// state is what an Encoder knows of what it has written: with it, an item that does not fit is taken back.
type state struct {
	count, forgotten int
	first, last      event.Version

	// What the invalidation before had: the next one of the same continues its change, its row and its list.
	batch   *event.Batch
	ordinal uint32
	origin  *event.Placed // nil: there was none
	common  *event.Common // of the origin
	row     uint32
	list    list
	whole   bool // it was an item that could be forgotten
}

// closeChange are the brackets that close the list of rows and their change.
const closeChange = `]}`

// slack is what a plain delete takes in a record in addition to its key, at most except with unusual table names.
const slack = 512

// Add appends invalidation i of b. Those of one record are added in commit order; they may be of several batches of
// the same source and term. Consecutive ones of the same origin, row and action are written as one list. The encoder
// keeps the last batch until Reset, so it must be one that was handed over: nobody writes to it.
func (e *Encoder) Add(b *event.Batch, i int) { e.TryAdd(b, i, math.MaxInt) }

// TryAdd is [Encoder.Add] for a record that is to have about most bytes. It returns false when there is no room, and
// leaves the record as it was then. There always is room for the first invalidation of a record: one that is too large
// by itself loses its payload, and forgets what the cache holds; if that is not enough its notices too. Of what
// is left, only the key can be long. [Encoder.Forgotten] counts it.
//
// An invalidation whose fields are not what its action has becomes a plain delete: nobody could carry it out, and a
// cache may forget. It is counted with them.
func (e *Encoder) TryAdd(b *event.Batch, i, most int) bool {
	if inv := &b.Invalidations[i]; inv.Effect == 0 && inv.Action == event.ActionDelete {
		return e.tryKey(b, i, most)
	}
	return e.tryItem(b, i, most)
}

func (e *Encoder) tryItem(b *event.Batch, i, most int) bool {
	before, body, table, effects := e.state, len(e.body), len(e.table), len(e.effects)
	for without := nothing; without <= payloadAndNotices; without++ {
		ok := e.addItem(b, i, without)
		if ok && e.Len() <= most {
			e.forgotten += min(int(without), 1)
			return true
		}
		e.state, e.body, e.table, e.effects = before, e.body[:body], e.table[:table], e.effects[:effects]
		if !ok {
			break
		}
		if e.count > 0 {
			return false
		}
	}
	ok := e.tryKey(b, i, most)
	if ok {
		e.forgotten++
	}
	return ok
}

// tryKey is TryAdd for a plain delete.
func (e *Encoder) tryKey(b *event.Batch, i, most int) bool {
	inv, key := &b.Invalidations[i], b.Key(i)
	if e.count > 0 && e.Len()+len(key) > most-slack {
		return false
	}
	// What is no UTF-8 has no JSON string.
	simple := plain(key, 0) == len(key)
	binary := !simple && !utf8.ValidString(key)
	l := listDelete
	if binary {
		l = listDeleteBase64
	}
	if e.batch == b && e.ordinal == inv.Origin && e.row == inv.Row && e.list == l {
		e.body = append(e.body, ',') // most keys follow one of the same row
		e.count++
	} else {
		e.begin(b, i, l)
	}
	switch {
	case simple:
		e.body = append(append(append(e.body, '"'), key...), '"')
	case binary:
		e.body = append(e.body, '"')
		e.body = base64.StdEncoding.AppendEncode(e.body, []byte(key))
		e.body = append(e.body, '"')
	default:
		e.body = appendString(e.body, key)
	}
	return true
}

// begin appends what comes before invalidation i of b in a list.
func (e *Encoder) begin(b *event.Batch, i int, l list) {
	inv := &b.Invalidations[i]
	switch {
	case !e.continues(b, inv.Origin):
		o := &b.Origins[inv.Origin]
		e.beginEvent(o, &b.Commons[o.Common])
		e.beginRow(b.Version(i), l)
	case e.row != inv.Row || e.list != l:
		e.closeRow()
		e.body = append(e.body, ',')
		e.beginRow(b.Version(i), l)
	default:
		e.body = append(e.body, ',')
	}
	e.batch, e.ordinal, e.whole = b, inv.Origin, false
	e.count++
}

// continues reports whether the change that is open has the given origin of b. Mostly it is the very same one;
// otherwise it is compared, for a large rows event is handed over in several batches.
func (e *Encoder) continues(b *event.Batch, ordinal uint32) bool {
	if e.batch == b && e.ordinal == ordinal {
		return true
	}
	l, o := e.origin, &b.Origins[ordinal]
	if l == nil || l.Event != o.Event || l.Number != o.Number || l.Committed != o.Committed {
		return false
	}
	c := &b.Commons[o.Common]
	return sameMapping(e.common, c) && sameServer(e.common, c)
}

// sameMapping and sameServer report what an origin has in common with the last change: all that a change says of its
// mapping, and all of its GTID but the number.

func sameMapping(l, c *event.Common) bool {
	return l == c || l.Mapping == c.Mapping && l.D == c.D && l.RateLimit == c.RateLimit && l.Table == c.Table
}

func sameServer(l, c *event.Common) bool { return l == c || l.GTID(0) == c.GTID(0) }

// beginEvent appends what comes before the rows of an event. One of the same transaction and mapping as the last, in
// the same file, goes on in the same change with its position: statements that change many rows make an event for every
// 8 KiB of them, and a partition gets few keys of each.
func (e *Encoder) beginEvent(o *event.Placed, c *event.Common) {
	l := e.origin
	switch {
	case e.count == 0:
		e.beginChange(o, c)
	case l.Event.File == o.Event.File && l.Event.Epoch == o.Event.Epoch && l.Number == o.Number &&
		l.Committed == o.Committed &&
		sameMapping(e.common, c) && sameServer(e.common, c):
		e.closeRow()
		e.body = append(strconv.AppendUint(append(e.body, ','), o.Event.Pos, 10), ',')
		e.origin, e.common = o, c
	default:
		e.closeRow()
		e.body = append(e.body, closeChange+`,`...)
		e.beginChange(o, c)
	}
}

// beginChange appends a change up to its rows. What is as in the change before is left out, which is known by there
// being no table. What the change before had and this one has not cannot be said so.
func (e *Encoder) beginChange(o *event.Placed, c *event.Common) {
	l, lc := e.origin, e.common
	e.origin, e.common = o, c
	gtid, committed := o.Number != 0, writable(o.Committed)
	again := false
	if l != nil && sameMapping(lc, c) {
		newGTID, newTime := l.Number != o.Number || !sameServer(lc, c), l.Committed != o.Committed
		if again = (!newGTID || gtid) && (!newTime || committed); again {
			gtid, committed = newGTID, newTime
		}
	}
	b := e.body
	if again {
		b = append(b, `{"version":"`...)
	} else {
		b = append(b, `{"table":`...)
		b = appendString(b, c.Table)
		b = append(b, `,"version":"`...)
	}
	b = appendPlace(b, o.Event)
	if gtid {
		b = append(b, `","gtid":"`...)
		b = e.gtids.append(b, c, o.Number)
	}
	if committed {
		b = append(b, `","committed":"`...)
		b = e.times.append(b, o.Committed)
	}
	b = append(b, '"')
	if !again {
		b = appendMapping(b, c)
	}
	e.body = append(b, `,"rows":[`...)
}

// appendMapping appends what a change says of its mapping.
func appendMapping(b []byte, c *event.Common) []byte {
	b = append(b, `,"second_delete_ms":`...)
	b = strconv.AppendInt(b, roundUp(c.D), 10)
	b = append(b, `,"mapping":`...)
	b = strconv.AppendInt(b, int64(max(c.Mapping, 0)), 10)
	if c.RateLimit > 0 {
		b = append(b, `,"rate_limit":`...)
		b = strconv.AppendInt(b, int64(min(c.RateLimit, math.MaxInt32)), 10)
	}
	return b
}

// roundUp returns d in milliseconds, rounded up: a second delete may come later, but never earlier.
func roundUp(d time.Duration) int64 {
	ms := int64(max(d, 0) / time.Millisecond)
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// beginRow appends what comes before the first key or item of a row. A row that has only keys to delete, as most have,
// is a list of its ordinal and the keys.
func (e *Encoder) beginRow(v event.Version, l list) {
	if e.count == 0 {
		e.first = v
	}
	if v.Compare(e.last) > 0 {
		e.last = v
	}
	e.row, e.list = v.Row, l
	if l == listDelete {
		e.body = append(strconv.AppendUint(append(e.body, '['), uint64(v.Row), 10), ',')
		return
	}
	b := append(e.body, `{"row":`...)
	b = strconv.AppendUint(b, uint64(v.Row), 10)
	b = append(b, `,"`...)
	b = append(b, l.String()...)
	e.body = append(b, `":[`...)
}

// closeRow appends the brackets that close the row.
func (e *Encoder) closeRow() {
	if e.body = append(e.body, ']'); e.list != listDelete {
		e.body = append(e.body, '}')
	}
}

// Len returns how many bytes of the record there are so far, but for its header: some 150 bytes and the source's name.
func (e *Encoder) Len() int { return len(e.body) + len(e.table) }

// Count returns how many invalidations were added.
func (e *Encoder) Count() int { return e.count }

// Forgotten returns how many of them lost their payload: those that were too large for a record, see [Encoder.TryAdd],
// and those whose fields are not what their action has.
func (e *Encoder) Forgotten() int { return e.forgotten }

// CanForget reports whether the last invalidation that was added would be shorter without its payload.
func (e *Encoder) CanForget() bool { return e.whole }

// First returns the version of the first invalidation added; zero if there is none.
func (e *Encoder) First() event.Version { return e.first }

// Last returns the highest version added; zero if there is none.
func (e *Encoder) Last() event.Version { return e.last }

// Finish returns the record, which belongs to the caller. There must be an invalidation in it: one without is refused
// by Parse. The encoder stays as it is until Reset.
func (e *Encoder) Finish(h Header) []byte {
	const numbers = 256 // more than the names of the fields and the numbers in them can take
	b := make([]byte, 0, numbers+2*len(h.Source)+e.Len())
	b = append(b, `{"format":3,"source":`...)
	b = appendString(b, h.Source)
	b = append(b, `,"term":`...)
	b = strconv.AppendUint(b, h.Term, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, h.Seq, 10)
	b = append(b, `,"prev":"`...)
	b = appendVersion(b, h.Prev)
	b = append(b, `","last":"`...)
	b = appendVersion(b, e.last)
	b = append(b, '"')
	if h.Age >= 0 {
		b = append(b, `,"age_ms":`...)
		b = strconv.AppendInt(b, int64(h.Age/time.Millisecond), 10)
	}
	if len(e.table) > 0 {
		b = append(b, `,"effects":[`...)
		b = append(b, e.table...)
		b = append(b, ']')
	}
	b = append(b, `,"changes":[`...)
	b = append(b, e.body...)
	switch {
	case e.count == 0:
	case e.list == listDelete:
		b = append(b, `]`+closeChange...)
	default:
		b = append(b, `]}`+closeChange...)
	}
	return append(b, `]}`...)
}

// keptBody bounds the buffer that Reset keeps for the next record.
const keptBody = 4 << 20

// Reset empties the encoder for the next record.
func (e *Encoder) Reset() {
	body, buf := e.body[:0], e.json.buf
	if cap(body) > keptBody {
		body = nil
	}
	if cap(buf) > keptBody {
		buf = nil
	}
	clear(e.effects) // not to keep them
	*e = Encoder{
		body: body, table: e.table[:0], effects: e.effects[:0], gtids: e.gtids, times: e.times, json: scanner{buf: buf},
	}
}
