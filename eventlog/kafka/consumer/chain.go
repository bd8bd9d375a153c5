package consumer

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// maxMetadata is how much text goes with a commit: with [broker.WorkedOn] no more than the default of the brokers'
// offset.metadata.max.bytes, which is what is read.
const (
	maxMetadata = maxRead - broker.MaxWorkedOn
	maxRead     = 4096
)

// maxSources bounds how many sources a chain remembers in one partition; the least recent is forgotten. It is far more
// than the text with a commit holds.
const maxSources = 256

// link is what was last seen of a source in a partition.
type link struct {
	term, seq uint64
	version   event.Version // the highest
	// buried counts records since then that could not be read and may have been this source's.
	buried uint64
	used   uint64 // when, by the chain's clock
}

// chain remembers what was last seen of each source in a partition, so that records which the brokers have lost are
// noticed: a leader numbers its records in each partition, and its first one names the last version before it.
type chain struct {
	links map[string]link
	clock uint64
	// whole: all that the partition ever held was seen, so a source that is not known has nothing before its first record.
	// With a topic go the commits of its groups: one that is created again looks new to the group too, and only its
	// sources remember.
	whole  bool
	buried uint64 // of a chain that is whole: of sources that it does not know
}

// check says what a record is to the chain: its successor, whose link is returned; something that was seen before or
// that an old leader left behind, which changes nothing: the link that stays is returned, and has a higher term then;
// or proof that records before it are missing.
func (c *chain) check(h *record.Header, last event.Version) (next link, moves bool, missing *Break) {
	next = link{term: h.Term, seq: h.Seq, version: last}
	l, known := c.links[h.Source]
	switch {
	case !known && c.whole && (h.Seq > 1+c.buried || !h.Prev.IsZero() && c.buried == 0):
		return next, true, &Break{Source: h.Source, Term: h.Term, Seq: h.Seq, Prev: h.Prev}
	case !known:
		return next, true, nil // the chain begins here
	case h.Term < l.term, h.Term == l.term && h.Seq <= l.seq:
		return l, false, nil
	}
	// What was buried may have been what is missing.
	want, ok := l.seq+1, true
	if h.Term > l.term {
		want, ok = 1, h.Prev.Compare(l.version) <= 0 || l.buried > 0
	}
	if h.Seq > want+l.buried || h.Seq < want || !ok {
		return next, true, &Break{
			Source: h.Source, Term: h.Term, Seq: h.Seq, Prev: h.Prev, SeenTerm: l.term, SeenSeq: l.seq, Seen: l.version,
		}
	}
	if l.version.Compare(last) > 0 {
		next.version = l.version
	}
	return next, true, nil
}

// move sets what was last seen of a source.
func (c *chain) move(source string, l link) {
	if c.links == nil {
		c.links = map[string]link{}
	}
	c.clock++
	l.used = c.clock
	c.links[source] = l
	if len(c.links) > maxSources {
		oldest := source
		for s, l := range c.links {
			if l.used < c.links[oldest].used {
				oldest = s
			}
		}
		delete(c.links, oldest)
		c.whole = false
	}
}

// bury takes note of a record that could not be read and may have been a source's; "": it was none of freshet's, and
// says nothing of what is missing.
func (c *chain) bury(source string) {
	l, known := c.links[source]
	switch {
	case source == "":
	case known:
		l.buried++
		c.links[source] = l
	default:
		c.buried++
	}
}

// suspect returns the source that a record which cannot be read may be of: one that says so twice, in its key and,
// being a JSON object or the beginning of one, in its value; "" if it is none of freshet's. Another program that writes
// to the topic must not excuse the loss of our records.
func suspect(r *broker.Record) string {
	name := strconv.AppendQuote(nil, string(r.Key))
	if len(r.Key) == 0 || !bytes.HasPrefix(bytes.TrimLeft(r.Value, " \t\r\n"), []byte("{")) ||
		!bytes.Contains(r.Value, name) {
		return ""
	}
	return string(r.Key)
}

// clone returns a copy that shares nothing.
func (c *chain) clone() chain {
	out := chain{clock: c.clock, links: make(map[string]link, len(c.links))}
	for s, l := range c.links {
		out.links[s] = l
	}
	return out
}

// signature begins the metadata of our commits, with the number of their format.
const signature = "freshet1"

// signed reports whether the metadata of a commit is freshet's.
func signed(metadata string) bool {
	first, _, _ := strings.Cut(metadata, ";")
	return first == signature
}

// encode writes the chain as the metadata of a commit: the most recent sources first, as many as fit.
func (c *chain) encode() string {
	sources := make([]string, 0, len(c.links))
	for s := range c.links {
		sources = append(sources, s)
	}
	slices.SortFunc(sources, func(a, b string) int {
		if c.links[a].used > c.links[b].used {
			return -1
		}
		return 1
	})
	out := append(make([]byte, 0, 128), signature...)
	for _, s := range sources {
		l, from := c.links[s], len(out)
		out = append(append(append(out, ';'), url.QueryEscape(s)...), ',')
		out = append(strconv.AppendUint(out, l.term, 10), ',')
		out = append(strconv.AppendUint(out, l.seq, 10), ',')
		out = append(out, l.version.String()...)
		if l.buried > 0 {
			out = strconv.AppendUint(append(out, ','), l.buried, 10)
		}
		if len(out) > maxMetadata {
			return string(out[:from])
		}
	}
	return string(out)
}

// parseChain reads what encode wrote. Metadata of somebody else, or a part that it does not understand, is passed
// over: the chain then begins again, which lets a gap before it go unnoticed but invents none.
func parseChain(metadata string) chain {
	var c chain
	parts := strings.Split(metadata, ";")
	if parts[0] != signature || len(metadata) > maxRead {
		return c
	}
	for _, part := range slices.Backward(parts[1:]) { // the most recent last
		fields := strings.Split(part, ",")
		if len(fields) < 4 || len(fields) > 5 {
			continue
		}
		source, err0 := url.QueryUnescape(fields[0])
		term, err1 := strconv.ParseUint(fields[1], 10, 64)
		seq, err2 := strconv.ParseUint(fields[2], 10, 64)
		version, err3 := event.ParseVersion(fields[3])
		var buried uint64
		var err4 error
		if len(fields) == 5 {
			buried, err4 = strconv.ParseUint(fields[4], 10, 32)
		}
		if err0 == nil && err1 == nil && err2 == nil && err3 == nil && err4 == nil {
			c.move(source, link{term: term, seq: seq, version: version, buried: buried})
		}
	}
	return c
}
