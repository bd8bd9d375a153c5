// Package float prints FLOAT and DOUBLE as the servers do, so that a value has one text whether it was read from the
// binlog or by a query. It is pure, and safe for use by several goroutines at once.
package float

import (
	"bytes"
	"math"
	"strconv"
)

// NoDecimals are the Decimals of a type that declares none. It is also what result sets say of such columns.
const NoDecimals = 31

// Format is how the numbers of a column are printed.
type Format struct {
	// Single: a FLOAT, of which six digits are printed. Else a DOUBLE: as many as give the number back.
	Single bool
	// Decimals are those of FLOAT(M,D) or DOUBLE(M,D); [NoDecimals] or more: none are declared.
	Decimals uint8
	// Zerofill is the width to fill up to; 0: not ZEROFILL.
	Zerofill uint8
	// Width is the width within which an exponent is avoided: see [Width].
	Width uint16
}

// Unlimited is the Width that avoids the exponent for all numbers that may do without.
const Unlimited = 330

// Width returns the width within which the server avoids the exponent. Measured: MySQL 9.7 has 12 characters (FLOAT) or
// 24 (DOUBLE), MariaDB 10.11 and 11.8 no limit. What MySQL before 9 does was not measured.
func Width(single, mariadb bool) uint16 {
	switch {
	case mariadb:
		return Unlimited
	case single:
		return 12
	}
	return 24
}

// Append appends the text of v, which must be finite: the servers store no infinity and no NaN.
func (f Format) Append(dst []byte, v float64) []byte {
	begin := len(dst)
	if f.Decimals < NoDecimals {
		dst = appendFixed(dst, v, int(f.Decimals))
	} else {
		precision := -1
		if f.Single {
			precision = 5
		}
		dst = appendShort(dst, v, precision, int(f.Width))
	}
	return prependZeros(dst, begin, int(f.Zerofill))
}

// appendShort prints a FLOAT or DOUBLE without declared decimals: with the fewest digits that give the number back
// (DOUBLE), or 6 at most (FLOAT); and without an exponent if that fits and the number is neither below 10^-15 nor a
// whole one from 10^15 on.
// Source: MySQL's dtoa.cc (my_gcvt); the widths were measured.
func appendShort(dst []byte, v float64, precision, width int) []byte {
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

// appendFixed prints a FLOAT(M,D) or DOUBLE(M,D): with the fewest digits that give the number back, filled up with
// zeros, if those are not too many, else rounded. Source: MySQL's dtoa.cc (my_fcvt, mode 5 of dtoa).
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
