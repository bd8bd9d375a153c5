package record

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// maxEnds bounds the partitions that a mark names.
const maxEnds = 100_000

// MarkFormat is the number of the format of the marks that this package writes and reads.
const MarkFormat = 1

// Mark is a visibility mark as it travels through Kafka.
type Mark struct {
	event.Mark
	// AsOf is a moment on the reader's clock, and Ends say what was appended by then: everything that the source held
	// at AsOf lies below these offsets of the partitions (the index is the partition; -1: the reader appended nothing
	// there yet). Who has finished all that is fresh as of AsOf. Zero and nil when the reader cannot say.
	AsOf time.Time
	Ends []int64
}

// Append appends the mark's document to dst. Times are written to the microsecond, rounded down.
func (m *Mark) Append(dst []byte) []byte {
	var times timeWriter
	dst = append(dst, `{"format":1,"source":`...)
	dst = appendString(dst, m.Source)
	dst = append(dst, `,"term":`...)
	dst = strconv.AppendUint(dst, m.Term, 10)
	dst = append(dst, `,"version":"`...)
	dst = appendVersion(dst, m.Version)
	dst = append(dst, '"')
	if m.Server != "" {
		dst = append(dst, `,"server":`...)
		dst = appendString(dst, m.Server)
	}
	if writable(m.Made.UnixMicro()) {
		dst = append(dst, `,"made":"`...)
		dst = append(times.append(dst, m.Made.UnixMicro()), '"')
	}
	dst = append(dst, `,"read":`...)
	dst = strconv.AppendBool(dst, m.Read)
	if writable(m.AsOf.UnixMicro()) {
		dst = append(dst, `,"as_of":"`...)
		dst = append(times.append(dst, m.AsOf.UnixMicro()), '"')
	}
	if len(m.Ends) > 0 {
		dst = append(dst, `,"ends":[`...)
		for i, end := range m.Ends {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, end, 10)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// ParseMark is the inverse of [Mark.Append]. The error is [ErrMalformed] or [ErrUnknownFormat].
func ParseMark(data []byte) (Mark, error) {
	var m Mark
	s := scanner{data: data}
	m.read(&s)
	s.end()
	if s.err != nil {
		return Mark{}, fmt.Errorf("mark: %w", reason(s.err, data, MarkFormat))
	}
	return m, nil
}

// The fields of a mark, and those that it must have.
const (
	markFormat fields = 1 << iota
	markSource
	markTerm
	markVersion
	markServer
	markMade
	markRead
	markAsOf
	markEnds
	markFields = markFormat | markSource | markTerm | markVersion | markRead
)

func (m *Mark) read(s *scanner) {
	var has fields
	var times timeReader
	for more := s.begin('{', '}', "an object"); more; more = s.more('}') {
		switch string(s.name()) {
		case "format":
			has.once(s, markFormat)
			s.format(MarkFormat)
		case "source":
			has.once(s, markSource)
			m.Source = string(s.text("the name of a source"))
		case "term":
			has.once(s, markTerm)
			m.Term = s.uint(math.MaxUint64, "a term")
		case "version":
			has.once(s, markVersion)
			m.Version = s.version()
		case "server":
			has.once(s, markServer)
			m.Server = string(s.text("the name of a server"))
		case "made":
			has.once(s, markMade)
			m.Made = times.read(s)
		case "read":
			has.once(s, markRead)
			m.Read = s.bool("true or false")
		case "as_of":
			has.once(s, markAsOf)
			m.AsOf = times.read(s)
		case "ends":
			has.once(s, markEnds)
			m.ends(s)
		default:
			s.skip(0)
		}
	}
	switch {
	case has&markFields != markFields:
		s.fail("format, source, term, version and read before the end of the mark")
	case m.Source == "":
		s.fail("a source that has a name")
	}
}

func (m *Mark) ends(s *scanner) {
	for more := s.begin('[', ']', "a list of offsets"); more; more = s.more(']') {
		if len(m.Ends) == maxEnds {
			s.fail("fewer partitions")
			return
		}
		m.Ends = append(m.Ends, s.int(math.MaxInt64, "an offset"))
	}
}
