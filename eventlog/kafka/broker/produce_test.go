package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// codecs are all that can be configured.
var codecs = []kafka.Compression{0, kafka.Lz4, kafka.Zstd, kafka.Snappy, kafka.Gzip}

// noise is bytes that no compression makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// sameBytes compares texts whole: byte by byte, as cmp does it, a few megabytes take minutes.
var sameBytes = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	for name, records := range map[string][]Record{
		"one":            {{Key: []byte("shop"), Value: []byte("value"), Time: at}},
		"empty and null": {{Key: []byte{}, Value: nil, Time: at}, {Key: nil, Value: []byte{}, Time: at}},
		"times that go back": {
			{Value: []byte("a"), Time: at},
			{Value: []byte("b"), Time: at.Add(-time.Hour)},
			{Value: []byte("c"), Time: at.Add(time.Second)},
		},
		"many": slicesOf(1000,
			func(i int) Record { return Record{Value: fmt.Appendf(nil, "value %d", i), Time: at} }),
		"a block to the byte":    {{Value: bytes.Repeat([]byte("x"), lz4Block-17), Time: at}},
		"several blocks":         {{Value: []byte(strings.Repeat(`[17,"product:17"],`, 40_000)), Time: at}},
		"nothing to be gained":   {{Value: noise(3*lz4Block + 5), Time: at}},
		"something in the first": {{Value: append(bytes.Repeat([]byte("x"), lz4Block), noise(lz4Block)...), Time: at}},
	} {
		for _, compression := range codecs {
			var p packer
			for range 2 { // with new memory, and with that of the batch before
				b, err := p.pack(nil, records, compression)
				must(t, err)
				binary.BigEndian.PutUint64(b, 40) // as the broker does
				f := Fetched{Next: 40}
				must(t, new(unpacker).unpack(&f, b, 40))
				want := slicesOf(len(records), func(i int) Record { r := records[i]; r.Offset = int64(40 + i); return r })
				if d := cmp.Diff(want, f.Records, sameBytes); d != "" || f.Next != int64(40+len(records)) {
					t.Errorf("%s, %v: next %d\n%.2000s", name, compression, f.Next, d)
				}
			}
		}
	}
}

func slicesOf[T any](n int, f func(int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = f(i)
	}
	return all
}

// The library reads what other clients write, so what it can read is what they can.
func TestOthersReadWhatIsPacked(t *testing.T) {
	value := []byte(strings.Repeat(`[17,"product:17"],`, 10_000))
	for _, compression := range codecs {
		var p packer
		b, err := p.pack(nil, []Record{
			{Key: []byte("k"), Value: value, Time: time.UnixMilli(5)},
			{Value: nil, Time: time.UnixMilli(9)},
		}, compression)
		must(t, err)
		set := protocol.RecordSet{}
		_, err = set.ReadFrom(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)))
		must(t, err)
		first, err := set.Records.ReadRecord()
		must(t, err)
		got, err := protocol.ReadAll(first.Value)
		must(t, err)
		second, err := set.Records.ReadRecord()
		must(t, err)
		if !bytes.Equal(got, value) || second.Value != nil || second.Time.UnixMilli() != 9 {
			t.Errorf("%v: %d bytes, then %v at %s", compression, len(got), second.Value, second.Time)
		}
	}
}

func TestARecordWithoutATimeHasThatOfTheCall(t *testing.T) {
	begin := time.Now().Truncate(time.Millisecond)
	b, err := new(packer).pack(nil, []Record{{Value: []byte("v")}}, 0)
	must(t, err)
	var f Fetched
	must(t, new(unpacker).unpack(&f, b, 0))
	if got := f.Records[0].Time; got.Before(begin) || got.After(time.Now()) {
		t.Errorf("%s, after %s", got, begin)
	}
}

func TestTheAnswerToAProduceRequest(t *testing.T) {
	type part struct {
		index int32
		code  kafka.Error
	}
	answer := func(parts ...part) []byte {
		b := binary.BigEndian.AppendUint32(nil, 1)
		b = append(append(b, 0, 1), 't')
		b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
		for _, p := range parts {
			b = binary.BigEndian.AppendUint32(b, uint32(p.index))
			b = binary.BigEndian.AppendUint16(b, uint16(p.code))
			b = binary.BigEndian.AppendUint64(b, uint64(70+p.index))
			b = append(b, make([]byte, 16)...)
		}
		return binary.BigEndian.AppendUint32(b, 250)
	}
	to := []int32{3, 9, 4}
	for name, c := range map[string]struct {
		said []part
		want []appended
	}{
		"in order":   {[]part{{3, 0}, {9, 0}, {4, 0}}, []appended{{0, 73}, {0, 79}, {0, 74}}},
		"in another": {[]part{{4, 0}, {3, 0}, {9, 0}}, []appended{{0, 73}, {0, 79}, {0, 74}}},
		"one refused": {
			[]part{{3, 0}, {9, kafka.NotEnoughReplicas}, {4, 0}},
			[]appended{{0, 73}, {kafka.NotEnoughReplicas, 79}, {0, 74}},
		},
		// silence is no acknowledgement
		"of others":     {[]part{{5, 0}, {4, 0}}, []appended{{kafka.Unknown, 0}, {kafka.Unknown, 0}, {0, 74}}},
		"of none asked": {[]part{{1, 0}}, []appended{{kafka.Unknown, 0}, {kafka.Unknown, 0}, {kafka.Unknown, 0}}},
	} {
		got, err := parseProduced(answer(c.said...), to)
		must(t, err)
		if d := cmp.Diff(&produced{250 * time.Millisecond, c.want}, got,
			cmp.AllowUnexported(produced{}, appended{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	whole := answer(part{3, 0}, part{9, 0})
	for n := range len(whole) {
		if _, err := parseProduced(whole[:n], to); !errors.Is(err, errShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func BenchmarkPack(b *testing.B) {
	var value []byte
	for i := range 4000 {
		value = fmt.Appendf(value, `[%d,"product:%d"],`, i%80, 400_000+7*i)
	}
	records := []Record{{Key: []byte("main"), Value: value, Time: time.UnixMilli(1)}}
	for _, compression := range []kafka.Compression{0, kafka.Lz4, kafka.Zstd} {
		b.Run(compression.String(), func(b *testing.B) {
			var p packer
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			size := 0
			var batch []byte
			var err error
			for b.Loop() {
				batch, err = p.pack(batch[:0], records, compression)
				must(b, err)
				size = len(batch)
			}
			b.ReportMetric(float64(len(value))/float64(size), "times-smaller")
		})
	}
}
