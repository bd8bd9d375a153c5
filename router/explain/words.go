package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// deed is what is done to a key besides the action's name, in words.
type deed struct {
	table  *event.Table
	action *router.Action
	intent event.Intent
	effect *event.Effect
	// doubt is why it forgets, as [router.Tracer] has it.
	doubt string
}

// String says it, given the fields that the invalidation carries.
func (d *deed) String(fields event.Fields) string {
	all, _ := fields.All()
	var sent []string
	if d.effect != nil && d.effect.Publish {
		if all[0] != nil {
			sent = append(sent, "then "+shown(all[1])+" is published to "+shown(all[0]))
		}
		all = all[2:]
	}
	if d.effect != nil && d.effect.Stream {
		if all[0] != nil {
			sent = append(sent, "then it is added to the stream "+shown(all[0]))
		}
		all = all[1:]
	}
	var words []string
	if w := d.own(all); w != "" {
		words = append(words, w)
	}
	return strings.Join(append(words, sent...), "; ")
}

// own says what is done to the key, given the action's own fields.
func (d *deed) own(fields [][]byte) string {
	switch d.action.Kind {
	case event.ActionRebuild:
		return d.rebuilt(fields)
	case event.ActionHash, event.ActionSet, event.ActionZSet:
		return d.member(fields)
	case event.ActionExpire:
		return "in " + short(d.effect.In) + " at most"
	case event.ActionIncr:
		return "once a transaction"
	}
	return ""
}

func (d *deed) member(own [][]byte) string {
	if len(own) == 0 {
		return "forget the whole key" + d.because()
	}
	what := "member"
	if d.action.Kind == event.ActionHash {
		what = "field"
	}
	words := d.intent.String() + " " + what + " " + shown(own[0])
	switch {
	case d.intent == event.IntentPut && d.action.Kind == event.ActionZSet:
		words += " with score " + shown(own[1])
	case d.intent == event.IntentPut && d.action.Kind == event.ActionHash:
		words += " = " + shown(own[1])
	}
	return words + d.because()
}

func (d *deed) rebuilt(own [][]byte) string {
	e := d.effect
	switch d.intent {
	case event.IntentForget:
		return "forget" + d.because()
	case event.IntentRemove:
		if e.Missing {
			return fmt.Sprintf("remove: put %s for %s", strconv.Quote(e.MissingValue), short(e.MissingTTL))
		}
		return "remove"
	}
	var words string
	switch {
	case e.Query != "":
		words = "put what the query finds"
		for i, name := range d.action.Params() {
			sep := ", "
			if i == 0 {
				sep = " for "
			}
			words += sep + d.table.Columns[d.table.Column(name)].Name + " = " + shown(own[i])
		}
	case e.As == event.FormHash:
		words = "put"
		for i := 0; i+1 < len(own); i += 2 {
			words += " " + string(own[i]) + "=" + shown(own[i+1])
		}
	default:
		words = "put " + shown(own[0])
	}
	if e.ExpireAt > 0 {
		words += ", with an expire_at " + short(e.ExpireAt) + " ahead"
	}
	if e.TTL > 0 {
		words += ", for " + short(e.TTL)
		if e.Jitter > 0 {
			words += fmt.Sprintf(" ± %g%%", e.Jitter*100)
		}
	}
	return words
}

// because says what was in doubt.
func (d *deed) because() string {
	switch d.doubt {
	case "":
		return ""
	case "large":
		return ", since it would be too large"
	case "null":
		return ", since its value is NULL"
	case "empty":
		return ", since all columns are NULL"
	case "when":
		return ", since when failed"
	case "score":
		return ", since the score is no number"
	}
	return ", since the row lacks a column"
}

// short is the duration without the units that are zero at its end: 1h rather than 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// shown is a text that a line can take.
func shown(text []byte) string {
	const most = 200
	if text == nil {
		return "NULL"
	}
	s := string(text)
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	plain := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) < 0
	if plain && s != "" && utf8.ValidString(s) {
		return s
	}
	return strconv.Quote(s)
}
