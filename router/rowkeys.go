package router

import (
	"bytes"
	"hash/maphash"

	"github.com/freshet/freshet/event"
)

// rowKeys finds the keys that the row under way has made already. A few are compared one by one; many, as copies
// make, are found by their hash.
type rowKeys struct {
	// first is the row's first invalidation in the batch.
	first int
	// table holds, by hash, the ordinals of keys within the row plus 1; 0 is an empty place. Its length is a power
	// of two. It is in use once hashed is above 0: so many keys are in it.
	table  []uint32
	hashed int
	seed   maphash.Seed
}

// few is up to how many keys are compared one by one.
const few = 16

// begin forgets the keys of the row before.
func (k *rowKeys) begin(b *event.Batch) {
	k.first = b.Len()
	if k.hashed > 0 {
		clear(k.table)
		k.hashed = 0
	}
}

// identity is what makes two invalidations of a row one.
type identity struct {
	action event.Action
	effect *event.Effect
	key    []byte
	// mark is the field of a hash, or the member, as a field of the invalidation; empty when it is about a whole key.
	mark []byte
}

// is reports whether invalidation i is the same.
func (d *identity) is(b *event.Batch, i int) bool {
	inv := &b.Invalidations[i]
	if inv.Action != d.action || !bytes.Equal(b.Pending(i), d.key) {
		return false
	}
	if b.EffectOf(i) != d.effect {
		return false
	}
	switch d.action {
	case event.ActionHash, event.ActionSet, event.ActionZSet:
		fields := b.Fields(i)
		return len(d.mark) > 0 && bytes.HasPrefix(fields, d.mark) || len(d.mark) == 0 && len(fields) == 0
	}
	return true
}

// find returns the invalidation of this row that is the same, or -1.
func (k *rowKeys) find(b *event.Batch, d *identity) int {
	if k.hashed == 0 {
		for i := k.first; i < b.Len(); i++ {
			if d.is(b, i) {
				return i
			}
		}
		return -1
	}
	for at := k.place(d.key); k.table[at] != 0; at = k.next(at) {
		if i := k.first + int(k.table[at]) - 1; d.is(b, i) {
			return i
		}
	}
	return -1
}

// plain is find for a plain delete, which most invalidations are.
func (k *rowKeys) plain(b *event.Batch, key []byte) int {
	if k.hashed > 0 {
		return k.find(b, &identity{action: event.ActionDelete, key: key})
	}
	for i := k.first; i < len(b.Invalidations); i++ {
		if inv := &b.Invalidations[i]; inv.Effect == 0 && inv.Action == event.ActionDelete && bytes.Equal(b.Pending(i), key) {
			return i
		}
	}
	return -1
}

// added takes note of the key that was added last.
func (k *rowKeys) added(b *event.Batch) {
	if n := b.Len() - k.first; n > few {
		k.hash(b, n)
	}
}

func (k *rowKeys) hash(b *event.Batch, n int) {
	if k.hashed == 0 || 2*n > len(k.table) {
		k.rebuild(b, n)
		return
	}
	k.put(b, n-1)
}

// rebuild puts all n keys of the row into a table that is at most a quarter full.
func (k *rowKeys) rebuild(b *event.Batch, n int) {
	size := max(4*few, len(k.table))
	for size < 4*n {
		size *= 2
	}
	if size > len(k.table) {
		k.table = make([]uint32, size)
		k.seed = maphash.MakeSeed()
	} else {
		clear(k.table)
	}
	k.hashed = 0
	for i := range n {
		k.put(b, i)
	}
}

func (k *rowKeys) put(b *event.Batch, i int) {
	at := k.place(b.Pending(k.first + i))
	for k.table[at] != 0 {
		at = k.next(at)
	}
	k.table[at] = uint32(i + 1)
	k.hashed++
}

func (k *rowKeys) place(key []byte) uint32 {
	return uint32(maphash.Bytes(k.seed, key)) & uint32(len(k.table)-1)
}

func (k *rowKeys) next(at uint32) uint32 { return (at + 1) & uint32(len(k.table)-1) }
