package invalidator

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/routertest"
)

// told is what a batch of plain deletes says that is needed after its first delete.
func told(b *event.Batch) []string {
	var all []string
	for i := range b.Len() {
		all = append(all, fmt.Sprintf("%q of %s at %s: %s", b.Key(i), b.Of(i).Table, b.Version(i), b.Invalidations[i].Action))
	}
	return all
}

// What is packed says the same when it is a batch again, whatever the keys have in common.
func TestWhatIsPackedIsTheSameWhenItIsABatchAgain(t *testing.T) {
	var p packer
	rapid.Check(t, func(t *rapid.T) {
		var b event.Batch
		b.Reset()
		key := rapid.OneOf(rapid.StringN(0, 40, 300),
			rapid.StringMatching(`(product|category|user:session):[0-9]{1,7}(:page:[0-9])?`))
		for range rapid.IntRange(0, 5).Draw(t, "origins") {
			b.AddOrigin(event.Origin{
				Table: rapid.SampledFrom([]string{"shop.product", "shop.order", "x"}).Draw(t, "table"),
				Event: event.Version{
					Epoch: rapid.Uint32().Draw(t, "epoch"), File: rapid.Uint32().Draw(t, "file"), Pos: rapid.Uint64().Draw(t, "pos"),
				},
				D: time.Second,
			})
			for _, k := range rapid.SliceOfN(key, 0, 30).Draw(t, "keys") {
				b.Add(append(b.Text(), k...), rapid.Uint32().Draw(t, "row"), event.ActionDelete)
				b.Invalidations[b.Len()-1].Origin = rapid.Uint32Range(0, uint32(len(b.Origins)-1)).Draw(t, "origin")
			}
		}
		var again event.Batch
		p.unpack(p.pack(&b), &again)
		if diff := cmp.Diff(told(&b), told(&again)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The rows of one event under two mappings take turns between two origins: product:{id} and cat:{category_id} of each.
func TestKeysThatTakeTurnsBetweenOriginsArePacked(t *testing.T) {
	batch := turns(2, 8)
	var p packer
	var again event.Batch
	p.unpack(p.pack(batch), &again)
	if diff := cmp.Diff(told(batch), told(&again)); diff != "" {
		t.Error(diff)
	}
	if len(again.Origins) != 2 {
		t.Errorf("%d origins, want the two that there were", len(again.Origins))
	}
}

// turns is a rows event under several mappings with a key each, as the router makes it of so many keys.
func turns(mappings, keys int) *event.Batch {
	var b event.Batch
	b.Reset()
	like := benchBatches(1, 1, time.Second, 0)[0].Origin(0)
	for m := range mappings {
		like.Mapping = m
		b.AddOrigin(like)
	}
	for i := range keys {
		row, m := i/mappings, i%mappings
		b.Add(fmt.Appendf(b.Text(), "mapping:%d:%d", m, 100_000+row*(m+1)), uint32(row+1), event.ActionDelete)
		b.Invalidations[i].Origin = uint32(m)
	}
	return b.Clone()
}

// A value, or anything else that an action needs besides the key, is not packed: it would be lost.
func TestNothingButPlainDeletesIsPacked(t *testing.T) {
	effect := &event.Effect{Publish: true}
	for _, i := range []event.Item{
		{Action: event.ActionIncr},
		{Action: event.ActionDelete, Effect: effect},
		{Action: event.ActionDelete, Intent: event.IntentPut},
		{Action: event.ActionDelete, Text: event.AppendField([]byte("kp"), "a field"), Key: 2},
	} {
		var b event.Batch
		b.Reset()
		b.AddOrigin(event.Origin{Table: "shop.product"})
		b.Add([]byte("k"), 1, event.ActionDelete)
		if i.Text == nil {
			i.Text, i.Key = []byte("kp"), 1
		}
		b.AddItem(i)
		var p packer
		if p.pack(&b) != nil {
			t.Errorf("%+v was packed", i)
		}
	}
}

// A codec must cope with whatever the router makes: several mappings of one table, several tables of one transaction,
// and what is left of a batch when a partition takes its share.
func TestWhatTheRouterMakesIsTheSameWhenItIsUnpacked(t *testing.T) {
	var p packer
	rapid.Check(t, func(t *rapid.T) {
		for _, b := range routertest.Batches(t) {
			var plain []uint32
			for i := range b.Invalidations {
				if b.EffectOf(i) == nil && b.Invalidations[i].Action == event.ActionDelete {
					plain = append(plain, uint32(i))
				}
			}
			b = b.Arrange(plain)
			packed := p.pack(b)
			if packed == nil {
				t.Fatal("plain deletes were not packed")
			}
			var again event.Batch
			p.unpack(packed, &again)
			if diff := cmp.Diff(told(b), told(&again)); diff != "" {
				t.Fatal(diff)
			}
			if len(again.Origins) != len(b.Origins) {
				t.Fatalf("%d origins became %d", len(b.Origins), len(again.Origins))
			}
		}
	})
}

// Keys of bulk changes, of single rows and of several keys a row: bytes for each, and what it costs.
func BenchmarkPack(b *testing.B) {
	several := benchBatches(1, 200, time.Second, 0)[0]
	var rows event.Batch
	rows.Reset()
	rows.AddOrigin(several.Origin(0))
	for i := 0; rows.Len() < keysPerBatch; i++ {
		for _, k := range []string{
			fmt.Sprintf("product:%d", 100_000+i), fmt.Sprintf("category:%d:products", i*7919%1000),
			fmt.Sprintf("sku:SKU-%08d", i),
		} {
			rows.Add(append(rows.Text(), k...), uint32(i), event.ActionDelete)
		}
	}
	for name, batch := range map[string]*event.Batch{
		"bulk": several, "single": benchBatches(1, 1, time.Second, 0)[0], "three a row": rows.Clone(),
		"three mappings": turns(3, keysPerBatch),
	} {
		b.Run(name, func(b *testing.B) {
			var p packer
			var again event.Batch
			b.ReportAllocs()
			for b.Loop() {
				packed := p.pack(batch)
				again.Reset()
				p.unpack(packed, &again)
			}
			b.ReportMetric(float64(len(p.pack(batch)))/float64(batch.Len()), "bytes/key")
			b.ReportMetric(float64(batch.Bytes())/float64(batch.Len()), "unpacked-bytes/key")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch.Len()), "ns/key")
		})
	}
}
