package invalidator

import (
	"encoding/binary"

	"github.com/freshet/freshet/event"
)

// While plain deletes wait for their second one, nothing of their batch is needed but the keys, and, for a key that
// will be parked then, its table and version. So the batch of an entry of which everything that is open waits is
// packed: the keys of one mapping differ in few bytes, and neighbours in the binlog in fewer. What is packed is a tenth
// to a third as large, and nothing that the garbage collector would look into. When the first of it falls due it
// becomes a batch again: nobody else knows of it.
//
// Format, all numbers as varints: how many origins, invalidations and bytes of keys there are; how many commons, and
// for each the number of its table in names; for each origin its common, and how much higher epoch, file and position
// of its event are than those of the origin before; then for each invalidation
//
//	by how much the number of its origin, and then by how much its row, is higher than that of the one before, from 0
//	shared<<3 | slot: how many of its first bytes are those of the key that last had this slot
//	how many more bytes it has, and these
//
// What is higher by may be negative: origins come in any order, see [event.Invalidation].
//
// A key's slot comes of its first bytes, so that each of several keys of a row is encoded by the one of the row before.

// slots is how many keys are remembered to tell the next by.
const slots = 8

// packer packs batches, and makes batches of what it has packed. It belongs to its partition's loop.
type packer struct {
	names  []string // of tables
	number map[string]uint64
	buf    []byte
}

// slotOf returns which slot a key has.
func slotOf(key string) int {
	h := uint32(len(key)) >> 5
	for i := range min(len(key), 4) {
		h = h*31 + uint32(key[i])
	}
	return int(h % slots)
}

// pack returns the batch packed; nil if it holds anything but plain deletes.
func (p *packer) pack(b *event.Batch) []byte {
	text := 0
	for i := range b.Invalidations {
		if inv := &b.Invalidations[i]; inv.Action != event.ActionDelete || inv.Effect != 0 || inv.Intent != 0 ||
			len(b.Fields(i)) > 0 {
			return nil
		}
		text += len(b.Key(i))
	}
	buf := binary.AppendUvarint(p.buf[:0], uint64(len(b.Origins)))
	buf = binary.AppendUvarint(buf, uint64(b.Len()))
	buf = binary.AppendUvarint(buf, uint64(text))
	buf = binary.AppendUvarint(buf, uint64(len(b.Commons)))
	for i := range b.Commons {
		buf = binary.AppendUvarint(buf, p.numberOf(b.Commons[i].Table))
	}
	buf = appendOrigins(buf, b.Origins)
	var last [slots]string
	origin, row := uint32(0), uint32(0)
	for i := range b.Invalidations {
		inv := &b.Invalidations[i]
		buf = binary.AppendVarint(buf, int64(inv.Origin)-int64(origin))
		buf = binary.AppendVarint(buf, int64(inv.Row)-int64(row))
		origin, row = inv.Origin, inv.Row
		key := b.Key(i)
		slot := slotOf(key)
		same := shared(last[slot], key)
		last[slot] = key
		buf = binary.AppendUvarint(buf, uint64(same<<3|slot))
		buf = binary.AppendUvarint(buf, uint64(len(key)-same))
		buf = append(buf, key[same:]...)
	}
	p.buf = buf
	if cap(buf) > 1<<20 {
		p.buf = nil // a huge batch is no reason to keep so much forever
	}
	return append(make([]byte, 0, len(buf)), buf...)
}

func appendOrigins(buf []byte, origins []event.Placed) []byte {
	var at event.Version
	for i := range origins {
		o := &origins[i]
		buf = binary.AppendUvarint(buf, uint64(o.Common))
		buf = binary.AppendVarint(buf, int64(o.Event.Epoch)-int64(at.Epoch))
		buf = binary.AppendVarint(buf, int64(o.Event.File)-int64(at.File))
		buf = binary.AppendVarint(buf, int64(o.Event.Pos-at.Pos))
		at = o.Event
	}
	return buf
}

func (p *packer) numberOf(table string) uint64 {
	n, ok := p.number[table]
	if !ok {
		if p.number == nil {
			p.number = map[string]uint64{}
		}
		n = uint64(len(p.names))
		p.names = append(p.names, table)
		p.number[table] = n
	}
	return n
}

// shared returns how many bytes two keys begin with in common.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// unpack fills an empty batch with what was packed.
func (p *packer) unpack(packed []byte, b *event.Batch) {
	r := varints(packed)
	origins, invalidations, text := int(r.next()), int(r.next()), int(r.next())
	b.Grow(origins, invalidations, text)
	for commons := r.next(); commons > 0; commons-- {
		b.Commons = append(b.Commons, event.Common{Table: p.names[r.next()]})
	}
	r.origins(b, origins)
	var last [slots][]byte
	origin, row := int64(0), int64(0)
	for range invalidations {
		origin += r.nextSigned()
		row += r.nextSigned()
		head := r.next()
		more := r.next()
		text := b.Text()
		from := len(text)
		text = append(text, last[head%slots][:head/slots]...)
		text = append(text, r[:more]...)
		r = r[more:]
		last[head%slots] = text[from:]
		b.Add(text, uint32(row), event.ActionDelete)
		b.Invalidations[len(b.Invalidations)-1].Origin = uint32(origin)
	}
}

// varints is read from its beginning. It was written here, so it is not damaged.
type varints []byte

// origins reads what appendOrigins wrote of n origins.
func (r *varints) origins(b *event.Batch, n int) {
	var o event.Placed
	for range n {
		o.Common = uint32(r.next())
		o.Event.Epoch += uint32(r.nextSigned())
		o.Event.File += uint32(r.nextSigned())
		o.Event.Pos += uint64(r.nextSigned())
		b.Origins = append(b.Origins, o)
	}
}

func (r *varints) next() uint64 {
	v, n := binary.Uvarint(*r)
	*r = (*r)[n:]
	return v
}

func (r *varints) nextSigned() int64 {
	v, n := binary.Varint(*r)
	*r = (*r)[n:]
	return v
}
