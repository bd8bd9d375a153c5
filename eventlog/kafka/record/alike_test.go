package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

// alike are batches whose changes have nearly everything in common, so that each of their fields is left out, written
// again and taken back, in every order.
var alike = rapid.Custom(func(t *rapid.T) *event.Batch {
	var b event.Batch
	b.Reset()
	gtids := []event.GTID{{}, {UUID: uuid(1), Number: 7}, {UUID: uuid(1), Number: 8}, {Domain: 1, Server: 2, Number: 3}}
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	times := []time.Time{{}, begin, begin.Add(time.Microsecond), begin.AddDate(10_000, 0, 0)}
	for range rapid.IntRange(1, 8).Draw(t, "origins") {
		b.AddOrigin(event.Origin{
			Table: rapid.SampledFrom([]string{"a.b", "a.c"}).Draw(t, "table"),
			Tx: event.Tx{
				GTID:      rapid.SampledFrom(gtids).Draw(t, "gtid"),
				Committed: rapid.SampledFrom(times).Draw(t, "committed"),
			},
			Event:     event.Version{Epoch: 1, File: 2, Pos: uint64(rapid.IntRange(1, 3).Draw(t, "pos"))},
			D:         time.Duration(rapid.IntRange(0, 1).Draw(t, "d")) * time.Second,
			Mapping:   rapid.IntRange(0, 1).Draw(t, "mapping"),
			RateLimit: rapid.IntRange(0, 1).Draw(t, "rate limit"),
		})
		for range rapid.IntRange(1, 3).Draw(t, "keys") {
			key := rapid.SampledFrom([]string{"k", "l", "", "\xff", "\"\\"}).Draw(t, "key")
			row := rapid.Uint32Range(1, 2).Draw(t, "row")
			b.Add(append(b.Text(), key...), row, event.ActionDelete)
		}
	}
	return &b
})

func TestChangesThatHaveNearlyAllInCommonComeBack(t *testing.T) {
	var e Encoder
	var p Parser
	h := Header{Source: "s", Term: 1, Seq: 1, Age: event.Unknown}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(alike, 1, 2).Draw(t, "batches")
		want := flat(in...)
		for i := range want {
			if !writable(want[i].Origin.Tx.Committed.UnixMicro()) {
				want[i].Origin.Tx.Committed = time.Time{}
			}
		}
		data := encode(&e, h, in...)
		out, _, err := p.Parse(data)
		if err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		if d := cmp.Diff(want, flat(out)); d != "" {
			t.Fatalf("%s\nof %s", d, data)
		}
	})
}
