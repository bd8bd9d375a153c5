package document

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
)

// ErrAbsent says that a row lacks a column of the document, or holds no text for it.
var ErrAbsent = errors.New("a column is absent")

// Field is one member of a document.
type Field struct {
	// Name is the member's name, which need not be the column's.
	Name string
	// Column describes the values. It must not be written to while the Writer lives.
	Column *event.Column
}

// Options are what New can do without.
type Options struct {
	// DecimalNumbers writes DECIMAL as numbers in JSON. By default they are strings, since most readers of JSON
	// round numbers to the 53 bits of a double (RFC 8259, section 6).
	DecimalNumbers bool
}

// Writer writes rows of one shape.
type Writer struct {
	fields   []field
	decimals bool
}

// field is a compiled Field.
type field struct {
	name string
	// label is the name as it stands in JSON, with the colon and what divides it from the member before.
	label string
	form  form
}

// form tells apart what columns of one event.Kind become.
type form uint8

const (
	formText   form = iota
	formNumber      // printed by the database
	formDate        // DATE and DATETIME
	formInstant
	formBits
)

// New compiles a document. Its error, all that is wrong joined, names each field that is empty or comes twice.
func New(fields []Field, o Options) (*Writer, error) {
	w := &Writer{decimals: o.DecimalNumbers}
	var errs []error
	seen := map[string]bool{}
	for i, f := range fields {
		switch {
		case f.Name == "":
			errs = append(errs, fmt.Errorf("field %d (column %s) has no name", i+1, f.Column.Name))
		case seen[f.Name]:
			errs = append(errs, fmt.Errorf("field %q comes twice", f.Name))
		}
		seen[f.Name] = true
		label := append(appendString(nil, []byte(f.Name)), ':')
		if i > 0 {
			label = append([]byte{','}, label...)
		}
		w.fields = append(w.fields, field{name: f.Name, label: string(label), form: formOf(f.Column)})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return w, nil
}

// IsBits reports whether the column is a BIT, whose values are numbers ([Bits]).
func IsBits(c *event.Column) bool {
	return c.Class == event.ClassBinary && strings.HasPrefix(strings.ToLower(c.Type), "bit")
}

func formOf(c *event.Column) form {
	t := strings.ToLower(c.Type)
	switch c.Class {
	case event.ClassInt, event.ClassFloat:
		return formNumber
	case event.ClassBinary:
		if IsBits(c) {
			return formBits
		}
	case event.ClassTemporal:
		switch {
		case strings.HasPrefix(t, "timestamp"):
			return formInstant
		case c.IsYear():
			return formNumber
		case !strings.HasPrefix(t, "time"):
			return formDate
		}
	}
	return formText
}

// JSON appends the row as a JSON object, its members in the order of the fields. values[i] is that of field i. On
// [ErrAbsent] dst is returned as it was.
func (w *Writer) JSON(dst []byte, values []event.Value) ([]byte, error) {
	begin := len(dst)
	dst = append(dst, '{')
	for i := range w.fields {
		f := &w.fields[i]
		dst = append(dst, f.label...)
		var ok bool
		if dst, ok = w.json(dst, f.form, &values[i]); !ok {
			return dst[:begin], ErrAbsent
		}
	}
	return append(dst, '}'), nil
}

func (w *Writer) json(dst []byte, form form, v *event.Value) ([]byte, bool) {
	switch v.Kind {
	case event.Null:
		return append(dst, "null"...), true
	case event.Int:
		return strconv.AppendInt(dst, int64(v.Num), 10), true
	case event.Uint:
		return strconv.AppendUint(dst, v.Num, 10), true
	case event.Decimal:
		if w.decimals {
			return appendNumber(dst, v.Text), true
		}
		return appendString(dst, v.Text), true
	case event.JSON:
		return append(dst, v.Text...), true
	case event.Bytes:
		if form == formBits {
			return strconv.AppendUint(dst, Bits(v.Text), 10), true
		}
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v.Text)
		return append(dst, '"'), true
	case event.Text:
		switch {
		case form == formNumber:
			return appendNumber(dst, v.Text), true
		case form != formDate && form != formInstant || !isDate(v.Text):
			return appendString(dst, v.Text), true
		case isZeroDate(v.Text):
			return append(dst, "null"...), true
		}
		dst = appendDate(append(dst, '"'), v.Text, form)
		return append(dst, '"'), true
	}
	return dst, false
}

// Hash appends the row as fields of an invalidation ([event.Fields]): name, value, name, value, in the order of the
// fields, without those that are NULL. A row all of whose columns are NULL makes no field at all. values[i] is that of
// field i. On [ErrAbsent] dst is returned as it was.
func (w *Writer) Hash(dst []byte, values []event.Value) ([]byte, error) {
	begin := len(dst)
	for i := range w.fields {
		f, v := &w.fields[i], &values[i]
		var scratch [40]byte
		var text []byte
		switch v.Kind {
		case event.Null:
			continue
		case event.Int:
			text = strconv.AppendInt(scratch[:0], int64(v.Num), 10)
		case event.Uint:
			text = strconv.AppendUint(scratch[:0], v.Num, 10)
		case event.Decimal, event.JSON:
			text = v.Text
		case event.Bytes:
			text = v.Text
			if f.form == formBits {
				text = strconv.AppendUint(scratch[:0], Bits(v.Text), 10)
			}
		case event.Text:
			switch {
			case f.form != formDate && f.form != formInstant || !isDate(v.Text):
				text = v.Text
			case isZeroDate(v.Text):
				continue
			default:
				text = appendDate(scratch[:0], v.Text, f.form)
			}
		default:
			return dst[:begin], ErrAbsent
		}
		dst = event.AppendField(event.AppendField(dst, f.name), text)
	}
	return dst, nil
}
