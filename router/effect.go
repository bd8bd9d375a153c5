package router

import (
	"math"
	"strconv"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/document"
)

// reason says why something is forgotten that would have been written, or why a notice is left out.
type reason uint8

const (
	// columnAbsent: the image lacks a column, or the table does.
	columnAbsent reason = iota
	// valueLarge: the text is too long.
	valueLarge
	// valueNull: the string of a rebuild would be NULL; emptyHash: all of a hash would be.
	valueNull
	emptyHash
	// inDoubt: `when` could not be evaluated for the row.
	inDoubt
	// noScore: the score is no number.
	noScore
	reasons
)

// label is the reason's value of the metric label `by`.
func (r reason) label() string {
	return [...]string{"absent", "large", "null", "empty", "when", "score"}[r]
}

// scratch is the memory in which the fields of an invalidation are made. It is used again from row to row.
type scratch struct {
	fields, value []byte
	row           []event.Value
}

// maxScratch is how much memory is kept for the next row: that of an ordinary value.
const maxScratch = 64 << 10

func (s *scratch) trim() {
	if cap(s.fields) > maxScratch {
		s.fields = nil
	}
	if cap(s.value) > maxScratch {
		s.value = nil
	}
}

// filling is all of an invalidation but its key: the same for all copies of one.
type filling struct {
	action event.Action
	intent event.Intent
	effect *event.Effect
	fields []byte
	// mark is how many bytes at the beginning of fields are the field or member.
	mark int
	// doubted says that the intent is to forget because of why, and not by nature. told is what is reported: nothing if
	// it is empty.
	doubted bool
	why     reason
	trouble Trouble
	told    string
}

// doubt turns the filling into one that forgets.
func (f *filling) doubt(why reason, t Trouble, told string) {
	f.intent, f.doubted, f.why, f.trouble, f.told = event.IntentForget, true, why, t, told
}

// doubtLabel is the reason why the filling forgets what would have been written; empty when nothing is in doubt.
func (f *filling) doubtLabel() string {
	if !f.doubted {
		return ""
	}
	return f.why.label()
}

// complete makes the fields. False: the row makes none of it.
func (x *run) complete(f *filling, a *act, image []event.Value) bool {
	switch a.Kind {
	case event.ActionDelete, event.ActionRebuild:
		x.notify(f, a, image)
		if a.Kind == event.ActionRebuild && f.intent == event.IntentPut {
			x.rebuild(f, a, image)
		}
	case event.ActionHash:
		return x.field(f, a, image) && x.hashValue(f, a, image)
	case event.ActionSet:
		return f.intent == event.IntentForget || x.field(f, a, image)
	case event.ActionZSet:
		return f.intent == event.IntentForget || x.field(f, a, image) && x.score(f, a, image)
	}
	return true
}

// text makes a text of the row as the next of the fields. If it cannot be made, the fields stay as they are, and at is
// the part of the text that is the reason.
func (x *run) text(f *filling, k *textPlan, image []event.Value) (out outcome, at int) {
	x.fill.value, out, at = k.render(x.fill.value[:0], image, 0)
	if out == made {
		f.fields = event.AppendField(f.fields, x.fill.value)
	}
	return out, at
}

// field makes the field of a hash, or the member. Where it is not known, but the key is, the whole key is forgotten.
// Where it is NULL there is none.
func (x *run) field(f *filling, a *act, image []event.Value) bool {
	out, at := x.text(f, a.field, image)
	switch out {
	case made:
		f.mark = len(f.fields)
		return true
	case isNull:
		x.missed(a, a.field, out, at, image)
		return false
	}
	f.doubt(doubtOf(a.field, out, at))
	if f.action == event.ActionHash {
		f.action, f.effect = event.ActionDelete, nil
	}
	return true
}

// doubtOf says why a text could not be made, and what is reported.
func doubtOf(k *textPlan, out outcome, at int) (reason, Trouble, string) {
	switch out {
	case tooLong:
		return valueLarge, ValueTooLarge, k.long
	case unnamed:
		return columnAbsent, 0, "" // Bind has said why
	}
	return columnAbsent, ColumnAbsent, k.parts[at].lacking
}

// hashValue makes the value of a hash's field. A row that has none has no field.
func (x *run) hashValue(f *filling, a *act, image []event.Value) bool {
	if f.intent != event.IntentPut {
		return true
	}
	switch out, at := x.text(f, a.value, image); out {
	case made:
	case isNull:
		f.intent = event.IntentRemove
	default:
		f.doubt(doubtOf(a.value, out, at))
	}
	return true
}

// score makes the score of a member. A row without one has no place on the board. What is no number would be refused by
// Redis: the whole key is forgotten, as if the score were absent.
func (x *run) score(f *filling, a *act, image []event.Value) bool {
	if f.intent != event.IntentPut {
		return true
	}
	switch out, at := x.text(f, a.value, image); {
	case out == isNull:
		f.intent = event.IntentRemove
		return true
	case out == made && isNumber(x.fill.value):
		return true
	case out == made:
		f.doubt(noScore, ValueUnfit, a.unfit)
	default:
		f.doubt(doubtOf(a.value, out, at))
	}
	f.fields, f.mark = f.fields[:0], 0
	return true
}

// isNumber reports whether Redis takes the text for a score: a decimal number that a double can hold.
// Source: the documentation of ZADD, "the score values should be the string representation of a double precision
// floating point number".
func isNumber(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return false
		}
	}
	n, err := strconv.ParseFloat(string(text), 64)
	return err == nil && !math.IsInf(n, 0)
}

// rebuild makes the value of a rebuilt key, or the parameters of the query that reads it.
func (x *run) rebuild(f *filling, a *act, image []event.Value) {
	notices := len(f.fields)
	switch {
	case a.value != nil:
		switch out, at := x.text(f, a.value, image); out {
		case made:
		case isNull:
			f.doubt(valueNull, 0, "")
		default:
			f.doubt(doubtOf(a.value, out, at))
		}
	case a.row.broken:
		f.doubt(columnAbsent, 0, "") // Bind has said why
	default:
		x.document(f, a.row, image)
	}
	if f.doubted {
		f.fields = f.fields[:notices]
	}
}

// document makes a value of the row's columns, or the parameters of a query.
func (x *run) document(f *filling, p *rowPlan, image []event.Value) {
	values, size := x.fill.row[:0], 0
	for i, s := range p.slots {
		v := &image[s]
		if v.Kind == event.Absent || v.Kind == event.Opaque {
			f.doubt(columnAbsent, ColumnAbsent, p.lacking[i])
			return
		}
		size += len(v.Text)
		values = append(values, *v)
	}
	x.fill.row = values
	before := len(f.fields)
	// Before anything is copied: a column may hold gigabytes.
	if size <= MaxValue {
		var err error
		switch {
		case p.doc == nil:
			f.fields = p.parameters(f.fields, values)
		case p.form == event.FormHash:
			f.fields, err = p.doc.Hash(f.fields, values)
		default:
			x.fill.value, err = p.doc.JSON(x.fill.value[:0], values)
			f.fields = event.AppendField(f.fields, x.fill.value)
		}
		switch {
		case err != nil:
			f.doubt(columnAbsent, 0, "") // none is absent: that was looked at above
		case p.form == event.FormHash && p.doc != nil && len(f.fields) == before:
			f.doubt(emptyHash, 0, "")
		}
	}
	if size > MaxValue || len(f.fields)-before > MaxValue {
		f.doubt(valueLarge, ValueTooLarge, p.large)
	}
}

// parameters appends the parameters of a query, as the texts that the server prints for the columns. A BIT is a number,
// since its bytes would be compared as text.
func (p *rowPlan) parameters(dst []byte, values []event.Value) []byte {
	for i := range values {
		v := &values[i]
		var digits [20]byte
		text := v.Text
		switch {
		case v.Kind == event.Null:
			dst = event.AppendNull(dst)
			continue
		case v.Kind == event.Int || v.Kind == event.Uint:
			text = v.AppendText(digits[:0])
		case v.Kind == event.Bytes && document.IsBits(p.columns[i]):
			text = strconv.AppendUint(digits[:0], document.Bits(v.Text), 10)
		}
		dst = event.AppendField(dst, text)
	}
	return dst
}

// notify makes what is sent after each action on the key. A text that is NULL is sent nowhere.
func (x *run) notify(f *filling, a *act, image []event.Value) {
	if a.channel != nil {
		from := len(f.fields)
		if !x.notice(f, a, a.channel, image) || !x.notice(f, a, a.message, image) {
			f.fields = event.AppendNull(event.AppendNull(f.fields[:from]))
		}
	}
	if a.stream != nil {
		from := len(f.fields)
		if !x.notice(f, a, a.stream, image) {
			f.fields = event.AppendNull(f.fields[:from])
		}
	}
}

func (x *run) notice(f *filling, a *act, k *textPlan, image []event.Value) bool {
	out, at := x.text(f, k, image)
	if out == made {
		return true
	}
	why := valueNull
	if out != isNull {
		var t Trouble
		var told string
		if why, t, told = doubtOf(k, out, at); told != "" {
			x.tell(t, a, told)
		}
	}
	x.u.meters.unsent[why].Inc()
	return false
}
