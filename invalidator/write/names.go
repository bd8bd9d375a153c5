package write

import (
	"strconv"
	"strings"
	"sync"
)

// Names makes the names of the keys that freshet keeps next to a key of the application. Each lies in the Cluster slot
// of its key, whatever bytes that has, so that one script may touch both. With K = prefix + key they are
//
//	prefix freshet:KIND:{K}        K has neither a hash tag nor a closing brace: almost every key
//	prefix freshet:KIND::key       K has a hash tag, which is the name's as well
//	prefix freshet:KIND:{T}:key    all else (odd braces, an empty key): T is a number that lies in the slot of K
//
// where a hash tag is what stands between the first { and the first } after it, if it is not empty
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags). No two keys share a name.
type Names struct {
	// Prefix stands before every key, and before every name. It has no brace, or one hash tag.
	Prefix string
}

// Kind is what a key next to a key is for.
type Kind string

// The kinds.
const (
	// KindVersion is the version that a rebuilt key holds.
	KindVersion Kind = "v"
	// KindField are the versions of the fields of a hash; KindOldField the generation of them before.
	KindField    Kind = "f"
	KindOldField Kind = "fo"
	// KindMember are the versions of the members of a set; KindOldMember the generation of them before.
	KindMember    Kind = "m"
	KindOldMember Kind = "mo"
	// KindLock is the lock of a rebuild by query.
	KindLock Kind = "lock"
	// KindTemporary is where a large hash is put together. A token follows, see [Names.Append].
	KindTemporary Kind = "t"
)

const reserved = "freshet:"

// Key returns the key as it is in Redis.
func (n Names) Key(key string) string { return n.Prefix + key }

// Lock returns the name of the key's lock.
func (n Names) Lock(key string) string { return string(n.Append(nil, KindLock, key)) }

// Version returns the name of the companion of a rebuilt key.
func (n Names) Version(key string) string { return string(n.Append(nil, KindVersion, key)) }

// Waited returns the name of the key that is written before replicas are waited for. In a cluster it lies in the slot
// of a key, as that is in Redis; without one, and with a prefix that has a hash tag, there is one for all.
func (n Names) Waited(key string) string {
	name := n.Prefix + reserved + "wait"
	if key == "" || strings.Contains(n.Prefix, "{") {
		return name
	}
	return name + ":{" + SlotTag(slot(key)) + "}"
}

// Append appends the name of the kind for the key, which is without the prefix.
func (n Names) Append(dst []byte, kind Kind, key string) []byte {
	dst = append(dst, n.Prefix...)
	dst = append(dst, reserved...)
	dst = append(dst, kind...)
	dst = append(dst, ':')
	odd, tagged := n.tag(key)
	switch {
	case tagged:
		dst = append(dst, ':')
		return append(dst, key...)
	case !odd:
		dst = append(dst, '{')
		dst = append(dst, n.Prefix...)
		dst = append(dst, key...)
		return append(dst, '}')
	}
	dst = append(dst, '{')
	dst = strconv.AppendUint(dst, uint64(slotNumbers()[slot(n.Prefix+key)]), 10)
	dst = append(dst, "}:"...)
	return append(dst, key...)
}

// tag says of prefix + key whether it has a hash tag, and else whether it is odd: putting braces around it makes none.
func (n Names) tag(key string) (odd, tagged bool) {
	if n.Prefix != "" && strings.ContainsAny(n.Prefix, "{}") {
		key = n.Prefix + key // rare, and short
	}
	if _, ok := hashTag(key); ok {
		return false, true
	}
	return n.Prefix+key == "" || strings.IndexByte(key, '}') >= 0, false
}

// hashTag returns the part of the key by which Cluster chooses its slot, if that is not the whole.
func hashTag(key string) (string, bool) {
	from := strings.IndexByte(key, '{')
	if from < 0 {
		return "", false
	}
	to := strings.IndexByte(key[from+1:], '}')
	if to <= 0 {
		return "", false
	}
	return key[from+1 : from+1+to], true
}

// Slots is the number of slots of a Cluster.
const Slots = 1 << 14

// Slot returns the Cluster slot in which the key lies, and all that freshet keeps next to it.
func (n Names) Slot(key string) uint16 {
	if n.Prefix == "" || strings.ContainsAny(n.Prefix, "{}") { // the latter is rare, and short
		return slot(n.Prefix + key)
	}
	if tag, ok := hashTag(key); ok {
		return crc16(0, tag) % Slots
	}
	return crc16(crc16(0, n.Prefix), key) % Slots
}

// slot returns the Cluster slot of a key as it is in Redis.
func slot(key string) uint16 {
	if tag, ok := hashTag(key); ok {
		key = tag
	}
	return crc16(0, key) % Slots
}

// crc16 is CRC-16/XMODEM, as Cluster wants it, of what crc is that of and then s.
func crc16(crc uint16, s string) uint16 {
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

// crcTable holds the CRC-16/XMODEM of each byte.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()

// SlotTag returns a hash tag of the slot: what stands between braces in a key that is to lie there.
func SlotTag(slot uint16) string { return strconv.FormatUint(uint64(slotNumbers()[slot%Slots]), 10) }

// slotNumbers holds for each slot the least number whose decimal text lies in it. It is made when a key with odd
// braces is met for the first time: some milliseconds.
var slotNumbers = sync.OnceValue(func() *[Slots]uint32 {
	var numbers [Slots]uint32
	var have [Slots]bool
	for n, left := uint32(0), Slots; left > 0; n++ {
		if s := crc16(0, strconv.FormatUint(uint64(n), 10)) % Slots; !have[s] {
			have[s], numbers[s] = true, n
			left--
		}
	}
	return &numbers
})
