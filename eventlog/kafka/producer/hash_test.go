package producer

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"
)

// The numbers are those of Kafka's own test (UtilsTest.testMurmur2): a change of the hash would break the order of
// keys between readers of different versions.
func TestTheHashIsThatOfKafka(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2(key)); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
	for key, want := range map[string]int{"": 9, "product:17": 2, "user:1": 2, "\xff\x00\xfe": 8} {
		if got := Partition(key, 12); got != want {
			t.Errorf("key %q is in partition %d of 12, want %d", key, got, want)
		}
	}
}

func TestAKeyIsWhereAnyKafkaClientWouldPutIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "key"))
		n := rapid.IntRange(1, 200).Draw(t, "partitions")
		ids := make([]int, n)
		for i := range ids {
			ids[i] = i
		}
		want := kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: []byte(key)}, ids...)
		if got := Partition(key, n); got != want {
			t.Fatalf("key %q is in partition %d of %d, want %d", key, got, n, want)
		}
	})
}
