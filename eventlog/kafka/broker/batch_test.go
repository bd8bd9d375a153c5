package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// batch returns the bytes of a batch as the library writes it, with records k0=v0, k1=v1, …
func batch(tb testing.TB, base int64, count int, compression kafka.Compression) []byte {
	tb.Helper()
	var records []kafka.Record
	for i := range count {
		records = append(records, kafka.Record{
			Time: time.UnixMilli(1000 + int64(i)), Key: kafka.NewBytes(fmt.Appendf(nil, "k%d", i)),
			Value:   kafka.NewBytes(fmt.Appendf(nil, "v%d", i)),
			Headers: []kafka.Header{{Key: "h", Value: []byte("x")}},
		})
	}
	set := protocol.RecordSet{
		Version: 2, Attributes: protocol.Attributes(compression),
		Records: kafka.NewRecordReader(records...),
	}
	var b bytes.Buffer
	if _, err := set.WriteTo(&b); err != nil {
		tb.Fatal(err)
	}
	out := b.Bytes()[4:] // without the size
	binary.BigEndian.PutUint64(out, uint64(base))
	return out
}

// change changes a batch's bytes and makes its checksum right again.
func change(b []byte, f func([]byte)) []byte {
	b = slices.Clone(b)
	f(b)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// attributes sets flags.
func attributes(flags uint16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[21:], binary.BigEndian.Uint16(b[21:])|flags) }
}

// compactedAway makes a batch that reaches as far and holds the first keep records only.
func compactedAway(tb testing.TB, base int64, count, keep int) []byte {
	b := batch(tb, base, max(keep, 1), 0)
	if keep == 0 {
		b = b[:61]
		binary.BigEndian.PutUint32(b[8:], 49)
	}
	return change(b, func(b []byte) {
		binary.BigEndian.PutUint32(b[23:], uint32(count-1))
		binary.BigEndian.PutUint32(b[57:], uint32(keep))
	})
}

func TestUnpack(t *testing.T) {
	damaged := batch(t, 3, 3, 0)
	damaged[70] ^= 1
	for name, c := range map[string]struct {
		answer  []byte
		offset  int64
		records []int64
		next    int64
		corrupt bool
	}{
		"nothing": {nil, 5, nil, 5, false},
		"two batches": {
			slices.Concat(batch(t, 0, 3, 0), batch(t, 3, 2, kafka.Lz4)), 0,
			[]int64{0, 1, 2, 3, 4},
			5, false,
		},
		"what lies below is left out": {batch(t, 0, 3, kafka.Zstd), 2, []int64{2}, 3, false},
		"a batch below is left out":   {slices.Concat(batch(t, 0, 3, 0), batch(t, 3, 1, 0)), 3, []int64{3}, 4, false},
		"a marker of a transaction":   {change(batch(t, 7, 1, 0), attributes(control)), 7, nil, 8, false},
		"a marker behind records": {
			slices.Concat(batch(t, 0, 2, 0), change(batch(t, 2, 1, 0), attributes(control))), 0,
			[]int64{0, 1},
			3, false,
		},
		"compaction took the tail": {compactedAway(t, 4, 6, 2), 4, []int64{4, 5}, 10, false},
		"compaction took all":      {compactedAway(t, 4, 6, 0), 4, nil, 10, false},
		"compaction left a gap": {
			slices.Concat(batch(t, 0, 1, 0), batch(t, 50, 1, kafka.Snappy)), 0,
			[]int64{0, 50},
			51, false,
		},
		"the last one came in part": {
			slices.Concat(batch(t, 0, 2, 0), batch(t, 2, 3, 0)[:40]), 0,
			[]int64{0, 1},
			2,
			false,
		},
		"a few bytes of the last came": {slices.Concat(batch(t, 0, 2, 0), batch(t, 2, 3, 0)[:7]), 0, []int64{0, 1}, 2, false},
		"the only one came in part":    {batch(t, 0, 2, 0)[:70], 0, nil, 0, true},
		"damaged":                      {damaged, 3, nil, 0, true},
		"damaged behind a good one":    {slices.Concat(batch(t, 0, 3, 0), damaged), 0, []int64{0, 1, 2}, 3, false},
		"of the old format":            {change(batch(t, 0, 1, 0), func(b []byte) { b[16] = 1 }), 0, nil, 0, true},
		"of an unknown compression":    {change(batch(t, 0, 1, 0), attributes(7)), 0, nil, 0, true},
		"not compressed as it says":    {change(batch(t, 0, 1, 0), attributes(4)), 0, nil, 0, true},
		"fewer records than it says":   {change(batch(t, 0, 2, 0), func(b []byte) { b[60] = 9 }), 0, nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := Fetched{Next: c.offset}
			err := new(unpacker).unpack(&f, c.answer, c.offset)
			if (Classify(err) == Corrupt) != c.corrupt || !c.corrupt && err != nil {
				t.Fatalf("error %v (%v), want damage %v", err, Classify(err), c.corrupt)
			}
			var got []int64
			for _, r := range f.Records {
				got = append(got, r.Offset)
			}
			if !slices.Equal(got, c.records) || !c.corrupt && f.Next != c.next {
				t.Errorf("offsets %v and next %d, want %v and %d", got, f.Next, c.records, c.next)
			}
		})
	}
}

func TestUnpackedRecordsAreWhole(t *testing.T) {
	for _, compression := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		var f Fetched
		must(t, new(unpacker).unpack(&f, batch(t, 10, 3, compression), 0))
		for i, r := range f.Records {
			if string(r.Key) != fmt.Sprintf("k%d", i) || string(r.Value) != fmt.Sprintf("v%d", i) || r.Offset != int64(10+i) ||
				r.Time.UnixMilli() != int64(1000+i) {
				t.Errorf("%v: record %d is %+v", compression, i, r)
			}
			if len(append(r.Key, "grown"...)) == 0 || string(r.Value) != fmt.Sprintf("v%d", i) {
				t.Errorf("%v: who appends to a key writes over the value", compression)
			}
		}
	}
	var f Fetched
	must(t, new(unpacker).unpack(&f, change(batch(t, 0, 2, 0), attributes(appendTime)), 0))
	if f.Records[0].Time != f.Records[1].Time || f.Records[0].Time.UnixMilli() != 1001 {
		t.Errorf("the broker's time is not that of all: %v, %v", f.Records[0].Time, f.Records[1].Time)
	}
}

// FuzzUnpack gives it anything: it neither panics, nor hands out what was not asked for, nor goes back.
func FuzzUnpack(f *testing.F) {
	f.Add(batch(f, 0, 3, 0), int64(1))
	f.Add(slices.Concat(batch(f, 0, 3, kafka.Lz4), batch(f, 3, 1, 0)), int64(2))
	f.Add(compactedAway(f, 0, 5, 0), int64(0))
	f.Fuzz(func(t *testing.T, answer []byte, offset int64) {
		if len(answer) > 61 { // past the checksum, which it would seldom guess
			answer = change(answer, func([]byte) {})
		}
		got := Fetched{Next: offset}
		_ = new(unpacker).unpack(&got, answer, offset)
		if got.Next < offset {
			t.Errorf("went back from %d to %d", offset, got.Next)
		}
		for _, r := range got.Records {
			if r.Offset < offset || r.Offset >= got.Next {
				t.Errorf("record %d of [%d, %d)", r.Offset, offset, got.Next)
			}
		}
	})
}

// FuzzAnswer gives the parser of answers anything.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, answer []byte) {
		got, err := parseFetched(answer, []FetchFrom{{Partition: 0}, {Partition: 1}})
		if err == nil && len(got.parts[0].batches)+len(got.parts[1].batches) > len(answer) {
			t.Errorf("%d and %d bytes out of %d", len(got.parts[0].batches), len(got.parts[1].batches), len(answer))
		}
	})
}

func BenchmarkUnpack(b *testing.B) {
	for _, compression := range []kafka.Compression{0, kafka.Lz4, kafka.Zstd} {
		b.Run(compression.String(), func(b *testing.B) {
			var answer []byte
			for i := range 100 {
				answer = append(answer, batch(b, int64(i*50), 50, compression)...)
			}
			b.SetBytes(int64(len(answer)))
			b.ReportAllocs()
			var u unpacker
			for b.Loop() {
				var f Fetched
				if err := u.unpack(&f, answer, 0); err != nil || len(f.Records) != 5000 {
					b.Fatal(err, len(f.Records))
				}
			}
		})
	}
}
