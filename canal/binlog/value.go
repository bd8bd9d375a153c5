package binlog

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/float"
)

// render says how the text of a value is made.
type render uint8

const (
	renderNothing render = iota // only Raw
	renderInt
	renderUint
	renderZerofill
	renderYear
	renderDecimal
	renderFloat
	renderDouble
	renderBytes
	renderBinary // padded with zeros to size
	renderText   // already utf8mb4
	renderCharset
	renderEnum
	renderSet
	renderDate
	renderTime2
	renderDatetime2
	renderTimestamp2
	renderTimeOld
	renderDatetimeOld
	renderTimestampOld
	renderHiresTime
	renderHiresDatetime
	renderHiresTimestamp
	renderUUID
	renderInet4
	renderInet6
	renderCompressed
	renderJSON
	renderUnknown // the text is not known
)

// setRender decides how the text of a needed column is made.
func (c *column) setRender(m *MapColumn, flavor event.Flavor) error {
	a := c.attributes
	if a.Unknown != nil {
		return a.Unknown
	}
	c.digits = a.Scale
	c.zerofill = a.Zerofill
	switch m.Type {
	case ColumnTiny, ColumnShort, ColumnInt24, ColumnLong, ColumnLongLong:
		c.render = renderInt
		if a.Unsigned {
			c.render = renderUint
		}
		if a.Zerofill > 0 {
			c.render = renderZerofill
		}
	case ColumnYear:
		c.render = renderYear
	case ColumnNewDecimal:
		c.render, c.precision, c.digits = renderDecimal, uint8(m.Meta>>8), uint8(m.Meta)
	case ColumnFloat, ColumnDouble:
		c.setReal(m.Type, flavor)
	case ColumnBit, ColumnGeometry, ColumnVector:
		c.render = renderBytes
	case ColumnEnum:
		c.render = renderEnum
	case ColumnSet:
		c.render = renderSet
	case ColumnDate, ColumnNewDate:
		c.render = renderDate
	case ColumnTime, ColumnDatetime, ColumnTimestamp:
		c.setOldTemporal(m.Type)
	case ColumnTime2, ColumnDatetime2, ColumnTimestamp2:
		c.digits = uint8(m.Meta)
		c.render = map[ColumnType]render{
			ColumnTime2: renderTime2, ColumnDatetime2: renderDatetime2, ColumnTimestamp2: renderTimestamp2,
		}[m.Type]
	case ColumnString, ColumnVarchar, ColumnVarString, ColumnBlob:
		return c.setString(m)
	case ColumnVarcharCompressed, ColumnBlobCompressed:
		c.render = renderCompressed
	case ColumnJSON:
		c.render = renderJSON
	default:
		return fmt.Errorf("a %s has no text", m.Type)
	}
	return nil
}

// setReal sets how a FLOAT or DOUBLE prints.
func (c *column) setReal(t ColumnType, flavor event.Flavor) {
	single := t == ColumnFloat
	c.render = renderDouble
	if single {
		c.render = renderFloat
	}
	c.real = float.Format{
		Single: single, Decimals: c.digits, Zerofill: c.zerofill,
		Width: float.Width(single, flavor == event.MariaDB),
	}
}

func (c *column) setOldTemporal(t ColumnType) {
	hires := c.digits > 0 && c.digits <= 6
	switch {
	case t == ColumnTime && hires:
		c.render = renderHiresTime
	case t == ColumnTime:
		c.render = renderTimeOld
	case t == ColumnDatetime && hires:
		c.render = renderHiresDatetime
	case t == ColumnDatetime:
		c.render = renderDatetimeOld
	case hires:
		c.render = renderHiresTimestamp
	default:
		c.render = renderTimestampOld
	}
}

func (c *column) setString(m *MapColumn) error {
	a := c.attributes
	switch a.Class {
	case event.ClassUUID, event.ClassInet:
		switch {
		case a.Class == event.ClassUUID && m.Meta == 16:
			c.render = renderUUID
		case a.Class == event.ClassInet && m.Meta == 16:
			c.render = renderInet6
		case a.Class == event.ClassInet && m.Meta == 4:
			c.render = renderInet4
		default:
			return fmt.Errorf("a UUID or INET of %d bytes", m.Meta)
		}
	default:
		c.render = textRender(a.Charset)
		if a.Charset == nil && m.Type == ColumnString {
			c.render = renderBinary
		}
	}
	return nil
}

func textRender(cs *charset.Charset) render {
	switch {
	case cs == nil:
		return renderBytes
	case cs.IsUTF8MB4():
		return renderText
	}
	return renderCharset
}

// print sets all of v but Raw, and reports whether raw is a value of the column.
func (r *rowReader) print(c *column, v *event.Value, raw []byte) bool {
	switch c.render {
	case renderInt:
		v.Kind, v.Num = event.Int, signed(raw)
		return true
	case renderUint:
		v.Kind, v.Num = event.Uint, unsigned(raw)
		return true
	case renderText:
		v.Kind, v.Text = event.Text, raw
		return true
	case renderBytes:
		v.Kind, v.Text = event.Bytes, raw
		return true
	case renderBinary:
		v.Kind, v.Text = event.Bytes, raw
		if len(raw) == int(c.size) {
			return true
		}
	case renderJSON:
		r.printJSON(v, raw)
		return true
	}
	begin := len(r.text)
	ok := r.append(c, v, raw)
	if v.Kind != event.Absent {
		v.Text = r.text[begin:len(r.text):len(r.text)]
	}
	return ok
}

// append appends the text of a value that does not stand in the image as it is, and sets its kind.
func (r *rowReader) append(c *column, v *event.Value, raw []byte) bool {
	r.at = c.ordinal
	v.Kind = event.Text
	switch c.render {
	case renderZerofill:
		v.Kind, v.Num = event.Uint, unsigned(raw)
		r.text = appendPadded(r.text, v.Num, int(c.zerofill))
	case renderYear:
		v.Kind, v.Num = event.Uint, uint64(raw[0])
		if v.Num > 0 {
			v.Num += 1900
		}
		r.text = appendPadded(r.text, v.Num, 4)
	case renderDecimal:
		v.Kind = event.Decimal
		var ok bool
		r.text, ok = appendDecimal(r.text, raw, int(c.precision), int(c.digits), c.zerofill > 0)
		return ok
	case renderFloat, renderDouble:
		return r.appendReal(c, raw)
	case renderBinary:
		v.Kind = event.Bytes
		if len(raw) > int(c.size) {
			return false
		}
		r.text = append(r.text, raw...)
		for range int(c.size) - len(raw) {
			r.text = append(r.text, 0)
		}
	case renderCharset:
		r.text = c.attributes.Charset.Append(r.text, raw)
	case renderEnum:
		if !r.appendEnum(c, raw) {
			*v = event.Value{}
		}
	case renderSet:
		if !r.appendSet(c, raw) {
			*v = event.Value{}
		}
	case renderCompressed:
		return r.appendCompressed(c, v, raw)
	case renderUnknown:
		*v = event.Value{}
	case renderUUID:
		r.text = appendUUID(r.text, raw)
	case renderInet4:
		return r.appendInet(raw, 4)
	case renderInet6:
		return r.appendInet(raw, 16)
	default:
		r.appendTemporal(c, raw)
	}
	return true
}

func (r *rowReader) appendTemporal(c *column, raw []byte) {
	digits := int(c.digits)
	switch c.render {
	case renderDate:
		r.text = appendDateValue(r.text, raw)
	case renderTime2:
		r.text = appendTime2(r.text, raw, digits)
	case renderDatetime2:
		r.text = appendDatetime2(r.text, raw, digits)
	case renderTimestamp2:
		r.text = appendTimestamp2(r.text, raw, digits)
	case renderTimeOld:
		r.text = appendTimeOld(r.text, raw)
	case renderDatetimeOld:
		r.text = appendDatetimeOld(r.text, raw)
	case renderTimestampOld:
		r.text = appendTimestamp(r.text, littleEndianUint(raw))
	case renderHiresTime:
		r.text = appendHiresTime(r.text, raw, digits)
	case renderHiresDatetime:
		r.text = appendHiresDatetime(r.text, raw, digits)
	case renderHiresTimestamp:
		r.text = appendHiresTimestamp(r.text, raw, digits)
	}
}

// appendReal prints a FLOAT or DOUBLE. The servers store no infinity and no NaN.
func (r *rowReader) appendReal(c *column, raw []byte) bool {
	var v float64
	if c.render == renderFloat {
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	} else {
		v = math.Float64frombits(binary.LittleEndian.Uint64(raw))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	r.text = c.real.Append(r.text, v)
	return true
}

// appendEnum prints the label of an ENUM; index 0 is the empty string that stands for an invalid value. It reports
// whether there is such a label: if not, the labels that are known are not those that the row was written with, and the
// value is as good as absent.
func (r *rowReader) appendEnum(c *column, raw []byte) bool {
	i := littleEndianUint(raw)
	if i == 0 {
		return true
	}
	if i > uint64(len(c.attributes.Labels)) || c.attributes.Labels[i-1] == notTold {
		return false
	}
	r.text = append(r.text, c.attributes.Labels[i-1]...)
	return true
}

// appendSet prints the labels of a SET, with commas between them; it reports the same.
func (r *rowReader) appendSet(c *column, raw []byte) bool {
	bits := littleEndianUint(raw)
	labels := c.attributes.Labels
	if len(labels) < 64 && bits>>len(labels) != 0 {
		return false
	}
	begin := len(r.text)
	for i := range labels {
		if bits&(1<<i) == 0 {
			continue
		}
		if labels[i] == notTold {
			r.text = r.text[:begin]
			return false
		}
		if len(r.text) > begin {
			r.text = append(r.text, ',')
		}
		r.text = append(r.text, labels[i]...)
	}
	return true
}

// appendCompressed unfolds a value of a COMPRESSED column of MariaDB.
func (r *rowReader) appendCompressed(c *column, v *event.Value, raw []byte) bool {
	begin := len(r.text)
	var ok bool
	r.text, ok = r.inflate.column(r.text, raw)
	cs := c.attributes.Charset
	switch {
	case cs == nil:
		v.Kind = event.Bytes
	case !cs.IsUTF8MB4():
		// After what was unfolded; then over it.
		plain := len(r.text)
		r.text = cs.Append(r.text, r.text[begin:plain:plain])
		r.text = append(r.text[:begin], r.text[plain:]...)
	}
	return ok
}

// signed reads an integer of len(raw) bytes.
func signed(raw []byte) uint64 {
	switch len(raw) {
	case 1:
		return uint64(int8(raw[0]))
	case 2:
		return uint64(int16(binary.LittleEndian.Uint16(raw)))
	case 3:
		return uint64(int32(littleEndianUint(raw)<<8) >> 8)
	case 4:
		return uint64(int32(binary.LittleEndian.Uint32(raw)))
	}
	return binary.LittleEndian.Uint64(raw)
}

// unsigned reads an integer of len(raw) bytes.
func unsigned(raw []byte) uint64 {
	switch len(raw) {
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw))
	case 8:
		return binary.LittleEndian.Uint64(raw)
	}
	return littleEndianUint(raw)
}
