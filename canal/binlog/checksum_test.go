package binlog

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// crc32's own sum is the truth, for events of every length that is put into blocks, and beyond.
func TestChecksumsOfSmallEventsAreThoseOfTheirBytes(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	var s checksummer
	for n := HeaderSize; n < 2*smallEvent; n++ {
		ev := make([]byte, n+checksumSize)
		_, _ = random.Read(ev)
		if n%3 == 0 {
			clear(ev[:8]) // what zeros before the event could hide
		}
		binary.LittleEndian.PutUint32(ev[n:], crc32.ChecksumIEEE(ev[:n]))
		if !s.right(ev) {
			t.Fatalf("%d bytes: the right checksum is refused", n)
		}
		for _, at := range []int{0, 3, 4, n / 2, n - 1, n} {
			ev[at] ^= 0x10
			if s.right(ev) {
				t.Fatalf("%d bytes, of which byte %d is wrong: the checksum is taken", n, at)
			}
			ev[at] ^= 0x10
		}
	}
	if s.right(make([]byte, HeaderSize)) {
		t.Error("what has no room for a checksum is taken")
	}
}

func BenchmarkChecksum(b *testing.B) {
	for name, n := range map[string]int{"XID": 31, "GTID": 83, "one row": 167, "8 KiB": 8192} {
		ev := make([]byte, n)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var s checksummer
			for b.Loop() {
				s.right(ev)
			}
		})
	}
}
