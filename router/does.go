package router

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

// does says in words what an invalidation does beside its action's name, after the fields that it carries.
func does(a *act, f *filling) string {
	all, _ := event.Fields(f.fields).All()
	var sent []string
	if f.effect != nil && f.effect.Publish {
		if all[0] != nil {
			sent = append(sent, "then "+shown(all[1])+" is published to "+shown(all[0]))
		}
		all = all[2:]
	}
	if f.effect != nil && f.effect.Stream {
		if all[0] != nil {
			sent = append(sent, "then it is added to the stream "+shown(all[0]))
		}
		all = all[1:]
	}
	var words []string
	if w := did(a, f, all); w != "" {
		words = append(words, w)
	}
	return strings.Join(append(words, sent...), "; ")
}

// did says what is done to the key, given the action's own fields.
func did(a *act, f *filling, own [][]byte) string {
	switch a.kind {
	case event.ActionRebuild:
		return didRebuild(a, f, own)
	case event.ActionHash, event.ActionSet, event.ActionZSet:
		return didMember(a, f, own)
	case event.ActionExpire:
		return "in " + short(f.effect.In) + " at most"
	case event.ActionIncr:
		return "once a transaction"
	}
	return ""
}

func didMember(a *act, f *filling, own [][]byte) string {
	if len(own) == 0 {
		return "forget the whole key" + because(a, f)
	}
	what := "member"
	if a.kind == event.ActionHash {
		what = "field"
	}
	words := f.intent.String() + " " + what + " " + shown(own[0])
	switch {
	case f.intent == event.IntentPut && a.kind == event.ActionZSet:
		words += " with score " + shown(own[1])
	case f.intent == event.IntentPut && a.kind == event.ActionHash:
		words += " = " + shown(own[1])
	}
	return words + because(a, f)
}

func didRebuild(a *act, f *filling, own [][]byte) string {
	e := f.effect
	switch f.intent {
	case event.IntentForget:
		return "forget" + because(a, f)
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
		for i, v := range own {
			sep := ", "
			if i == 0 {
				sep = " for "
			}
			words += sep + a.row.columns[i].Name + " = " + shown(v)
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
func because(a *act, f *filling) string {
	if !f.doubted {
		return ""
	}
	switch f.why {
	case valueLarge:
		return ", since it would be too large"
	case valueNull:
		return ", since its value is NULL"
	case emptyHash:
		return ", since all columns are NULL"
	case inDoubt:
		return ", since when failed"
	case noScore:
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
