package charset

import (
	"encoding/binary"
	"unicode/utf8"
)

func appendBytes(dst, src []byte) []byte { return append(dst, src...) }

func appendASCII(dst, src []byte) []byte {
	for _, c := range src {
		if c >= utf8.RuneSelf {
			c = '?'
		}
		dst = append(dst, c)
	}
	return dst
}

// appendUTF8MB3 keeps what has at most three bytes.
func appendUTF8MB3(dst, src []byte) []byte {
	for len(src) > 0 {
		r, n := utf8.DecodeRune(src)
		switch {
		case r == utf8.RuneError && n == 1 && isSurrogate(src):
			n = 3
			dst = append(dst, src[:n]...)
		case r == utf8.RuneError && n == 1 || n > 3:
			n = 1
			dst = append(dst, '?')
		default:
			dst = append(dst, src[:n]...)
		}
		src = src[n:]
	}
	return dst
}

// isSurrogate reports whether src begins with half of a surrogate pair in three bytes, which MariaDB takes for a
// character.
func isSurrogate(src []byte) bool {
	return len(src) >= 3 && src[0] == 0xed && src[1] >= 0xa0 && src[1] <= 0xbf && src[2]&0xc0 == 0x80
}

// appendPoint appends any code point of up to three bytes, half of a surrogate pair included.
func appendPoint(dst []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(dst, 0xed, byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f))
	}
	return utf8.AppendRune(dst, r)
}

func appendUCS2(dst, src []byte) []byte {
	for ; len(src) >= 2; src = src[2:] {
		dst = appendPoint(dst, rune(binary.BigEndian.Uint16(src)))
	}
	return appendRest(dst, src)
}

// appendRest appends a question mark for each byte of a character that is cut off.
func appendRest(dst, src []byte) []byte {
	for range src {
		dst = append(dst, '?')
	}
	return dst
}

func appendUTF16(dst, src []byte) []byte { return appendUTF16In(dst, src, binary.BigEndian.Uint16) }

func appendUTF16LE(dst, src []byte) []byte {
	return appendUTF16In(dst, src, binary.LittleEndian.Uint16)
}

func appendUTF16In(dst, src []byte, unit func([]byte) uint16) []byte {
	for len(src) >= 2 {
		u, n := rune(unit(src)), 2
		switch {
		case u < 0xd800 || u > 0xdfff:
		case u < 0xdc00 && len(src) >= 4 && unit(src[2:])&0xfc00 == 0xdc00:
			u, n = 0x10000+(u-0xd800)<<10+rune(unit(src[2:])&0x3ff), 4
		default:
			u, n = '?', 1 // the servers go on with the next byte
		}
		dst = utf8.AppendRune(dst, u)
		src = src[n:]
	}
	return appendRest(dst, src)
}

func appendUTF32(dst, src []byte) []byte {
	for len(src) >= 4 {
		u, n := binary.BigEndian.Uint32(src), 4
		if u > utf8.MaxRune {
			u, n = '?', 1
		}
		dst = appendPoint(dst, rune(u))
		src = src[n:]
	}
	return appendRest(dst, src)
}
