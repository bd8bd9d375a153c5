package invalidator

import (
	"unsafe"

	"github.com/freshet/freshet/event"
)

// rest says that a unit waits for its second delete. When all that is open of its entry does, the batch is packed.
func (s *partitionLoop) rest(u *unit) {
	if u.class != deletes || u.limit != nil {
		return
	}
	u.resting = true
	u.entry.resting++
	s.packResting(u.entry)
}

// rouse says that a unit is about to be sent or parked, so that its keys are needed. Nobody else looks at them until
// then: what is out of an entry (in a job, in the parker's hands, with trouble) is open and does not rest.
func (s *partitionLoop) rouse(u *unit) {
	if !u.resting {
		return
	}
	u.resting = false
	e := u.entry
	e.resting--
	if e.batch != nil {
		return
	}
	e.batch = &event.Batch{Source: e.source, Term: e.term}
	s.packer.unpack(e.packed, e.batch)
	e.batch.Last = e.last
	e.hold(s, batchBytes(e.batch))
}

// packResting packs the entry's batch if all that is open of it waits.
func (s *partitionLoop) packResting(e *entry) {
	if e.resting < e.open || e.open == 0 || e.batch == nil || e.spread {
		return
	}
	more := -batchBytes(e.batch)
	if e.packed == nil {
		if e.packed = s.packer.pack(e.batch); e.packed == nil {
			e.spread = true
			return
		}
		more += int64(cap(e.packed))
	}
	e.batch = nil
	e.hold(s, more)
}

// hold has the entry hold so many bytes more.
func (e *entry) hold(s *partitionLoop, more int64) {
	e.bytes += more
	s.take(load{bytes: more})
	if more < 0 {
		s.engine.room.changed()
	}
}

// batchBytes is about what a batch holds, itself included.
func batchBytes(b *event.Batch) int64 { return int64(b.Bytes()) + int64(unsafe.Sizeof(event.Batch{})) }
