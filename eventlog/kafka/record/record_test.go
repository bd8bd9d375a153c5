package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// invalidation is one key with all that a record says about it.
type invalidation struct {
	Key     string
	Version event.Version
	Origin  event.Origin
	Action  event.Action
	Intent  event.Intent
	Effect  *event.Effect
	Fields  [][]byte
}

// flat returns what is in batches, without how it is shared out among origins. The times are as a record has them.
func flat(batches ...*event.Batch) []invalidation {
	var all []invalidation
	for _, b := range batches {
		for i := range b.Invalidations {
			o := b.Origin(int(b.Invalidations[i].Origin))
			o.Tx.XID = ""
			if !o.Tx.Committed.IsZero() {
				o.Tx.Committed = o.Tx.Committed.Truncate(time.Microsecond).UTC()
			}
			o.D = upToMillis(o.D)
			fields, err := b.Fields(i).All()
			if err != nil {
				panic(err)
			}
			inv := &b.Invalidations[i]
			all = append(all, invalidation{b.Key(i), b.Version(i), o, inv.Action, inv.Intent, written(b.EffectOf(i)), fields})
		}
	}
	return all
}

// origins returns the origins of a batch, each whole.
func origins(b *event.Batch) []event.Origin {
	var all []event.Origin
	for i := range b.Origins {
		all = append(all, b.Origin(i))
	}
	return all
}

func upToMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// written returns an effect as a record has it.
func written(e *event.Effect) *event.Effect {
	if e == nil {
		return nil
	}
	out := *e
	out.TTL, out.ExpireAt, out.MissingTTL, out.In = upToMillis(e.TTL), upToMillis(e.ExpireAt), upToMillis(e.MissingTTL),
		upToMillis(e.In)
	return &out
}

func encode(e *Encoder, h Header, batches ...*event.Batch) []byte {
	e.Reset()
	for _, b := range batches {
		for i := range b.Invalidations {
			e.Add(b, i)
		}
	}
	return e.Finish(h)
}

func uuid(b byte) (u [16]byte) {
	for i := range u {
		u[i] = b + byte(i)
	}
	return u
}

var versions = rapid.Custom(func(t *rapid.T) event.Version {
	return event.Version{
		Epoch: rapid.Uint32Range(0, 3).Draw(t, "epoch"), File: rapid.Uint32().Draw(t, "file"),
		Pos: rapid.Uint64().Draw(t, "pos"),
	}
})

var gtids = rapid.Custom(func(t *rapid.T) event.GTID {
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return event.GTID{}
	case 1:
		return event.GTID{
			Domain: rapid.Uint32().Draw(t, "domain"), Server: rapid.Uint32().Draw(t, "server"),
			Number: rapid.Uint64Min(1).Draw(t, "number"),
		}
	}
	return event.GTID{
		UUID: uuid(rapid.ByteRange(0, 2).Draw(t, "uuid")), Tag: rapid.SampledFrom([]string{"", "blue", "_9"}).Draw(t, "tag"),
		Number: rapid.Uint64Min(1).Draw(t, "number"),
	}
})

// times have no more than microseconds often enough, and repeat their second.
var times = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
		return time.Time{}
	}
	return time.Unix(rapid.Int64Range(1_800_000_000, 1_800_000_002).Draw(t, "second"),
		rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
})

var keys = rapid.OneOf(
	rapid.StringMatching(`[a-z]{1,8}:[0-9]{1,12}`),
	rapid.String(),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	rapid.SampledFrom([]string{
		"", "\x00", "\"", `\`, "\u2028", "é", "😀", "a\xffb", "\xed\xa0\x80", "\x7f", "</script>",
		"\r\n\t\b\f", "12345678\x1f", "1234567\"",
	}),
)

// batches are of all actions, deletes of plain deletes only.
var (
	batches = rapid.Custom(func(t *rapid.T) *event.Batch { return someBatch(t, true) })
	deletes = rapid.Custom(func(t *rapid.T) *event.Batch { return someBatch(t, false) })
)

func someBatch(t *rapid.T, all bool) *event.Batch {
	var b event.Batch
	effects := rapid.SliceOfN(effects, 1, 3).Draw(t, "effects")
	for range rapid.IntRange(1, 4).Draw(t, "origins") {
		b.AddOrigin(event.Origin{
			Table: rapid.SampledFrom([]string{"shop.product", "shop.order", "größe.\"x\""}).Draw(t, "table"),
			Tx:    event.Tx{GTID: gtids.Draw(t, "gtid"), Committed: times.Draw(t, "committed")},
			Event: versions.Draw(t, "version"), D: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d")),
			Mapping: rapid.IntRange(0, 9).Draw(t, "mapping"), RateLimit: rapid.IntRange(0, 2).Draw(t, "rate limit"),
		})
	}
	for range rapid.IntRange(1, 12).Draw(t, "keys") {
		key, row := keys.Draw(t, "key"), rapid.Uint32Range(1, 3).Draw(t, "row")
		if all && rapid.Bool().Draw(t, "item") {
			addItem(t, &b, key, row, effects)
		} else {
			b.Add(append(b.Text(), key...), row, event.ActionDelete)
		}
		b.Invalidations[b.Len()-1].Origin = rapid.Uint32Range(0, uint32(len(b.Origins)-1)).Draw(t, "origin")
	}
	return &b
}

func TestWhatIsEncodedComesBack(t *testing.T) {
	var e Encoder
	var p Parser
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(batches, 1, 3).Draw(t, "batches")
		h := Header{
			Source: rapid.StringN(1, 9, -1).Draw(t, "source"), Term: rapid.Uint64().Draw(t, "term"),
			Seq:  rapid.Uint64Min(1).Draw(t, "seq"),
			Prev: versions.Draw(t, "prev"), Age: time.Duration(rapid.Int64Range(-1, 1<<40).Draw(t, "age")),
		}
		data := encode(&e, h, in...)
		out, got, err := p.Parse(data)
		if err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		if h.Age > 0 {
			h.Age = h.Age.Truncate(time.Millisecond)
		}
		want := flat(in...)
		if d := cmp.Diff(want, flat(out)); d != "" {
			t.Fatalf("%s\nof %s", d, data)
		}
		if got != h || out.Source != h.Source || out.Term != h.Term || out.Age != h.Age || !out.At.IsZero() ||
			!out.End.IsZero() {
			t.Fatalf("header %+v, batch %+v; want %+v", got, out, h)
		}
		last := want[0].Version
		for _, i := range want {
			if i.Version.Compare(last) > 0 {
				last = i.Version
			}
		}
		if out.Last != last || e.Last() != last || e.First() != want[0].Version || e.Count() != len(want) {
			t.Fatalf("last %s and %s, first %s, %d", out.Last, e.Last(), e.First(), e.Count())
		}
	})
}

// Two mappings of one table, as the router makes them: the rows of an event take turns.
func TestMappingsThatTakeTurnsShareTheirOrigins(t *testing.T) {
	var b event.Batch
	place := event.Version{Epoch: 1, File: 1, Pos: 4}
	for m := range 2 {
		b.AddOrigin(event.Origin{Table: "shop.product", Event: place, Mapping: m, D: time.Duration(m) * time.Second})
	}
	for row := range uint32(100) {
		for m := range uint32(2) {
			b.Add(fmt.Appendf(b.Text(), "%d:%d", m, row), row+1, event.ActionDelete)
			b.Invalidations[b.Len()-1].Origin = m
		}
	}
	out, _, err := Parse(encode(new(Encoder), header, &b))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(flat(&b), flat(out)); d != "" || len(out.Origins) != 2 {
		t.Fatalf("%d origins\n%s", len(out.Origins), d)
	}
}

func TestWhatFollowsInTheSameRowIsWrittenAsOne(t *testing.T) {
	part := func(keys ...string) *event.Batch {
		var b event.Batch
		b.AddOrigin(event.Origin{
			Table: "shop.product", Event: event.Version{Epoch: 1, File: 2, Pos: 3},
			D: 1500*time.Millisecond + 1,
		})
		for _, k := range keys {
			b.Add(append(b.Text(), k...), 7, event.ActionDelete)
		}
		return &b
	}
	data := encode(new(Encoder), Header{Source: "main", Term: 1, Seq: 1, Age: event.Unknown}, part("a", "b"),
		part("c", "\xff", "d"))
	const want = `{"format":3,"source":"main","term":1,"seq":1,"prev":"0/0/0/0","last":"1/2/3/7","changes":[` +
		`{"table":"shop.product","version":"1/2/3","second_delete_ms":1501,"mapping":0,"rows":[` +
		`[7,"a","b","c"],{"row":7,"delete_base64":["/w=="]},[7,"d"]]}]}`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}

func TestKeysOfAnySizeAndKind(t *testing.T) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	var ascii []byte
	for c := range byte(utf8.RuneSelf) {
		ascii = append(ascii, c)
	}
	for _, key := range []string{
		"", string(all[:]), string(ascii), strings.Repeat("x", 1<<20), strings.Repeat("é", 1<<19),
		strings.Repeat("\xff", 1<<20), "\u2028\u2029",
	} {
		// A byte at every offset of the words that are looked at together.
		for pad := range 9 {
			if len(key) > 1000 && pad != 1 {
				continue
			}
			var b event.Batch
			b.AddOrigin(event.Origin{Table: "t.t"})
			b.Add(append(append(b.Text(), "12345678"[:min(pad, 8)]...), key...), 1, event.ActionDelete)
			data := encode(new(Encoder), header, &b)
			out, _, err := Parse(data)
			if err != nil || out.Key(0) != b.Key(0) || !json.Valid(data) || !utf8.Valid(data) {
				t.Fatalf("a key of %d bytes: %v", len(b.Key(0)), err)
			}
		}
	}
}

func TestOurPlainJSONIsEverybodys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := deletes.Draw(t, "batch")
		data := encode(new(Encoder), header, b)
		var r plainRecord
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		var got, want []string
		for _, c := range r.Changes {
			for _, row := range c.Rows {
				got = append(got, row.Delete...)
				for _, k := range row.DeleteBase64 {
					got = append(got, string(k))
				}
			}
		}
		for i := range b.Len() {
			want = append(want, b.Key(i))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		// Written again by another program, with other white space, order and escapes, it says the same.
		other, err := json.MarshalIndent(rewritten(t, data), "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		out, h, err := Parse(other)
		if err != nil {
			t.Fatalf("%v in %s", err, other)
		}
		if d := cmp.Diff(flat(b), flat(out)); d != "" || h != header {
			t.Fatalf("%+v\n%s", h, d)
		}
	})
}

// rewritten is a document as a map, so that its fields are written in the order of their names, with a field more.
func rewritten(t *rapid.T, data []byte) map[string]any {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	m["a new field"] = []any{nil, 1.5e-7, -0.25, true, map[string]any{"\"": []any{}}, "\n😀"}
	m["changes"].([]any)[0].(map[string]any)["another"] = map[string]any{"x": false}
	return m
}

func TestParsingAllocatesForTheRecordNotForItsKeys(t *testing.T) {
	for _, s := range shapes {
		data := encode(new(Encoder), header, benchBatch(s.rows, s.events))
		var p Parser
		parse := func() {
			if _, _, err := p.Parse(data); err != nil {
				t.Fatal(err)
			}
		}
		parse()
		if n := testing.AllocsPerRun(10, parse); n > 6 {
			t.Errorf("%s: %v allocations for a record of %d keys", s.name, n, benchKeys)
		}
		b, _, _ := p.Parse(data)
		if size := b.Bytes(); size > (benchKeys/s.rows+1)*152+benchKeys*(20+14) {
			t.Errorf("%s: the batch holds %d bytes", s.name, size)
		}
	}
}
