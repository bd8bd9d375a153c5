package producer

// Partition returns the partition, from 0, that the invalidations of a key travel in when the topic has n of them.
//
// It is part of the format of the log, and never changes: the readers of one topic, of whatever version, put a key
// into the same partition, which is what keeps its order. The rule is that of Kafka's own partitioner for keyed
// records, murmur2(key) & 0x7fffffff modulo n over the bytes of the Redis key as the mapping writes it (without
// redis.key_prefix), so that any Kafka client can say where a key is.
// Source: Apache Kafka, clients, BuiltInPartitioner.partitionForKey and Utils.murmur2.
func Partition(key string, n int) int {
	return int(murmur2(key)&0x7fffffff) % n
}

// murmur2 is the 32-bit MurmurHash2 with the seed that Kafka uses.
func murmur2(s string) uint32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(s))
	for ; len(s) >= 4; s = s[4:] {
		k := uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(s) {
	case 3:
		h ^= uint32(s[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(s[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(s[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
