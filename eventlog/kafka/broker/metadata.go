package broker

import (
	"encoding/binary"
	"io"

	"github.com/segmentio/kafka-go/protocol"
)

// requests passes a stream of requests on to a broker, and takes out of those for metadata what lets the broker create
// the topics that they name. The library's consumer groups ask so, all the time, and auto.create.topics.enable is true
// unless somebody has changed it: a topic that was deleted would be back within seconds, with the broker's settings in
// place of ours. A request that is split over several writes is held until it is whole.
// Source: https://kafka.apache.org/protocol#The_Messages_Metadata, versions 4 to 8, allow_auto_topic_creation.
type requests struct {
	pass int    // bytes of a request under way that go out as they are
	held []byte // the beginning of a request that is not known yet, or that is for metadata
}

// head is how long a request's beginning is that says how long the request is, and for what.
const head = 4 + 2 + 2

// write sends p.
func (r *requests) write(w io.Writer, p []byte) error {
	for len(p) > 0 {
		if r.pass == 0 && len(r.held) == 0 && len(p) >= head && !forMetadata(p) {
			r.pass = size(p)
		}
		var out []byte
		if r.pass > 0 {
			n := min(r.pass, len(p))
			out, p = p[:n], p[n:]
			r.pass -= n
		} else {
			out, p = r.hold(p)
		}
		if len(out) == 0 {
			continue
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps bytes of a request, and returns those that may go out now, and what is left of p.
func (r *requests) hold(p []byte) (out, rest []byte) {
	need := head
	if len(r.held) >= head {
		need = size(r.held)
	}
	n := min(need-len(r.held), len(p))
	r.held, rest = append(r.held, p[:n]...), p[n:]
	switch {
	case len(r.held) < head:
		return nil, rest
	case !forMetadata(r.held):
		r.pass = size(r.held) - len(r.held)
	case len(r.held) < size(r.held):
		return nil, rest
	default:
		createNothing(r.held)
	}
	out, r.held = r.held, nil
	return out, rest
}

// size returns how long the request is that begins with p, its own length included.
func size(p []byte) int { return max(4+int(int32(binary.BigEndian.Uint32(p))), head) }

func forMetadata(p []byte) bool {
	return protocol.ApiKey(binary.BigEndian.Uint16(p[4:])) == protocol.Metadata
}

// createNothing clears the flag in a request for metadata. Before version 4 there is none: no broker that freshet works
// with is asked so for topics. From version 9 on requests look otherwise, and the library does not know them.
func createNothing(p []byte) {
	if v := binary.BigEndian.Uint16(p[6:]); v < 4 || v > 8 {
		return
	}
	r := reader{b: p[head:]}
	r.skip(4) // correlation
	r.skip(max(int(r.i16()), 0))
	for range max(r.i32(), 0) { // null: all topics
		r.skip(int(r.i16()))
		if r.failed {
			return
		}
	}
	if flag := r.take(1); flag != nil {
		flag[0] = 0
	}
}
