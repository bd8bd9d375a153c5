package record

import (
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

// list is a list in a row: of keys to delete, or of items, which have more to them than a key.
type list uint8

// The lists. Those of items are in the order of their actions.
const (
	listDelete list = iota
	listDeleteBase64
	listDeleteNotify // deletes with a notice
	listRebuild
	listHash
	listSet
	listZSet
	listExpire
	listIncr
)

// String returns the name of the list in a row.
func (l list) String() string {
	return [...]string{"delete", "delete_base64", "delete_notify", "rebuild", "hash", "set", "zset", "expire", "incr"}[l]
}

// listNamed returns the list with a name.
func listNamed(name []byte) (list, bool) {
	for l := listDelete; l <= listIncr; l++ {
		if l.String() == string(name) {
			return l, true
		}
	}
	return 0, false
}

// listOf returns the list that an action's items are in.
func listOf(a event.Action) list { return listDeleteNotify + list(a-event.ActionDelete) }

// action returns what is done to the keys of a list.
func (l list) action() event.Action {
	return event.ActionDelete + event.Action(max(l, listDeleteNotify)-listDeleteNotify)
}

// The fields of an item. Those from itemChannel on hold what [event.Batch.Fields] does.
const (
	itemKey fields = 1 << iota
	itemEffect
	itemIntent
	itemChannel
	itemMessage
	itemStream
	itemJSON
	itemString
	itemHash
	itemParams
	itemField
	itemValue
	itemMember
	itemScore

	itemPayload = itemString | itemHash | itemParams | itemField | itemValue | itemMember | itemScore
	itemNotices = itemChannel | itemMessage | itemStream
)

// layout says which fields an item has for what [event.Batch.Fields] holds, as [event.Effect] says.
func layout(a event.Action, intent event.Intent, effect *event.Effect) (has fields) {
	var none event.Effect
	if effect == nil {
		effect = &none
	}
	if effect.Publish {
		has |= itemChannel | itemMessage
	}
	if effect.Stream {
		has |= itemStream
	}
	put, forget := intent == event.IntentPut, intent == event.IntentForget
	switch {
	case a == event.ActionRebuild && effect.Query != "" && !forget:
		has |= itemParams
	case a == event.ActionRebuild && effect.Query != "":
	case a == event.ActionRebuild && put && effect.As == event.FormHash:
		has |= itemHash
	case a == event.ActionRebuild && put:
		has |= itemString
	case a == event.ActionHash && put:
		has |= itemField | itemValue
	case a == event.ActionHash:
		has |= itemField
	case a == event.ActionZSet && put:
		has |= itemMember | itemScore
	case (a == event.ActionZSet || a == event.ActionSet) && !forget:
		has |= itemMember
	}
	return has
}

// less is what an item is without when it would be too large.
type less int

const (
	nothing less = iota
	payload
	payloadAndNotices
)

// drops returns which fields are left out of an item.
func (l less) drops() fields {
	switch l {
	case nothing:
		return 0
	case payload:
		return itemPayload &^ itemField // a hash forgets one field
	}
	return itemPayload | itemNotices
}

// addItem appends an invalidation that has more to it than its key, without the parts that it must lack. It reports
// whether there is such an item; if there is none, the record is not of use until undo.
func (e *Encoder) addItem(b *event.Batch, i int, without less) bool {
	inv, effect := &b.Invalidations[i], b.EffectOf(i)
	a, intent := inv.Action, inv.Intent
	if a < event.ActionDelete || a > event.ActionIncr || intent > event.IntentRemove ||
		// its field would be left out
		effect != nil && effect.As > event.FormString || a == event.ActionHash && without == payloadAndNotices {
		return false
	}
	has := layout(a, intent, effect)
	e.begin(b, i, listOf(a))
	e.whole = without == nothing && has != 0
	if without > nothing {
		intent = event.IntentForget
	}
	e.body = append(e.body, `{"key":`...)
	e.body = appendText(e.body, b.Key(i))
	if effect != nil {
		e.body = append(e.body, `,"effect":`...)
		e.body = strconv.AppendInt(e.body, int64(e.effect(effect, without == payloadAndNotices)), 10)
	}
	if intent != event.IntentForget {
		e.body = append(e.body, `,"intent":"`...)
		e.body = append(append(e.body, intent.String()...), '"')
	}
	ok := e.appendFields(has, without.drops(), b.Fields(i), effect)
	e.body = append(e.body, '}')
	return ok
}

// appendFields appends those fields of an item that are not to be dropped, and reports whether there were just those
// that it has.
func (e *Encoder) appendFields(has, drop fields, all event.Fields, effect *event.Effect) bool {
	for ; has != 0; has &= has - 1 {
		one := has & -has
		write := one&drop == 0
		if one == itemHash || one == itemParams {
			return e.appendList(one, write, all)
		}
		value, rest, ok := all.Next()
		if !ok {
			return false
		}
		all = rest
		switch {
		case !write:
		case one == itemString && (effect == nil || effect.As == event.FormJSON) && e.isDocument(value):
			e.body = append(append(e.body, `,"json":`...), value...)
		default:
			e.body = append(append(append(e.body, `,"`...), one.item()...), `":`...)
			e.body = appendField(e.body, value)
		}
	}
	return len(all) == 0
}

// appendList appends the fields of a hash or the parameters of a query: all that are left.
func (e *Encoder) appendList(one fields, write bool, all event.Fields) bool {
	hash, body := one == itemHash, len(e.body)
	open, end := byte('['), byte(']')
	if hash {
		open, end = '{', '}'
	}
	e.body = append(append(append(e.body, `,"`...), one.item()...), `":`...)
	e.body = append(e.body, open)
	for n := 0; len(all) > 0; n++ {
		value, rest, ok := all.Next()
		if !ok || hash && n%2 == 0 && (value == nil || !utf8.Valid(value) || len(rest) == 0) {
			return false // the names in an object are text, and each has a value
		}
		all = rest
		switch {
		case n == 0:
		case hash && n%2 == 1:
			e.body = append(e.body, ':')
		default:
			e.body = append(e.body, ',')
		}
		if hash && n%2 == 0 {
			e.body = appendString(e.body, view(value))
		} else {
			e.body = appendField(e.body, value)
		}
	}
	e.body = append(e.body, end)
	if !write {
		e.body = e.body[:body]
	}
	return true
}

// item returns the name of a field of an item.
func (f fields) item() string {
	return [...]string{
		"key", "effect", "intent", "channel", "message", "stream",
		"json", "string", "hash", "params", "field", "value", "member", "score",
	}[bits.TrailingZeros(uint(f))]
}

// isDocument reports whether a value can stand in a record as the JSON that it is, and come back byte for byte: it has
// no white space that might be changed on the way.
func (e *Encoder) isDocument(value []byte) bool {
	if len(value) == 0 || value[0] != '{' && value[0] != '[' {
		return false
	}
	e.json = scanner{data: value, buf: e.json.buf}
	e.json.skip(0)
	ok := e.json.err == nil && e.json.at == len(value) && e.json.blanks == 0
	e.json.data = nil
	return ok
}
