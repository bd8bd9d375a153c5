package binlog

import (
	"bytes"
	"math"
	"strconv"
)

// decimalBytes is how many bytes a group of less than nine digits takes in a DECIMAL.
var decimalBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// groupLimit is the first number that does not fit into a group of so many digits.
var groupLimit = [10]uint64{1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000}

// decimalSize returns the length of a DECIMAL(precision, scale).
func decimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/9*4 + decimalBytes[whole%9] + scale/9*4 + decimalBytes[scale%9]
}

// appendDecimal prints a DECIMAL: groups of nine digits in 4 bytes, the highest first, from the decimal point outwards,
// and the group that is left over at either end in as few bytes as hold it. The highest bit is set; for a negative
// number all bits are inverted. With zeros, leading zeros are kept (ZEROFILL). It reports whether each group holds no
// more digits than it may.
// Source: MySQL's decimal.cc (decimal2bin).
func appendDecimal(dst, raw []byte, precision, scale int, zeros bool) ([]byte, bool) {
	if len(raw) == 0 {
		return dst, false
	}
	d := decimalReader{raw: raw, flip: 0x80, ok: true}
	if raw[0]&0x80 == 0 {
		d.mask = 0xff
		dst = append(dst, '-')
	}
	begin := len(dst)
	whole := precision - scale
	for i, digits := 0, whole%9; i <= whole/9; i, digits = i+1, 9 {
		switch v := d.group(digits); {
		case digits == 0:
		case zeros || len(dst) > begin:
			dst = appendPadded(dst, v, digits)
		case v > 0:
			dst = strconv.AppendUint(dst, v, 10)
		}
	}
	if len(dst) == begin {
		dst = append(dst, '0')
	}
	if scale == 0 {
		return dst, d.ok
	}
	dst = append(dst, '.')
	for range scale / 9 {
		dst = appendPadded(dst, d.group(9), 9)
	}
	return appendPadded(dst, d.group(scale%9), scale%9), d.ok
}

type decimalReader struct {
	raw  []byte
	mask byte // 0xff for a negative number
	flip byte // the sign, in the first byte
	ok   bool
}

// group reads the next group of digits.
func (d *decimalReader) group(digits int) uint64 {
	n := decimalBytes[digits]
	var v uint64
	for _, b := range d.raw[:n] {
		v = v<<8 | uint64(b^d.mask^d.flip)
		d.flip = 0
	}
	d.raw = d.raw[n:]
	if limit := groupLimit[digits]; v >= limit {
		d.ok = false
		v %= limit
	}
	return v
}

// appendReal prints a FLOAT or DOUBLE without declared decimals: with the fewest digits that give the number back
// (DOUBLE), or 6 at most (FLOAT); and without an exponent if that fits and the number is neither below 10^-15 nor a
// whole one from 10^15 on.
// Source: MySQL's dtoa.cc (my_gcvt); the widths were measured, see column.setReal.
func appendReal(dst []byte, v float64, precision, width int) []byte {
	if v == 0 {
		if math.Signbit(v) {
			dst = append(dst, '-')
		}
		return append(dst, '0')
	}
	if v < 0 {
		dst = append(dst, '-')
		v = -v
		width--
	}
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], v, 'e', precision, 64)
	// s is d.ddde±xx: take it apart into digits and the place of the point.
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	exponent := 0
	for _, c := range s[e+2:] {
		exponent = exponent*10 + int(c-'0')
	}
	if s[e+1] == '-' {
		exponent = -exponent
	}
	digits := append(s[:1], s[min(2, e):e]...)
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	point := exponent + 1
	if plainFits(len(digits), point, width) {
		return appendPlain(dst, digits, point)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
}

// plainFits decides between the forms without and with exponent for n digits with the decimal point after the first
// point ones.
func plainFits(n, point, width int) bool {
	length := point
	switch {
	case point <= 0:
		length = n - point + 2
	case point < n:
		length = n + 1
	}
	return length <= width && point >= -14 && (point <= 15 || n > point)
}

func appendPlain(dst, digits []byte, point int) []byte {
	if point <= 0 {
		dst = append(dst, "0."...)
		for ; point < 0; point++ {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	if point < len(digits) {
		dst = append(append(dst, digits[:point]...), '.')
		return append(dst, digits[point:]...)
	}
	dst = append(dst, digits...)
	for i := len(digits); i < point; i++ {
		dst = append(dst, '0')
	}
	return dst
}

// prependZeros makes the text from begin on at least width long (ZEROFILL).
func prependZeros(dst []byte, begin, width int) []byte {
	n := width - (len(dst) - begin)
	if n <= 0 {
		return dst
	}
	for range n {
		dst = append(dst, '0')
	}
	copy(dst[begin+n:], dst[begin:])
	for i := range n {
		dst[begin+i] = '0'
	}
	return dst
}

// appendFixed prints a FLOAT(M,D) or DOUBLE(M,D): with the fewest digits that give the number back, filled up with zeros,
// if those are not too many, else rounded.
// Source: MySQL's dtoa.cc (my_fcvt, mode 5 of dtoa).
func appendFixed(dst []byte, v float64, decimals int) []byte {
	begin := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	shown := 0
	if i := bytes.IndexByte(dst[begin:], '.'); i >= 0 {
		shown = len(dst) - begin - i - 1
	}
	if shown > decimals {
		return strconv.AppendFloat(dst[:begin], v, 'f', decimals, 64)
	}
	if shown == 0 && decimals > 0 {
		dst = append(dst, '.')
	}
	for ; shown < decimals; shown++ {
		dst = append(dst, '0')
	}
	return dst
}
