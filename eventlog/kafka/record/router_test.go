package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/routertest"
)

// A codec must cope with whatever the router makes: several mappings of one table, several tables of one transaction,
// every action, and what is left of a batch when a partition takes its share.
func TestWhatTheRouterMakesComesBack(t *testing.T) {
	var e Encoder
	var p Parser
	rapid.Check(t, func(t *rapid.T) {
		var share []*event.Batch
		partitions := rapid.IntRange(1, 3).Draw(t, "partitions")
		for _, b := range routertest.Batches(t) {
			share = append(share, shareOf(b, partitions))
		}
		data := encode(&e, header, share...)
		if e.Count() == 0 {
			return
		}
		if e.Forgotten() > 0 {
			t.Fatalf("%d of them lost what they write", e.Forgotten())
		}
		for _, doc := range [][]byte{data, former(t, data, 2), former(t, data, 1)} {
			out, h, err := p.Parse(doc)
			if err != nil {
				t.Fatalf("%v in %s", err, doc)
			}
			if d := cmp.Diff(flat(share...), flat(out)); d != "" {
				t.Fatalf("%s\nof %s", d, doc)
			}
			if h != header || out.Last != highestOf(share) {
				t.Fatalf("%+v up to %s, want %+v up to %s", h, out.Last, header, highestOf(share))
			}
		}
	})
}

// shareOf returns what one of several partitions gets of a batch, in the batch's order.
func shareOf(b *event.Batch, partitions int) *event.Batch {
	var share []uint32
	for i := range b.Invalidations {
		if len(b.Key(i))%partitions == 0 {
			share = append(share, uint32(i))
		}
	}
	return b.Arrange(share)
}

func highestOf(batches []*event.Batch) (highest event.Version) {
	for _, i := range routertest.Items(batches...) {
		if i.Version.Compare(highest) > 0 {
			highest = i.Version
		}
	}
	return highest
}

// Two mappings' keys take turns in a batch of thousands, and each turn is a change of its own in a record: read again,
// they must have the few origins that they had, or each key would hold one in memory for as long as it waits.
func TestKeysThatTakeTurnsDoNotBringAnOriginEach(t *testing.T) {
	for _, mappings := range []int{2, 3, 8, 16} {
		var b event.Batch
		b.Reset()
		for m := range mappings {
			b.AddOrigin(event.Origin{Table: "shop.product", Mapping: m, Event: event.Version{Epoch: 1, File: 1, Pos: 4}})
		}
		for i := range 100 * mappings {
			b.Add(fmt.Appendf(b.Text(), "k:%d", i), uint32(i/mappings+1), event.ActionDelete)
			b.Invalidations[i].Origin = uint32(i % mappings)
		}
		out, _, err := Parse(encode(new(Encoder), header, &b))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.Origins); n != mappings {
			t.Errorf("%d mappings: %d origins", mappings, n)
		}
		if d := cmp.Diff(flat(&b), flat(out)); d != "" {
			t.Error(d)
		}
	}
}

// former writes a record again in a former format: every change has all of its fields, and rows of one event; in format
// 1 every row is an object.
func former(t *rapid.T, data []byte, format int) []byte {
	t.Helper()
	var doc map[string]json.RawMessage
	read(t, data, &doc)
	var changes []map[string]json.RawMessage
	read(t, doc["changes"], &changes)
	var all []map[string]json.RawMessage
	var last map[string]json.RawMessage
	for _, c := range changes {
		if c["table"] == nil {
			for name, v := range last {
				if c[name] == nil {
					c[name] = v
				}
			}
		}
		last = c
		all = append(all, ofOneEvent(t, c, format)...)
	}
	doc["changes"], doc["format"] = write(t, all), fmt.Append(nil, format)
	return write(t, doc)
}

// ofOneEvent takes a change apart into changes of one rows event each.
func ofOneEvent(t *rapid.T, c map[string]json.RawMessage, format int) (all []map[string]json.RawMessage) {
	t.Helper()
	var rows, own []json.RawMessage
	read(t, c["rows"], &rows)
	var place string
	read(t, c["version"], &place)
	end := func() {
		one := map[string]json.RawMessage{}
		for name, v := range c {
			one[name] = v
		}
		one["version"], one["rows"] = write(t, place), write(t, own)
		all, own = append(all, one), nil
	}
	for _, row := range rows {
		switch {
		case row[0] == '[' && format == 1:
			ordinal, keys, _ := bytes.Cut(row[1:], []byte(","))
			own = append(own, fmt.Appendf(nil, `{"row":%s,"delete":[%s}`, ordinal, keys))
		case row[0] == '[' || row[0] == '{':
			own = append(own, row)
		default: // the position of a further event
			end()
			place = place[:strings.LastIndexByte(place, '/')+1] + string(row)
		}
	}
	end()
	return all
}

func read(t *rapid.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func write(t *rapid.T, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
