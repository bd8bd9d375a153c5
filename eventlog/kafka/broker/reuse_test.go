package broker

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
)

// What is handed out stays as it is when the same memory packs and unpacks what comes next: a batch may still be on its
// way to a broker that did not answer in time, and records wait for the consumer.
func TestWhatIsHandedOutIsNotWrittenToAgain(t *testing.T) {
	one := func(c byte) []Record {
		return slicesOf(3, func(i int) Record {
			return Record{
				Key: bytes.Repeat([]byte{c}, 5+i), Value: bytes.Repeat([]byte{c, c + 1}, 1000),
				Time: time.UnixMilli(9), Offset: int64(i),
			}
		})
	}
	for _, compression := range codecs {
		var p packer
		var u unpacker
		first, err := p.pack(nil, one('a'), compression)
		must(t, err)
		kept := slices.Clone(first)
		second, err := p.pack(nil, one('x'), compression)
		must(t, err)
		if !bytes.Equal(first, kept) {
			t.Errorf("%v: packing the next batch wrote to the one before", compression)
		}
		var f, g Fetched
		must(t, u.unpack(&f, first, 0))
		if compression == kafka.Lz4 { // what is damaged leaves nothing behind either
			damaged := change(slices.Clone(second), func(b []byte) { b[len(b)-20] ^= 0xff })
			_ = u.unpack(&Fetched{}, damaged, 0)
		}
		must(t, u.unpack(&g, second, 0))
		if d := cmp.Diff(one('a'), f.Records); d != "" {
			t.Errorf("%v: unpacking the next answer wrote to the records of the one before: %.500s", compression, d)
		}
		if d := cmp.Diff(one('x'), g.Records); d != "" {
			t.Errorf("%v: %.500s", compression, d)
		}
	}
}

// An answer is for several partitions: records that wait must not keep it.
func TestRecordsShareNothingWithTheAnswer(t *testing.T) {
	for _, compression := range codecs {
		var p packer
		b, err := p.pack(nil, []Record{{Key: []byte("key"), Value: []byte("value")}}, compression)
		must(t, err)
		var f Fetched
		must(t, new(unpacker).unpack(&f, b, 0))
		clear(b)
		if r := f.Records[0]; string(r.Key) != "key" || string(r.Value) != "value" {
			t.Errorf("%v: %q %q", compression, r.Key, r.Value)
		}
	}
}
