package record

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

// Format is the number of the format that this package writes and reads.
const Format = 1

// Header is what a record says beside its changes.
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
	body        []byte // the changes so far, the last one without its closing brackets
	count       int
	first, last event.Version

	// What the invalidation before had: the next one of the same continues its change, its row and its list of keys.
	batch   *event.Batch
	ordinal uint32
	origin  event.Origin
	row     uint32
	action  event.Action
	binary  bool
	// head is where its change begins in body, where the place in its version begins and ends, and where its rows
	// begin.
	head, place, rest, rows int

	gtids gtidWriter
	times timeWriter
}

// The brackets that close a list of keys and its row, then the list of rows and their change.
const (
	closeRow    = `]}`
	closeChange = `]}`
)

// Add appends invalidation i of b. Those of one record are added in commit order; they may be of several batches of
// the same source and term. Consecutive ones of the same origin and row are written as one. The encoder keeps the last
// batch until Reset, so it must be one that was handed over: nobody writes to it.
func (e *Encoder) Add(b *event.Batch, i int) {
	inv, key := &b.Invalidations[i], b.Key(i)
	// What is no UTF-8 has no JSON string.
	simple := plain(key, 0) == len(key)
	binary := !simple && !utf8.ValidString(key)
	switch {
	case !e.continues(b, inv.Origin):
		if e.count > 0 {
			e.body = append(e.body, closeRow+closeChange+`,`...)
		}
		e.beginChange(&b.Origins[inv.Origin])
		e.beginRow(b.Version(i), inv.Action, binary)
	case e.row != inv.Row || e.action != inv.Action || e.binary != binary:
		e.body = append(e.body, closeRow+`,`...)
		e.beginRow(b.Version(i), inv.Action, binary)
	default:
		e.body = append(e.body, ',')
	}
	e.batch, e.ordinal = b, inv.Origin
	e.count++
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
}

// continues reports whether the change that is open has the given origin of b. Mostly it is the very same one;
// otherwise it is compared, for a large rows event is handed over in several batches.
func (e *Encoder) continues(b *event.Batch, ordinal uint32) bool {
	if e.batch == b && e.ordinal == ordinal {
		return true
	}
	o := &b.Origins[ordinal]
	return e.count > 0 && e.origin.Event == o.Event && e.resembles(o)
}

// resembles reports whether the last change had an origin like o, but for its place.
func (e *Encoder) resembles(o *event.Origin) bool {
	l := &e.origin
	return l.Mapping == o.Mapping && l.D == o.D && l.Tx.GTID == o.Tx.GTID && l.Tx.Committed.Equal(o.Tx.Committed) &&
		l.Table == o.Table
}

func (e *Encoder) beginChange(o *event.Origin) {
	again := e.count > 0 && e.resembles(o)
	e.origin = *o
	b, head := e.body, len(e.body)
	if again {
		// Statements that change many rows make an event for every 8 KiB of them, so this is the usual case.
		b = append(b, b[e.head:e.place]...)
	} else {
		b = append(b, `{"table":`...)
		b = appendString(b, o.Table)
		b = append(b, `,"version":"`...)
	}
	place := len(b)
	b = appendPlace(b, o.Event)
	rest := len(b)
	if again {
		b = append(b, b[e.rest:e.rows]...)
	} else {
		b = e.appendRest(b, o)
	}
	e.body, e.head, e.place, e.rest, e.rows = b, head, place, rest, len(b)
}

// appendRest appends what follows the place of a change, up to its rows.
func (e *Encoder) appendRest(b []byte, o *event.Origin) []byte {
	if !o.Tx.GTID.IsZero() {
		b = append(b, `","gtid":"`...)
		b = e.gtids.append(b, &o.Tx.GTID)
	}
	if writable(o.Tx.Committed) {
		b = append(b, `","committed":"`...)
		b = e.times.append(b, o.Tx.Committed)
	}
	b = append(b, `","second_delete_ms":`...)
	b = strconv.AppendInt(b, roundUp(o.D), 10)
	b = append(b, `,"mapping":`...)
	b = strconv.AppendInt(b, int64(max(o.Mapping, 0)), 10)
	return append(b, `,"rows":[`...)
}

// roundUp returns d in milliseconds, rounded up: a second delete may come later, but never earlier.
func roundUp(d time.Duration) int64 {
	ms := int64(max(d, 0) / time.Millisecond)
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

func (e *Encoder) beginRow(v event.Version, action event.Action, binary bool) {
	if e.count == 0 {
		e.first = v
	}
	if v.Compare(e.last) > 0 {
		e.last = v
	}
	e.row, e.action, e.binary = v.Row, action, binary
	b := append(e.body, `{"row":`...)
	b = strconv.AppendUint(b, uint64(v.Row), 10)
	if action == event.ActionDelete && !binary {
		e.body = append(b, `,"delete":[`...)
		return
	}
	b = append(b, `,"`...)
	b = append(b, action.String()...)
	if binary {
		b = append(b, base64Suffix...)
	}
	e.body = append(b, `":[`...)
}

// base64Suffix ends the name of an action whose keys are written in base64.
const base64Suffix = "_base64"

// Len returns how many bytes of the record there are so far, but for its header: some 150 bytes and the source's name.
func (e *Encoder) Len() int { return len(e.body) }

// Count returns how many invalidations were added.
func (e *Encoder) Count() int { return e.count }

// First returns the version of the first invalidation added; zero if there is none.
func (e *Encoder) First() event.Version { return e.first }

// Last returns the highest version added; zero if there is none.
func (e *Encoder) Last() event.Version { return e.last }

// Finish returns the record, which belongs to the caller. There must be an invalidation in it: one without is refused by
// Parse. The encoder stays as it is until Reset.
func (e *Encoder) Finish(h Header) []byte {
	const numbers = 256 // more than the names of the fields and the numbers in them can take
	b := make([]byte, 0, numbers+2*len(h.Source)+len(e.body))
	b = append(b, `{"format":1,"source":`...)
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
	b = append(b, `,"changes":[`...)
	b = append(b, e.body...)
	if e.count > 0 {
		b = append(b, closeRow+closeChange...)
	}
	return append(b, `]}`...)
}

// keptBody bounds the buffer that Reset keeps for the next record.
const keptBody = 4 << 20

// Reset empties the encoder for the next record.
func (e *Encoder) Reset() {
	body := e.body[:0]
	if cap(body) > keptBody {
		body = nil
	}
	*e = Encoder{body: body, gtids: e.gtids, times: e.times}
}
