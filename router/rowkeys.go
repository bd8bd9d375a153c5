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

// find returns the invalidation of this row that has the key, or -1.
func (k *rowKeys) find(b *event.Batch, key []byte) int {
	if k.hashed == 0 {
		for i := k.first; i < b.Len(); i++ {
			if bytes.Equal(b.Pending(i), key) {
				return i
			}
		}
		return -1
	}
	for at := k.place(key); k.table[at] != 0; at = k.next(at) {
		if i := k.first + int(k.table[at]) - 1; bytes.Equal(b.Pending(i), key) {
			return i
		}
	}
	return -1
}

// added takes note of the key that was added last.
func (k *rowKeys) added(b *event.Batch) {
	n := b.Len() - k.first
	if n <= few {
		return
	}
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
