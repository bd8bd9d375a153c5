package stash

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// What was stashed before there were other actions is read, and plain deletes are written the same.
func TestPlainDeletesAreWrittenAsTheyAlwaysWere(t *testing.T) {
	const old = `[{"table":"shop.user","mapping":3,"d":"2s","action":"delete","keys":["user:1",{"base64":"/w=="}]},` +
		`{"table":"shop.cart","mapping":0,"d":"0s","action":"delete","keys":["cart:1"]}]`
	want := Keys{
		{Key: "user:1", Table: "shop.user", Mapping: 3, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "\xff", Table: "shop.user", Mapping: 3, D: 2 * time.Second, Action: event.ActionDelete},
		{Key: "cart:1", Table: "shop.cart", Action: event.ActionDelete},
	}
	var got Keys
	if err := json.Unmarshal([]byte(old), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(want)
	if err != nil || string(text) != old {
		t.Errorf("%s, %v", text, err)
	}
}

func TestStashedKeysCanBeReadByAHuman(t *testing.T) {
	effect := &event.Effect{Publish: true, TTL: time.Hour, Jitter: 0.1}
	fields := event.AppendField(event.AppendNull(event.AppendField(nil, "fresh")), `{"id":7}`)
	text, err := json.Marshal(Keys{
		{
			Key: "user:7", Table: "shop.user", RateLimit: 9, Action: event.ActionRebuild, Intent: event.IntentPut,
			Effect: effect, Fields: fields,
		},
		{
			Key: "user:8", Table: "shop.user", RateLimit: 9, Action: event.ActionRebuild, Intent: event.IntentPut,
			Effect: effect, Fields: fields,
		},
		{Key: "user:9", Table: "shop.user", RateLimit: 9, Action: event.ActionRebuild, Effect: effect},
	})
	const want = `[{"table":"shop.user","mapping":0,"d":"0s","rate_limit":9,"action":"rebuild","intent":"put","effect":{"publish":true,"ttl":"1h0m0s","jitter":0.1},` +
		`"keys":["user:7","user:8"],"fields":[["fresh",null,"{\"id\":7}"],["fresh",null,"{\"id\":7}"]]},` +
		`{"table":"shop.user","mapping":0,"d":"0s","rate_limit":9,"action":"rebuild","effect":{"publish":true,"ttl":"1h0m0s","jitter":0.1},"keys":["user:9"]}]`
	if d := cmp.Diff(want, string(text)); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

var texts = rapid.OneOf(rapid.String(),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	rapid.SampledFrom([]string{"<script>&", strings.Repeat("<", 99), strings.Repeat("\x01", 99), `"`, "\u2028"}))

func TestStashedKeysComeBackWithAllTheyNeed(t *testing.T) {
	span := rapid.Map(rapid.Int64Min(0), func(n int64) time.Duration { return time.Duration(n) })
	effects := rapid.Custom(func(t *rapid.T) *event.Effect {
		return &event.Effect{
			Publish: rapid.Bool().Draw(t, "publish"), Stream: rapid.Bool().Draw(t, "stream"),
			MaxLen: rapid.Int64Min(0).Draw(t, "maxlen"),
			As:     event.Form(rapid.ByteRange(0, 2).Draw(t, "as")),
			Query:  rapid.SampledFrom([]string{"", "0123456789abcdef"}).Draw(t, "query"),
			TTL:    span.Draw(t, "ttl"), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"), ExpireAt: span.Draw(t, "expire at"),
			Missing: rapid.Bool().Draw(t, "missing"), MissingValue: texts.Draw(t, "value"),
			MissingTTL: span.Draw(t, "missing ttl"), In: span.Draw(t, "in"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		pool := append(rapid.SliceOfN(effects, 1, 2).Draw(t, "effects"), nil)
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Key {
			s := Key{
				Key: texts.Draw(t, "key"), Table: rapid.SampledFrom([]string{"a.b", "c.d"}).Draw(t, "table"),
				Mapping: rapid.IntRange(0, 1).Draw(t, "mapping"),
				D:       span.Draw(t, "d"), RateLimit: rapid.IntRange(0, 1).Draw(t, "rate limit"),
				Action: event.Action(rapid.ByteRange(1, uint8(event.ActionIncr)).Draw(t, "action")),
				Intent: event.Intent(rapid.ByteRange(0, 2).Draw(t, "intent")),
				Effect: rapid.SampledFrom(pool).Draw(t, "effect"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "fields") {
				if rapid.Bool().Draw(t, "null") {
					s.Fields = event.AppendNull(s.Fields)
				} else {
					s.Fields = event.AppendField(s.Fields, texts.Draw(t, "field"))
				}
			}
			return s
		})).Draw(t, "keys")
		text, err := json.Marshal(Keys(want))
		if err != nil {
			t.Fatal(err)
		}
		var got Keys
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if len(got) != len(want) {
			t.Fatalf("%d keys of %d", len(got), len(want))
		}
		for i := range want {
			if d := cmp.Diff(want[i], got[i]); d != "" {
				t.Fatalf("%s in %s", d, text)
			}
		}
	})
}

func TestStashedKeysThatAreNoneAreRefused(t *testing.T) {
	for _, text := range []string{
		`{}`, `[{"keys":["a"]}]`, `[{"action":"explode","keys":["a"]}]`, `[{"action":"set","intent":"guess","keys":["a"]}]`,
		`[{"action":"set","effect":{"as":"list"},"keys":["a"]}]`, `[{"action":"set","keys":["a","b"],"fields":[["x"]]}]`,
		`[{"action":"set","keys":["a"],"fields":[[{"base64":"?"}]]}]`,
	} {
		var got Keys
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
	for _, s := range []Key{
		{Action: 0},
		{Action: 99},
		{Action: event.ActionSet, Intent: 9},
		{Action: event.ActionSet, Effect: &event.Effect{As: 9}},
		{Action: event.ActionSet, Fields: event.Fields{9}},
		{Action: event.ActionSet, Effect: &event.Effect{Jitter: math.NaN()}},
	} {
		if text, err := json.Marshal(Keys{s}); err == nil {
			t.Errorf("%+v is written as %s", s, text)
		}
	}
}

func TestWhatIsStashedCanBeMadeLess(t *testing.T) {
	told := &event.Effect{Publish: true}
	fields := func(all ...string) (f event.Fields) {
		for _, v := range all {
			f = event.AppendField(f, v)
		}
		return f
	}
	for name, c := range map[string]struct{ in, want Key }{
		"a value": {
			Key{Action: event.ActionRebuild, Intent: event.IntentPut, Effect: told, Fields: fields("c", "m", "value")},
			Key{Action: event.ActionRebuild, Effect: told, Fields: fields("c", "m")},
		},
		"a field's": {
			Key{Action: event.ActionHash, Intent: event.IntentPut, Fields: fields("f", "value")},
			Key{Action: event.ActionHash, Fields: fields("f")},
		},
		"notices alone": {
			Key{Action: event.ActionExpire, Effect: told, Fields: fields("c", "m")},
			Key{Action: event.ActionDelete},
		},
		"damaged": {
			Key{Action: event.ActionSet, Intent: event.IntentPut, Effect: told, Fields: fields("c")},
			Key{Action: event.ActionDelete},
		},
	} {
		got := c.in
		if ok := got.Shorten(); !ok || cmp.Diff(c.want, got) != "" {
			t.Errorf("%s: %v, %+v", name, ok, got)
		}
	}
	if none := (Key{Key: "k", Action: event.ActionDelete}); none.Shorten() {
		t.Errorf("a plain delete became %+v", none)
	}
}
