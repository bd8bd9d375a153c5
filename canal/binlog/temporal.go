package binlog

import "time"

// appendPadded appends v in decimal with at least width digits: up to 255 of them, as wide as ZEROFILL may fill. 0
// without a width is nothing.
func appendPadded(dst []byte, v uint64, width int) []byte {
	var b [20]byte // the digits of the highest number
	i := len(b)
	for ; v > 0; v /= 10 {
		i--
		b[i] = byte('0' + v%10)
	}
	for n := width - (len(b) - i); n > 0; n-- {
		dst = append(dst, '0')
	}
	return append(dst, b[i:]...)
}

func append2(dst []byte, v uint64) []byte {
	if v < 100 {
		return append(dst, byte('0'+v/10), byte('0'+v%10))
	}
	return appendPadded(dst, v, 2)
}

func appendDate(dst []byte, year, month, day uint64) []byte {
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(append2(dst, month), '-')
	return append2(dst, day)
}

func appendClock(dst []byte, hour, minute, second uint64) []byte {
	dst = append(append2(dst, hour), ':')
	dst = append(append2(dst, minute), ':')
	return append2(dst, second)
}

// appendFraction appends a fraction of a second with digits digits. It is stored in units of the even number of digits
// that is not less: tenths and hundredths in hundredths.
func appendFraction(dst []byte, frac uint64, digits int) []byte {
	if digits == 0 {
		return dst
	}
	if digits%2 != 0 {
		frac /= 10
	}
	return appendPadded(append(dst, '.'), frac, digits)
}

func bigEndianUint(b []byte) uint64 {
	v, _ := bigEndian(b)
	return v
}

func littleEndianUint(b []byte) uint64 {
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// appendDateValue prints a DATE: 3 bytes, the lowest first, of 15 bits year, 4 month, 5 day.
func appendDateValue(dst, raw []byte) []byte {
	v := littleEndianUint(raw)
	return appendDate(dst, v>>9, v>>5&15, v&31)
}

// appendTime2 prints a TIME: an integer, the highest byte first, whose zero is in the middle of its range, of hour (10
// bits), minute, second (6 bits each), and the fraction.
func appendTime2(dst, raw []byte, digits int) []byte {
	v := int64(bigEndianUint(raw)) - int64(1)<<(8*len(raw)-1)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	bits := 8 * (len(raw) - 3)
	frac := uint64(v) & (1<<bits - 1)
	hms := uint64(v) >> bits
	dst = appendClock(dst, hms>>12&0x3ff, hms>>6&63, hms&63)
	return appendFraction(dst, frac, digits)
}

// appendDatetime2 prints a DATETIME: an integer of 5 bytes, the highest first, of one bit that is set, year*13+month
// (17 bits), day, hour (5 bits each), minute, second (6 bits each); then the fraction.
func appendDatetime2(dst, raw []byte, digits int) []byte {
	v := bigEndianUint(raw[:5])
	ym := v >> 22 & 0x1ffff
	dst = appendDate(dst, ym/13, ym%13, v>>17&31)
	dst = appendClock(append(dst, ' '), v>>12&31, v>>6&63, v&63)
	return appendFraction(dst, bigEndianUint(raw[5:]), digits)
}

// appendTimestamp prints the second that a TIMESTAMP holds, in UTC; 0 stands for the zero date.
func appendTimestamp(dst []byte, seconds uint64) []byte {
	if seconds == 0 {
		return append(dst, "0000-00-00 00:00:00"...)
	}
	t := time.Unix(int64(seconds), 0).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendDate(dst, uint64(year), uint64(month), uint64(day))
	return appendClock(append(dst, ' '), uint64(hour), uint64(minute), uint64(second))
}

// appendTimestamp2 prints a TIMESTAMP: 4 bytes of seconds, the highest first, and the fraction.
func appendTimestamp2(dst, raw []byte, digits int) []byte {
	dst = appendTimestamp(dst, bigEndianUint(raw[:4]))
	return appendFraction(dst, bigEndianUint(raw[4:]), digits)
}

// appendDatetimeOld prints a DATETIME of before MySQL 5.6: YYYYMMDDhhmmss as a number.
func appendDatetimeOld(dst, raw []byte) []byte {
	v := littleEndianUint(raw)
	d, t := v/1000000, v%1000000
	dst = appendDate(dst, d/10000, d/100%100, d%100)
	return appendClock(append(dst, ' '), t/10000, t/100%100, t%100)
}

// appendTimeOld prints a TIME of before MySQL 5.6: hhmmss as a signed number.
func appendTimeOld(dst, raw []byte) []byte {
	v := int32(littleEndianUint(raw)<<8) >> 8
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	t := uint64(v)
	return appendClock(dst, t/10000, t/100%100, t%100)
}

// The temporal types with fractions of MariaDB 5.3, which later versions still write with mysql56_temporal_format=OFF:
// microseconds as a mixed-radix number, without the digits that are not declared, the highest byte first.
// Source: MariaDB's field.cc (Field_datetime_hires, Field_time_hires), compat56.cc.
var (
	hiresDatetimeSize = [7]uint8{5, 6, 6, 7, 7, 7, 8}
	hiresTimeSize     = [7]uint8{3, 4, 4, 5, 5, 5, 6}
	hiresFractionSize = [7]uint8{0, 1, 1, 2, 2, 3, 3}
	powersOf10        = [7]uint64{1, 10, 100, 1000, 10000, 100000, 1000000}
)

func appendHiresFraction(dst []byte, frac uint64, digits int) []byte {
	if digits == 0 {
		return dst
	}
	return appendPadded(append(dst, '.'), frac, digits)
}

func appendHiresTimestamp(dst, raw []byte, digits int) []byte {
	dst = appendTimestamp(dst, bigEndianUint(raw[:4]))
	return appendHiresFraction(dst, bigEndianUint(raw[4:]), digits)
}

func appendHiresDatetime(dst, raw []byte, digits int) []byte {
	unit := powersOf10[digits]
	v := bigEndianUint(raw)
	frac, v := v%unit, v/unit
	second, v := v%60, v/60
	minute, v := v%60, v/60
	hour, v := v%24, v/24
	day, v := v%32, v/32
	dst = appendDate(dst, v/13, v%13, day)
	dst = appendClock(append(dst, ' '), hour, minute, second)
	return appendHiresFraction(dst, frac, digits)
}

func appendHiresTime(dst, raw []byte, digits int) []byte {
	const maxSeconds = 838*3600 + 59*60 + 59
	unit := powersOf10[digits]
	v := int64(bigEndianUint(raw)) - int64((maxSeconds+1)*unit)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	u := uint64(v)
	frac, u := u%unit, u/unit
	dst = appendClock(dst, u/3600, u/60%60, u%60)
	return appendHiresFraction(dst, frac, digits)
}
