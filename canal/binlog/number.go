package binlog

import (
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
