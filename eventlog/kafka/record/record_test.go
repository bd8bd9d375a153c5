package record

import (
	"testing"
	"time"

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
}

// flat returns what is in batches, without how it is shared out among origins. The times are as a record has them.
func flat(batches ...*event.Batch) []invalidation {
	var all []invalidation
	for _, b := range batches {
		for i := range b.Invalidations {
			o := b.Origins[b.Invalidations[i].Origin]
			o.Tx.XID = ""
			if !o.Tx.Committed.IsZero() {
				o.Tx.Committed = o.Tx.Committed.Truncate(time.Microsecond).UTC()
			}
			o.D = (o.D + time.Millisecond - 1).Truncate(time.Millisecond)
			all = append(all, invalidation{b.Key(i), b.Version(i), o, b.Invalidations[i].Action})
		}
	}
	return all
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
		Epoch: rapid.Uint32Range(0, 3).Draw(t, "epoch"), File: rapid.Uint32().Draw(t, "file"), Pos: rapid.Uint64().Draw(t, "pos"),
	}
})

var gtids = rapid.Custom(func(t *rapid.T) event.GTID {
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return event.GTID{}
	case 1:
		return event.GTID{
			Domain: rapid.Uint32().Draw(t, "domain"), Server: rapid.Uint32().Draw(t, "server"), Number: rapid.Uint64Min(1).Draw(t, "number"),
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
	return time.Unix(rapid.Int64Range(1_800_000_000, 1_800_000_002).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
})

var keys = rapid.OneOf(
	rapid.StringMatching(`[a-z]{1,8}:[0-9]{1,12}`),
	rapid.String(),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	rapid.SampledFrom([]string{"", "\x00", "\"", `\`, "\u2028", "é", "😀", "a\xffb", "\xed\xa0\x80", "\x7f", "</script>", "\r\n\t\b\f", "12345678\x1f", "1234567\""}),
)

var batches = rapid.Custom(func(t *rapid.T) *event.Batch {
	var b event.Batch
	for range rapid.IntRange(1, 4).Draw(t, "origins") {
		b.AddOrigin(event.Origin{
			Table: rapid.SampledFrom([]string{"shop.product", "shop.order", "größe.\"x\""}).Draw(t, "table"),
			Tx:    event.Tx{GTID: gtids.Draw(t, "gtid"), Committed: times.Draw(t, "committed")},
			Event: versions.Draw(t, "version"), D: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d")),
			Mapping: rapid.IntRange(0, 9).Draw(t, "mapping"),
		})
	}
	for range rapid.IntRange(1, 12).Draw(t, "keys") {
		b.Add(append(b.Text(), keys.Draw(t, "key")...), rapid.Uint32Range(1, 3).Draw(t, "row"), event.ActionDelete)
		b.Invalidations[b.Len()-1].Origin = rapid.Uint32Range(0, uint32(len(b.Origins)-1)).Draw(t, "origin")
	}
	return &b
})

func TestWhatIsEncodedComesBack(t *testing.T) {
	var e Encoder
	var p Parser
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(batches, 1, 3).Draw(t, "batches")
		h := Header{
			Source: rapid.StringN(1, 9, -1).Draw(t, "source"), Term: rapid.Uint64().Draw(t, "term"), Seq: rapid.Uint64Min(1).Draw(t, "seq"),
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
		if got != h || out.Source != h.Source || out.Term != h.Term || out.Age != h.Age || !out.At.IsZero() || !out.End.IsZero() {
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
