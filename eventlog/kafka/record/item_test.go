package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// What stands in a record for each action, for the reader of a UI.
func TestItemsAreReadable(t *testing.T) {
	told := &event.Effect{Publish: true, Stream: true, MaxLen: 1000}
	value := &event.Effect{TTL: time.Hour, Jitter: 0.1, ExpireAt: time.Minute, Missing: true, MissingTTL: 30 * time.Second}
	for _, c := range []struct {
		batch *event.Batch
		want  string
	}{
		{
			oneItem(event.ActionDelete, event.IntentForget, told, "user:7", "fresh", "user:7", "news"),
			`"effects":[{"publish":true,"stream":true,"maxlen":1000}]…"delete_notify":[{"key":"user:7","effect":0,"channel":"fresh","message":"user:7","stream":"news"}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, value, "user:7", `{"id":7,"name":"Zoë"}`),
			`"effects":[{"ttl_ms":3600000,"jitter":0.1,"expire_at_ms":60000,"missing":{"cache":"","ttl_ms":30000}}]…"rebuild":[{"key":"user:7","effect":0,"intent":"put","json":{"id":7,"name":"Zoë"}}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{}, "user:7", `{"id": 7}`),
			`"effects":[{}]…"rebuild":[{"key":"user:7","effect":0,"intent":"put","string":"{\"id\": 7}"}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormString}, "user:7", "{}"),
			`"effects":[{"as":"string"}]…"rebuild":[{"key":"user:7","effect":0,"intent":"put","string":"{}"}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormHash}, "user:7", "id", "7", "icon",
				"\xff"),
			`"effects":[{"as":"hash"}]…"rebuild":[{"key":"user:7","effect":0,"intent":"put","hash":{"id":"7","icon":{"base64":"/w=="}}}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentRemove, value, "\xff"),
			`"rebuild":[{"key":{"base64":"/w=="},"effect":0,"intent":"remove"}]`,
		},
		{oneItem(event.ActionRebuild, event.IntentForget, value, "user:7"), `"rebuild":[{"key":"user:7","effect":0}]`},
		{
			oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{Query: "0123456789abcdef"}, "top:3", "3", "x"),
			`"effects":[{"query":"0123456789abcdef"}]…"rebuild":[{"key":"top:3","effect":0,"intent":"put","params":["3","x"]}]`,
		},
		{
			oneItem(event.ActionHash, event.IntentPut, nil, "stock", "7", "12"),
			`"hash":[{"key":"stock","intent":"put","field":"7","value":"12"}]`,
		},
		{
			oneItem(event.ActionHash, event.IntentRemove, nil, "stock", "7"),
			`"hash":[{"key":"stock","intent":"remove","field":"7"}]`,
		},
		{oneItem(event.ActionSet, event.IntentPut, nil, "tag:3", "7"), `"set":[{"key":"tag:3","intent":"put","member":"7"}]`},
		{
			oneItem(event.ActionZSet, event.IntentPut, nil, "board", "7", "1.5"),
			`"zset":[{"key":"board","intent":"put","member":"7","score":"1.5"}]`,
		},
		{oneItem(event.ActionZSet, event.IntentForget, nil, "board"), `"zset":[{"key":"board"}]`},
		{
			oneItem(event.ActionExpire, event.IntentForget, &event.Effect{In: 5 * time.Second}, "user:7"),
			`"effects":[{"in_ms":5000}]…"expire":[{"key":"user:7","effect":0}]`,
		},
		{oneItem(event.ActionIncr, event.IntentForget, nil, "gen"), `"incr":[{"key":"gen"}]`},
	} {
		got := string(encode(new(Encoder), header, c.batch))
		for _, want := range strings.Split(c.want, "…") {
			if !strings.Contains(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		if b, _, err := Parse([]byte(got)); err != nil || cmp.Diff(flat(c.batch), flat(b)) != "" {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// The order in a row is that of the batch, whatever the actions; and an effect is written once.
func TestTheOrderWithinARowIsKept(t *testing.T) {
	effect := &event.Effect{TTL: time.Second}
	var b event.Batch
	b.AddOrigin(event.Origin{Table: "t.t", Event: event.Version{Epoch: 1, File: 1, Pos: 4}})
	for _, a := range []event.Action{
		event.ActionDelete, event.ActionRebuild, event.ActionRebuild, event.ActionIncr, event.ActionDelete, event.ActionSet,
		event.ActionRebuild,
	} {
		it := event.Item{Text: append(b.Text(), a.String()...), Key: len(a.String()), Row: 1, Action: a}
		if a == event.ActionRebuild {
			it.Effect = effect
		}
		b.AddItem(it)
	}
	data := encode(new(Encoder), header, &b)
	out, _, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(flat(&b), flat(out)); d != "" {
		t.Errorf("%s\n%s", data, d)
	}
	if n := bytes.Count(data, []byte("ttl_ms")); n != 1 || len(out.Effects) != 1 {
		t.Errorf("%d effects in %s", n, data)
	}
}

// A plain delete has no fields, also when its row could not be read in one go.
func TestADeleteIsFollowedByNothing(t *testing.T) {
	b, _, err := Parse([]byte(strings.Replace(sample, `"category:3:products"`, `"a\u0042c"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Len() {
		if f := b.Fields(i); len(f) > 0 {
			t.Errorf("%s has the fields %q", b.Key(i), f)
		}
	}
}

const sampleItem = `{"format":1,"source":"main","term":3,"seq":17,"prev":"1/112/4711/2","last":"1/112/5230/2",` +
	`"effects":[{"as":"json","ttl_ms":3600000,"jitter":0.1,"missing":{"cache":"","ttl_ms":30000}},{"as":"hash","publish":true}],"changes":[` +
	`{"table":"shop.user","version":"1/112/5230","second_delete_ms":1000,"mapping":0,"rate_limit":100,"rows":[` +
	`{"row":2,"rebuild":[{"key":"user:7","effect":0,"intent":"put","json":{"id":7}}]},` +
	`{"row":2,"rebuild":[{"key":"h:7","effect":1,"intent":"put","hash":{"id":"7"},"channel":"c","message":"m"}]}]}]}`

func TestItemsAreReadInAnyForm(t *testing.T) {
	want, _, err := Parse([]byte(sampleItem))
	if err != nil || want.Origin(0).RateLimit != 100 {
		t.Fatal(err)
	}
	const effects = `"effects":[{"as":"json","ttl_ms":3600000,"jitter":0.1,"missing":{"cache":"","ttl_ms":30000}},{"as":"hash","publish":true}],`
	for _, c := range []struct{ old, new string }{
		{
			`{"key":"user:7","effect":0,"intent":"put","json":{"id":7}}`,
			`{"json": { "id" : 7 } ,"intent":"put","effect":0,"key":{"base64":"dXNlcjo3"}}`,
		},
		{`"json":{"id":7}`, `"string":"{\"id\":7}"`},
		{`"json":{"id":7}`, `"string":{"base64":"eyJpZCI6N30="}`},
		{`"hash":{"id":"7"},"channel":"c","message":"m"`, `"message":"m","channel":"c","hash":{ "id" : {"base64":"Nw=="} }`},
		{`"jitter":0.1`, `"jitter":1e-1`},
		{`"as":"json",`, ``},
		{`"publish":true`, `"stream":false,"publish":true`},
		{effects, ``},
	} {
		doc := change(t, sampleItem, c.old, c.new)
		if c.new == "" && c.old == effects { // after what needs them
			doc = append(bytes.TrimSuffix(doc, []byte("}")), ","+strings.TrimSuffix(effects, ",")+"}"...)
		}
		b, _, err := Parse(doc)
		if err != nil {
			t.Errorf("%s: %v", doc, err)
		} else if d := cmp.Diff(flat(want), flat(b)); d != "" {
			t.Errorf("%s\n%s", doc, d)
		}
	}
}

func TestItemsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		old, new string
		newer    bool
		want     string
	}{
		{`"key":"user:7",`, ``, false, "key before"},
		{`"key":"user:7"`, `"key":null`, false, "a key"},
		{`"key":"user:7"`, `"key":"user:7","key":"a"`, false, "a field not to come twice"},
		{`"effect":0`, `"effect":2`, false, "the effect of each item"},
		{`"effect":0`, `"effect":-1`, false, "the ordinal of an effect"},
		{`"effect":0,`, `"effect":1,`, false, "each item to have what its action and effect need"},
		{`"json":{"id":7}`, `"json":{"id":7},"string":"x"`, false, "each item to have what its action and effect need"},
		{`"json":{"id":7}`, `"member":"7"`, false, "each item to have what its action and effect need"},
		{`,"json":{"id":7}`, ``, false, "each item to have what its action and effect need"},
		{`,"message":"m"`, ``, false, "each item to have what its action and effect need"},
		{`"intent":"put","json"`, `"json"`, false, "each item to have what its action and effect need"},
		{`"json":{"id":7}`, `"json":{"id":07}`, false, "a comma"},
		{`"hash":{"id":"7"}`, `"hash":{"id":7}`, false, "a text"},
		{`"hash":{"id":"7"}`, `"hash":{"id":{"base64":"/w"}}`, false, "base64"},
		{`"hash":{"id":"7"}`, `"hash":{"id":{"base64":"/w==","x":1}}`, false, "nothing besides base64"},
		{`"hash":{"id":"7"}`, `"hash":{"id":{"hex":"ff"}}`, true, "base64"},
		{`"rebuild":[`, `"rebuild":["x",`, false, "an item"},
		{`"intent":"put"`, `"intent":"guess"`, true, "forget, put or remove"},
		{`"json":{"id":7}`, `"json":{"id":7},"unless":"x"`, true, "an item to have nothing else"},
		{`"rebuild":[`, `"recreate":[`, true, "a row to have nothing but"},
		{`"as":"json"`, `"as":"list"`, true, "json, hash or string"},
		{`"as":"json"`, `"idle_ms":1`, true, "an effect to have nothing else"},
		{`"cache":""`, `"cache":"","x":1`, true, "what is kept where a row is gone"},
		{`"cache":"",`, ``, false, "cache before"},
		{`"jitter":0.1`, `"jitter":1.1`, false, "a number from 0 to 1"},
		{`"jitter":0.1`, `"jitter":-0.1`, false, "a number from 0 to 1"},
		{`"ttl_ms":3600000`, `"ttl_ms":-1`, false, "milliseconds"},
		{`"rate_limit":100`, `"rate_limit":2147483648`, false, "keys a second"},
	} {
		doc := change(t, sampleItem, c.old, c.new)
		_, _, err := Parse(doc)
		if !errors.Is(err, ErrMalformed) && !c.newer || !errors.Is(err, ErrUnknownFormat) && c.newer ||
			!strings.Contains(err.Error(), "want "+c.want) {
			t.Errorf("%s\n%v\nwant %s", doc, err, c.want)
		}
	}
	for name, doc := range map[string]string{
		"no effects": `{"effects":[],"changes":`, "many": `{"effects":[` + strings.Repeat("{},", maxEffects) +
			`{}],"changes":`,
	} {
		if _, _, err := Parse([]byte(doc)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "effect") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What one action does not need is no action that could be carried out: the key is deleted.
func TestAnInvalidationThatFitsNoActionIsADelete(t *testing.T) {
	for _, b := range []*event.Batch{
		oneItem(event.ActionSet, event.IntentPut, nil, "k"),
		oneItem(event.ActionSet, event.IntentPut, nil, "k", "a", "b"),
		oneItem(event.ActionSet, 9, nil, "k", "a"),
		oneItem(99, event.IntentForget, nil, "k"),
		oneItem(0, event.IntentForget, nil, "k"),
		oneItem(event.ActionIncr, event.IntentForget, nil, "k", "a"),
		oneItem(event.ActionIncr, event.IntentForget, &event.Effect{Publish: true}, "k", "a"),
		oneItem(event.ActionIncr, event.IntentForget, &event.Effect{As: 9}, "k"),
		oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormHash}, "k", "name"),
		oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormHash}, "k", "\xff", "value"),
	} {
		var e Encoder
		e.Add(oneItem(event.ActionIncr, event.IntentForget, &event.Effect{In: 1}, "before"), 0)
		e.Add(b, 0)
		out, _, err := Parse(e.Finish(header))
		if err != nil || out.Len() != 2 || out.Key(1) != "k" || out.EffectOf(1) != nil || len(out.Fields(1)) != 0 ||
			len(out.Effects) != 1 ||
			out.Invalidations[1].Action != event.ActionDelete || e.Forgotten() != 1 || e.CanForget() {
			t.Errorf("%+v: %v, %+v", b.Invalidations[0], err, out)
		}
	}
}

func TestARecordEndsWhereItIsToEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := batches.Draw(t, "batch")
		most := rapid.IntRange(0, 4000).Draw(t, "most")
		var e Encoder
		var got []invalidation
		for i := range b.Invalidations {
			if e.TryAdd(b, i, most) {
				continue
			}
			if e.Count() == 0 {
				t.Fatal("a record without room for the first")
			}
			got = append(got, parsed(t, &e, most)...)
			if e.Reset(); !e.TryAdd(b, i, most) {
				t.Fatal("a record without room for the first")
			}
		}
		got = append(got, parsed(t, &e, most)...)
		for i, want := range flat(b) {
			if cmp.Equal(want, got[i]) {
				continue
			}
			forgotten := got[i].Intent == event.IntentForget || got[i].Action == event.ActionDelete
			if got[i].Key != want.Key || got[i].Version != want.Version || !forgotten {
				t.Fatalf("%+v became %+v", want, got[i])
			}
		}
	})
}

// parsed returns what is in a record that was to have most bytes at most.
func parsed(t *rapid.T, e *Encoder, most int) []invalidation {
	data := e.Finish(header)
	b, _, err := Parse(data)
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if e.Len() > most && e.Count() > 1 && b.Effects != nil {
		t.Fatalf("%d invalidations in %d bytes, and %d are the most", e.Count(), e.Len(), most)
	}
	if e.CanForget() && e.Count() == 1 && e.Len() > most {
		t.Fatalf("%d bytes, and %d are the most: %s", e.Len(), most, data)
	}
	return flat(b)
}

func TestWhatIsTooLargeForgets(t *testing.T) {
	large := strings.Repeat("\x01x\xff", 100)
	told := &event.Effect{Publish: true, TTL: time.Hour}
	for _, c := range []struct {
		batch *event.Batch
		want  string
	}{
		{
			oneItem(event.ActionRebuild, event.IntentPut, told, "k", "c", "m", large),
			`"publish":true,"ttl_ms":3600000}]…"rebuild":[{"key":"k","effect":0,"channel":"c","message":"m"}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, told, "k", "c", large, large),
			`"effects":[{"ttl_ms":3600000}]…"rebuild":[{"key":"k","effect":0}]`,
		},
		{
			oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormHash}, "k", "a", large),
			`"rebuild":[{"key":"k","effect":0}]`,
		},
		{oneItem(event.ActionHash, event.IntentPut, nil, "k", "f", large), `"hash":[{"key":"k","field":"f"}]`},
		{oneItem(event.ActionHash, event.IntentPut, nil, "k", large, "v"), `"rows":[[1,"k"]]`},
		{oneItem(event.ActionSet, event.IntentPut, nil, "k", large), `"set":[{"key":"k"}]`},
		{oneItem(event.ActionIncr, event.IntentForget, told, "k", "c", large), `"incr":[{"key":"k","effect":0}]`},
		{oneItem(event.ActionSet, event.IntentPut, nil, large, "v"), `"delete_base64":["`},
	} {
		var e Encoder
		if !e.TryAdd(c.batch, 0, 300) || e.Forgotten() != 1 || e.CanForget() || e.Count() != 1 {
			t.Errorf("%d forgotten of %d, %v", e.Forgotten(), e.Count(), e.CanForget())
		}
		got := string(e.Finish(header))
		for _, want := range strings.Split(c.want, "…") {
			if !strings.Contains(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		if _, _, err := Parse([]byte(got)); err != nil {
			t.Errorf("%v in %s", err, got)
		}
	}
}

// A value of 256 KiB fits half a mebibyte, whatever it is made of.
func TestALargeValueFitsARecord(t *testing.T) {
	const size, most = 256 << 10, 512 << 10
	for _, c := range []string{"x", "\x01", "\xff", `"`, "\\", "é", "\u2028", "\n\"", `{"`} {
		value := strings.Repeat(c, size/len(c))
		for _, form := range []event.Form{event.FormJSON, event.FormString} {
			b := oneItem(event.ActionRebuild, event.IntentPut, &event.Effect{As: form}, "k", value)
			var e Encoder
			e.TryAdd(b, 0, most)
			out, _, err := Parse(e.Finish(header))
			if err != nil || e.Forgotten() > 0 || out.Invalidations[0] != b.Invalidations[0] ||
				!bytes.Equal(out.Fields(0), b.Fields(0)) {
				t.Errorf("%q: %d bytes: %v", c, e.Len(), err)
			}
		}
	}
}

// The effects of records are mostly the same: then they are the same in memory too.
func TestEffectsAreSharedByBatches(t *testing.T) {
	var p Parser
	first, _, err := p.Parse([]byte(sampleItem))
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := p.Parse(change(t, sampleItem, `3600000`, `3600001`))
	if err != nil || other.EffectOf(0).TTL != 3600001*time.Millisecond {
		t.Fatal(err)
	}
	again, _, err := p.Parse(change(t, sampleItem, `3600000`, `3600001`))
	if err != nil || again.EffectOf(0) != other.EffectOf(0) || first.EffectOf(0).TTL != time.Hour {
		t.Fatal(err)
	}
	if none, _, err := p.Parse([]byte(sample)); err != nil || len(none.Effects) > 0 {
		t.Fatal(err)
	}
	if _, _, err := p.Parse(change(t, sample, `"delete":["product:18"]`,
		`"rebuild":[{"key":"a","effect":0}]`)); !errors.Is(err, ErrMalformed) {
		t.Fatalf("an effect of a record before: %v", err)
	}
}

func BenchmarkItems(b *testing.B) {
	effect := &event.Effect{TTL: time.Hour}
	var batch event.Batch
	for i := range benchKeys {
		if i%6 == 0 {
			batch.AddOrigin(event.Origin{
				Table: "shop.user",
				Event: event.Version{Epoch: 1, File: 112, Pos: 4_000_000 + 300*uint64(i)}, D: time.Second,
			})
		}
		key := fmt.Sprintf("user:%d", i)
		value, _ := json.Marshal(map[string]any{
			"id": i, "name": "Zoë Müller", "email": "zoe@example.com", "age": 36,
			"tags": []string{"a", "b"}, "active": true,
		})
		batch.AddItem(event.Item{
			Text: event.AppendField(append(batch.Text(), key...), value), Key: len(key), Row: uint32(i%6) + 1,
			Action: event.ActionRebuild, Intent: event.IntentPut, Effect: effect,
		})
	}
	data := encode(new(Encoder), header, &batch)
	b.Run("encode", func(b *testing.B) {
		var e Encoder
		for b.Loop() {
			data = encode(&e, header, &batch)
		}
		perKey(b, len(data))
	})
	b.Run("parse", func(b *testing.B) {
		var p Parser
		for b.Loop() {
			if out, _, err := p.Parse(data); err != nil || out.Len() != benchKeys {
				b.Fatal(err)
			}
		}
		perKey(b, len(data))
	})
}
