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

// effects makes the invalidations of actions that share an effect: those of all keys of a mapping. The row after the
// change comes first, for all of them: what it holds is written where a key, field or member of the row before the
// change would be removed, also if another template made that one.
func (x *run) effects(acts []act) {
	if x.c.Op != event.Delete {
		for i := range acts {
			x.image(&acts[i], x.c.After, x.intent(&acts[i], false))
		}
	}
	for i := range acts {
		if a := &acts[i]; x.c.Op == event.Delete || x.c.Op == event.Update && !same(a.identity, x.c) {
			x.image(a, x.c.Before, x.intent(a, true))
		}
	}
}

// intent says what the action does for an image, if nothing is in doubt.
func (x *run) intent(a *act, old bool) event.Intent {
	switch {
	case !a.Writes():
		return event.IntentForget
	case a.Effect.Query != "":
		return event.IntentPut // what there is now is for the query to say
	case old:
		return event.IntentRemove
	case a.Kind == event.ActionZSet && a.value == nil && x.after == event.IntentPut:
		// The row is there, and its score is not known: with the member taken out, the board would lack it.
		return event.IntentForget
	}
	return x.after
}

// image makes the invalidations of one image: those of all copies of the key, or none.
func (x *run) image(a *act, image []event.Value, intent event.Intent) {
	f := filling{action: a.Kind, intent: intent, effect: a.Effect, fields: x.fill.fields[:0]}
	if a.Kind == event.ActionHash && a.value == nil {
		f.effect = nil // the field is only ever removed: that commutes, and without an effect it is not guarded
	}
	if a.Writes() && intent == event.IntentForget && (a.Kind != event.ActionZSet || a.value != nil) {
		f.doubt(inDoubt, PredicateFailed, "") // admit has said it
	}
	if !x.complete(&f, a, image) {
		return
	}
	any := false
	for i := range a.key.copies {
		text := x.b.Text()
		from := len(text)
		text, out, at := a.key.render(text, image, i)
		key := len(text) - from
		if out == made && len(text)+len(f.fields) > maxText {
			out = tooLong
		}
		if out != made {
			x.missed(a, a.key, out, at, image)
			break
		}
		text = append(text, f.fields...)
		d := &identity{action: f.action, effect: f.effect, key: text[from : from+key], mark: f.fields[:f.mark]}
		if a.Kind == event.ActionIncr && x.once.has(d.key, x.u.d) {
			continue
		}
		if same := x.row.find(x.b, d); same >= 0 {
			x.merge(a, image, same)
			continue
		}
		o := x.origin()
		x.b.AddItem(event.Item{
			Text: text, Key: key, Row: x.c.Version.Row, Action: f.action, Intent: f.intent,
			Effect: f.effect,
		})
		x.b.Invalidations[x.b.Len()-1].Origin = o
		x.row.added(x.b)
		if x.trace != nil {
			x.trace.Added(x.step(a, image), f.doubtLabel())
		}
		any = true
	}
	if any && f.doubted {
		x.u.meters.forgotten[f.why].Inc()
		if f.told != "" {
			x.tell(f.trouble, a, f.told)
		}
	}
	x.fill.fields = f.fields
	x.fill.trim()
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

// field makes the field of a hash, or the member. Where it is not known, but the key is, the whole key is forgotten.
// Where it is NULL there is none.
func (x *run) field(f *filling, a *act, image []event.Value) bool {
	text, out, at := a.field.render(x.fill.value[:0], image, 0)
	x.fill.value = text
	switch out {
	case made:
		f.fields = event.AppendField(f.fields, text)
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
	text, out, at := a.value.render(x.fill.value[:0], image, 0)
	x.fill.value = text
	switch out {
	case made:
		f.fields = event.AppendField(f.fields, text)
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
	text, out, at := a.value.render(x.fill.value[:0], image, 0)
	x.fill.value = text
	switch {
	case out == isNull:
		f.intent = event.IntentRemove
		return true
	case out == made && isNumber(text):
		f.fields = event.AppendField(f.fields, text)
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
		text, out, at := a.value.render(x.fill.value[:0], image, 0)
		x.fill.value = text
		switch out {
		case made:
			f.fields = event.AppendField(f.fields, text)
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
	text, out, at := k.render(x.fill.value[:0], image, 0)
	x.fill.value = text
	if out == made {
		f.fields = event.AppendField(f.fields, text)
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
