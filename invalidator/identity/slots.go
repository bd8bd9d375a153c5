package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/freshet/freshet/invalidator/write"
)

// SlotSet is a set of the slots of a Redis Cluster. Two can be compared.
type SlotSet [write.Slots / 64]uint64

// Add adds a slot.
func (s *SlotSet) Add(slot uint16) { s[slot/64] |= 1 << (slot % 64) }

// Has reports whether a slot is in the set.
func (s *SlotSet) Has(slot uint16) bool { return s[slot/64]>>(slot%64)&1 != 0 }

// Len returns how many slots are in the set.
func (s *SlotSet) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

func (s *SlotSet) isEmpty() bool { return *s == SlotSet{} }

func (s *SlotSet) and(o *SlotSet) (both SlotSet) {
	for i := range s {
		both[i] = s[i] & o[i]
	}
	return both
}

func (s *SlotSet) without(o *SlotSet) (left SlotSet) {
	for i := range s {
		left[i] = s[i] &^ o[i]
	}
	return left
}

func (s *SlotSet) add(o *SlotSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s *SlotSet) fill() {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// MarshalText implements [encoding.TextMarshaler]: 0-5460 7000.
func (s SlotSet) MarshalText() ([]byte, error) {
	var text []byte
	for slot := 0; slot < write.Slots; slot++ {
		if !s.Has(uint16(slot)) {
			continue
		}
		last := slot
		for last+1 < write.Slots && s.Has(uint16(last+1)) {
			last++
		}
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, int64(slot), 10)
		if last > slot {
			text = strconv.AppendInt(append(text, '-'), int64(last), 10)
		}
		slot = last
	}
	return text, nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *SlotSet) UnmarshalText(text []byte) error {
	*s = SlotSet{}
	for word := range strings.FieldsSeq(string(text)) {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 14)
		to, err2 := strconv.ParseUint(last, 10, 14)
		if err != nil || err2 != nil || from > to {
			return fmt.Errorf("identity: %q is no range of slots", word)
		}
		for slot := from; slot <= to; slot++ {
			s.Add(uint16(slot))
		}
	}
	return nil
}

// sum tells the set from others, in a stamp.
func (s *SlotSet) sum() string {
	var all [8 * len(s)]byte
	for i, word := range s {
		binary.LittleEndian.PutUint64(all[8*i:], word)
	}
	sum := sha256.Sum256(all[:])
	return hex.EncodeToString(sum[:6])
}

// stampKey returns where the stamp of a node with these slots is: in the one of them that comes first in an order that
// is fixed, and shuffled, so that few of the slots that come and go are it. All processes find the same. "": no key
// with the prefix can be on the node.
func (s *SlotSet) stampKey(prefix, name string) string {
	names := write.Names{Prefix: prefix}
	if fixed := names.Slot("a"); fixed == names.Slot("b") { // the prefix has a hash tag
		if !s.Has(fixed) {
			return ""
		}
		return prefix + StampKey + name
	}
	const shuffle = 10007 // odd: no two slots have the same place
	first, at := uint16(0), write.Slots
	for slot := range uint16(write.Slots) {
		if place := int(slot) * shuffle % write.Slots; place < at && s.Has(slot) {
			first, at = slot, place
		}
	}
	if at == write.Slots {
		return ""
	}
	return prefix + StampKey + "{" + write.SlotTag(first) + "}:" + name
}
