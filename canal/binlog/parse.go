package binlog

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// ParseRotate reads the body of a ROTATE.
func ParseRotate(body []byte) (Rotate, error) {
	c := cursor{b: body}
	r := Rotate{Pos: c.u64(), File: string(c.rest())}
	if c.bad || r.File == "" {
		return Rotate{}, damaged(TypeRotate, "truncated")
	}
	return r, nil
}

// ParseXAPrepare reads the body of an XA_PREPARE.
func ParseXAPrepare(body []byte) (XAPrepare, error) {
	c := cursor{b: body}
	x := XAPrepare{OnePhase: c.u8() != 0}
	format := c.u32()
	gtrid, bqual := c.u32(), c.u32()
	if gtrid > maxXIDPart || bqual > maxXIDPart {
		return XAPrepare{}, damaged(TypeXAPrepare, "an xid of %d and %d bytes; at most 64 each", gtrid, bqual)
	}
	x.XID = formatXID(format, c.bytes(int(gtrid)), c.bytes(int(bqual)))
	if c.bad {
		return XAPrepare{}, damaged(TypeXAPrepare, "truncated")
	}
	return x, nil
}

// maxXIDPart is the longest gtrid or bqual. Source: X/Open XA, MAXGTRIDSIZE and MAXBQUALSIZE.
const maxXIDPart = 64

// formatXID returns an xid as the servers write it in the XA COMMIT and XA ROLLBACK statements of the binlog.
func formatXID(format uint32, gtrid, bqual []byte) string {
	var b strings.Builder
	b.WriteString("X'")
	b.WriteString(hex.EncodeToString(gtrid))
	b.WriteString("',X'")
	b.WriteString(hex.EncodeToString(bqual))
	b.WriteString("',")
	b.WriteString(strconv.FormatUint(uint64(format), 10))
	return b.String()
}

// ParseHeartbeat reads the body of a HEARTBEAT of either version.
// Source: MySQL's codecs/binary.h (Heartbeat).
func ParseHeartbeat(h Header, body []byte) (Heartbeat, error) {
	if h.Type == TypeHeartbeat {
		if len(body) == 0 {
			return Heartbeat{}, damaged(h.Type, "truncated")
		}
		return Heartbeat{File: body, Pos: uint64(h.LogPos)}, nil
	}
	c := cursor{b: body}
	hb := Heartbeat{Wide: true}
	for {
		field := c.u8()
		if field == 0 || c.bad { // the end mark
			break
		}
		v := cursor{b: c.bytes(c.size())}
		switch field {
		case 1:
			hb.File = v.rest()
		case 2:
			hb.Pos = v.packed()
			c.bad = c.bad || v.bad
		}
	}
	if c.bad {
		return Heartbeat{}, damaged(h.Type, "truncated")
	}
	return hb, nil
}

// ParseIncident reads the body of an INCIDENT.
func ParseIncident(body []byte) (Incident, error) {
	c := cursor{b: body}
	i := Incident{Number: c.u16()}
	i.Message = string(c.bytes(int(c.u8())))
	if c.bad {
		return Incident{}, damaged(TypeIncident, "truncated")
	}
	return i, nil
}
