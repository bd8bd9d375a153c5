package record

import (
	"math"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

var effects = rapid.Custom(func(t *rapid.T) *event.Effect {
	span := func(name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, 3).Draw(t, name) * rapid.Int64Range(0, int64(time.Hour)).Draw(t, name))
	}
	e := &event.Effect{
		Publish: rapid.Bool().Draw(t, "publish"), Stream: rapid.Bool().Draw(t, "stream"),
		MaxLen: rapid.Int64Range(0, math.MaxInt64).Draw(t, "maxlen"),
		As:     event.Form(rapid.ByteRange(0, 2).Draw(t, "as")),
		Query:  rapid.SampledFrom([]string{"", "", "0123456789abcdef"}).Draw(t, "query"),
		TTL:    span("ttl"), Jitter: rapid.SampledFrom([]float64{0, 0.1, 1, 1e-9, 1.0 / 3}).Draw(t, "jitter"),
		ExpireAt: span("expire at"), In: span("in"),
	}
	if e.Missing = rapid.Bool().Draw(t, "missing"); e.Missing {
		e.MissingValue, e.MissingTTL = values.Draw(t, "missing value"), span("missing ttl")
	}
	return e
})

var values = rapid.OneOf(keys, rapid.SampledFrom([]string{
	"{}", "[]", "null", "{", `{"a":1}`, `{"a": 1}`, `{"a":1} `, ` {}`, `[1,-2.5e+7,true,null,"é\u0001\ud83d\ude00"]`,
	`{"a":"\ud800"}`, `{"a":01}`,
	`{"a":{"a":[{"b":"c d"}]},"a":""}`, "{\"a\":\"\xff\"}", strings.Repeat("\x01", 100), strings.Repeat(`"`, 100),
	strings.Repeat("[", 80) + strings.Repeat("]", 80),
}))

// fieldsOf draws the fields that an action has, as event.Effect tells them.
func fieldsOf(t *rapid.T, a event.Action, intent event.Intent, effect *event.Effect) (f []byte) {
	add := func(name string, n int) {
		for range n {
			f = event.AppendField(f, values.Draw(t, name))
		}
	}
	if effect == nil {
		effect = &event.Effect{}
	}
	notices := 0
	if effect.Publish {
		notices += 2
	}
	if effect.Stream {
		notices++
	}
	for range notices {
		if rapid.IntRange(0, 4).Draw(t, "no notice") == 0 {
			f = event.AppendNull(f)
		} else {
			add("notice", 1)
		}
	}
	put := intent == event.IntentPut
	switch a {
	case event.ActionRebuild:
		switch {
		case effect.Query != "" && intent == event.IntentForget:
		case effect.Query != "":
			for range rapid.IntRange(0, 3).Draw(t, "params") {
				if rapid.Bool().Draw(t, "null") {
					f = event.AppendNull(f)
				} else {
					add("param", 1)
				}
			}
		case put && effect.As == event.FormHash:
			for range rapid.IntRange(0, 3).Draw(t, "hash") {
				f = event.AppendField(f, rapid.String().Draw(t, "name"))
				add("value", 1)
			}
		case put:
			add("value", 1)
		}
	case event.ActionHash:
		add("field", 1)
		if put {
			add("value", 1)
		}
	case event.ActionSet, event.ActionZSet:
		if intent != event.IntentForget {
			add("member", 1)
		}
		if a == event.ActionZSet && put {
			add("score", 1)
		}
	}
	return f
}

func addItem(t *rapid.T, b *event.Batch, key string, row uint32, effects []*event.Effect) {
	it := event.Item{
		Key: len(key), Row: row, Action: event.Action(rapid.ByteRange(uint8(event.ActionDelete),
			uint8(event.ActionIncr)).Draw(t, "action")),
		Intent: event.Intent(rapid.ByteRange(0, 2).Draw(t, "intent")),
		Effect: rapid.SampledFrom(append(effects, nil)).Draw(t, "effect"),
	}
	if it.Effect == nil && it.Action == event.ActionDelete {
		it.Intent = event.IntentForget // a plain delete says no more
	}
	it.Text = append(append(b.Text(), key...), fieldsOf(t, it.Action, it.Intent, it.Effect)...)
	b.AddItem(it)
}

// oneItem is a batch of one invalidation.
func oneItem(a event.Action, intent event.Intent, effect *event.Effect, key string, fields ...string) *event.Batch {
	var b event.Batch
	b.AddOrigin(event.Origin{Table: "shop.user", Event: event.Version{Epoch: 1, File: 2, Pos: 3}})
	text := append(b.Text(), key...)
	for _, f := range fields {
		text = event.AppendField(text, f)
	}
	b.AddItem(event.Item{Text: text, Key: len(key), Row: 1, Action: a, Intent: intent, Effect: effect})
	return &b
}
