package binlog

import (
	"encoding/hex"
	"net/netip"
	"strconv"
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
		r.text = appendInet6(r.text, &b)
	}
	return true
}

// appendInet6 prints an IPv6 address as MariaDB does, which is not as RFC 5952 says: a single group of zeros is
// shortened too, and addresses that embed one of IPv4 end with it.
func appendInet6(dst []byte, b *[16]byte) []byte {
	var words [8]uint64
	for i := range words {
		words[i] = uint64(b[2*i])<<8 | uint64(b[2*i+1])
	}
	gap, length := 0, 0
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && words[i+n] == 0 {
			n++
		}
		if n > length {
			gap, length = i, n
		}
		i += n
	}
	end := 8
	if gap == 0 && (length == 6 || length == 5 && words[5] == 0xffff) {
		end = 6
	}
	for i := 0; i < end; i++ {
		if length > 0 && i == gap {
			dst = append(dst, "::"...)
			i += length - 1
			continue
		}
		if i > 0 && (length == 0 || i != gap+length) {
			dst = append(dst, ':')
		}
		dst = strconv.AppendUint(dst, words[i], 16)
	}
	if end == 6 {
		if length == 5 {
			dst = append(dst, ':')
		}
		dst = netip.AddrFrom4([4]byte(b[12:])).AppendTo(dst)
	}
	return dst
}

// appendUUID prints a UUID of MariaDB, which lies in the image as it is written.
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
