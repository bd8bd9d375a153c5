package binlog

import (
	"encoding/hex"
	"net/netip"
)

// appendInet prints an INET4 or INET6 of MariaDB, which lies in the image without its trailing zeros.
func (r *rowReader) appendInet(raw []byte, size int) bool {
	var b [16]byte
	if len(raw) > size {
		return false
	}
	copy(b[:], raw)
	if size == 4 {
		r.text = netip.AddrFrom4([4]byte(b[:4])).AppendTo(r.text)
	} else {
		r.text = netip.AddrFrom16(b).AppendTo(r.text)
	}
	return true
}

// appendUUID prints a UUID of MariaDB.
func appendUUID(dst, raw []byte) []byte {
	var b [16]byte
	copy(b[:], raw)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}
