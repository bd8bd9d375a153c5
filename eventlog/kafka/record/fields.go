package record

import (
	"bytes"
	"fmt"
	"time"

	"github.com/freshet/freshet/event"
)

// fields remembers which fields of an object there were.
type fields uint

// once reports whether the field with the given bit had not come before.
func (f *fields) once(s *scanner, bit fields) {
	if *f&bit != 0 {
		s.fail("a field not to come twice")
	}
	*f |= bit
}

// format reads the number of the format, which must be from 1 to newest.
func (s *scanner) format(newest uint64) {
	if f := s.uint(1<<64-1, "a format's number"); (f < 1 || f > newest) && s.err == nil {
		s.stop(fmt.Errorf("%w: format %d, and this one reads formats up to %d", ErrUnknownFormat, f, newest))
	}
}

// otherFormat returns the error of a document of another format, whatever else is in it: its number need not stand
// before what is different. Nil if there is none.
func otherFormat(data []byte, newest uint64) error {
	s := scanner{data: data}
	for more := s.begin('{', '}', "an object"); more; more = s.more('}') {
		if string(s.name()) == "format" {
			s.format(newest)
			break
		}
		s.skip(0)
	}
	if s.err != nil && !isMalformed(s.err) {
		return s.err
	}
	return nil
}

// place reads the version of a rows event, epoch/file/position.
func (s *scanner) place() event.Version {
	const want = "a place in the binlog: epoch/file/position"
	text := s.text(want)
	v, n := placeOf(text, 0)
	if n != len(text) || n == 0 {
		s.fail(want)
		return event.Version{}
	}
	return v
}

// version reads the version of a row: epoch/file/position/row.
func (s *scanner) version() event.Version {
	const want = "a version: epoch/file/position/row"
	text := s.text(want)
	v, n := placeOf(text, 0)
	if n > 0 && n < len(text) && text[n] == '/' {
		row, end := digits(text, n+1)
		if end == len(text) && end > n+1 && row <= 1<<32-1 {
			v.Row = uint32(row)
			return v
		}
	}
	s.fail(want)
	return event.Version{}
}

// placeOf reads the place at text[at] and returns where it ends, 0 if there is none.
func placeOf(text []byte, at int) (v event.Version, end int) {
	epoch, a := digits(text, at)
	if a == at || a == len(text) || text[a] != '/' || epoch > 1<<32-1 {
		return v, 0
	}
	file, b := digits(text, a+1)
	if b == a+1 || b == len(text) || text[b] != '/' || file > 1<<32-1 {
		return v, 0
	}
	pos, c := digits(text, b+1)
	if c == b+1 {
		return v, 0
	}
	return event.Version{Epoch: uint32(epoch), File: uint32(file), Pos: pos}, c
}

// interned makes one string of equal ones that follow each other.
type interned string

func (i *interned) of(text []byte) string {
	if string(text) != string(*i) {
		*i = interned(text)
	}
	return string(*i)
}

// gtidReader reads GTIDs. It keeps the server that it read last.
type gtidReader struct {
	text []byte // uuid:, or uuid:tag:
	like event.GTID
}

func (r *gtidReader) read(s *scanner) event.GTID {
	const want = "a GTID: uuid:number, uuid:tag:number or domain-server-number"
	text := s.text(want)
	colon := bytes.LastIndexByte(text, ':')
	number, end := digits(text, colon+1)
	switch {
	case colon < 0:
		if g, ok := mariaGTID(text); ok {
			return g
		}
	case end != len(text) || number == 0:
	case bytes.Equal(text[:colon+1], r.text):
		g := r.like
		g.Number = number
		return g
	default:
		if like, ok := server(text[:colon]); ok {
			r.text, r.like = append(r.text[:0], text[:colon+1]...), like
			like.Number = number
			return like
		}
	}
	s.fail(want)
	return event.GTID{}
}

// number reads the rest of a GTID at data[at], which must be of the same server as the others that have c in common,
// and returns where it ends, 0 if it is any other.
func (r *gtidReader) number(data []byte, at int, c *event.Common) (n uint64, end int) {
	at, ok := follows(data, at, r.text)
	if !ok || len(r.text) == 0 || c.GTID(0) != r.like {
		return 0, 0
	}
	if n, end = digits(data, at); n == 0 {
		return 0, 0
	}
	return n, end
}

// mariaGTID reads domain-server-number.
func mariaGTID(text []byte) (event.GTID, bool) {
	domain, a := digits(text, 0)
	if a == 0 || a == len(text) || text[a] != '-' {
		return event.GTID{}, false
	}
	server, b := digits(text, a+1)
	if b == a+1 || b == len(text) || text[b] != '-' {
		return event.GTID{}, false
	}
	number, c := digits(text, b+1)
	if c == b+1 || c != len(text) || number == 0 || domain > 1<<32-1 || server > 1<<32-1 {
		return event.GTID{}, false
	}
	return event.GTID{Domain: uint32(domain), Server: uint32(server), Number: number}, true
}

// server reads uuid or uuid:tag.
func server(text []byte) (event.GTID, bool) {
	sid, tag, tagged := bytes.Cut(text, []byte(":"))
	uuid, err := event.ParseUUID(string(sid))
	if err != nil || uuid == [16]byte{} || tagged && !isTag(tag) {
		return event.GTID{}, false
	}
	return event.GTID{UUID: uuid, Tag: string(tag)}, true
}

// isTag reports whether text is the tag of a GTID (MySQL Reference Manual, "GTID Format and Storage").
func isTag(text []byte) bool {
	for i, c := range text {
		if (c < 'a' || c > 'z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return 0 < len(text) && len(text) <= 32
}

// timeReader reads RFC 3339. It keeps the second that it read last.
type timeReader struct {
	text   [len(dateTime)]byte
	second int64
	known  bool
}

func (r *timeReader) read(s *scanner) time.Time {
	const want = "a time as RFC 3339 writes it"
	text := s.text(want)
	if len(text) > len(dateTime) && r.known && string(text[:len(dateTime)]) == string(r.text[:]) {
		if nanos, ok := fractionOfUTC(text[len(dateTime):]); ok {
			return time.Unix(r.second, nanos).UTC()
		}
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil || !isTime(t) {
		s.fail(want)
		return time.Time{}
	}
	if bytes.HasSuffix(text, []byte("Z")) {
		r.second, r.known = t.Unix(), true
		copy(r.text[:], text)
	}
	return t.UTC()
}

// micros reads a time of the second that was read last, in the very form that an Encoder gives it, at data[at]. It
// returns its microseconds since 1970 and where it ends, 0 if it is any other.
func (r *timeReader) micros(data []byte, at int) (micros int64, end int) {
	at, ok := follows(data, at, r.text[:])
	if ok && r.known {
		at, ok = follows(data, at, ".")
	}
	if !ok || !r.known || at+6 > len(data) {
		return 0, 0
	}
	for _, c := range data[at : at+6] {
		if c < '0' || c > '9' {
			return 0, 0
		}
		micros = micros*10 + int64(c-'0')
	}
	if end, ok = follows(data, at+6, "Z"); !ok {
		return 0, 0
	}
	return r.second*million + micros, end
}

// fractionOfUTC reads .123456Z, or Z.
func fractionOfUTC(text []byte) (nanos int64, ok bool) {
	n := len(text) - 1
	if text[n] != 'Z' || n == 1 || n > 10 {
		return 0, false
	}
	if n == 0 {
		return 0, true
	}
	if text[0] != '.' {
		return 0, false
	}
	for i := range 9 {
		c := byte('0')
		if i+1 < n {
			c = text[i+1]
		}
		if c < '0' || c > '9' {
			return 0, false
		}
		nanos = nanos*10 + int64(c-'0')
	}
	return nanos, true
}
