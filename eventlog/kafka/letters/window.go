package letters

import "github.com/freshet/freshet/retry"

// window is what is in memory of one partition of a retry topic: the entries that come next. It is guarded by the
// store's lock.
type window struct {
	topic     string
	partition int
	commit    func(offset int64)

	// items are in the order of their offsets: from the first that is not finished on.
	items []*item
	bytes int
	// next is the offset to read next; high is where the partition ends, as was last heard.
	next, high int64
	// room is signalled when items were finished.
	room chan struct{}
}

// item is one record of a window.
type item struct {
	window *window
	offset int64
	// entry carries the ID that the item was given out under.
	entry retry.Entry
	size  int
	// followers are entries that the same delete serves: they are finished with this one.
	followers []*item
	// led says that this is a follower; settled that it is finished.
	led, settled bool
}

// itemBytes is about what an item takes besides its texts.
const itemBytes = 300

// sizeOf is about what an entry takes.
func sizeOf(e *retry.Entry) int {
	size := itemBytes + len(e.Key) + len(e.Error) + len(e.Source) + len(e.Table)
	for i := range e.Notices {
		size += len(e.Notices[i].Fields)
	}
	return size
}

// full reports whether nothing more should be read for now.
func (w *window) full(o *Options) bool {
	return len(w.items) >= o.Window || w.bytes >= o.WindowBytes
}

// parked returns how many entries of the partition are not finished.
func (w *window) parked() int {
	n := int(max(w.high-w.next, 0))
	for _, it := range w.items {
		if !it.settled {
			n++
		}
	}
	return n
}

// add puts a record into the window under a new ID; nil: one that is finished already, since it cannot be read.
func (s *Store) add(w *window, offset int64, e *retry.Entry) {
	it := &item{window: w, offset: offset, settled: e == nil}
	if e != nil {
		it.entry = *e
		it.size = sizeOf(e)
		w.bytes += it.size
		s.name(it)
	}
	w.items = append(w.items, it)
}

// name gives an item a new ID: what it was given out under before settles nothing any more.
func (s *Store) name(it *item) {
	delete(s.ids, it.entry.ID)
	s.lastID++
	it.entry.ID = s.lastID
	s.ids[s.lastID] = it
}

// settle finishes an item and its followers.
func (s *Store) settle(it *item) {
	delete(s.ids, it.entry.ID)
	for _, f := range append(it.followers, it) {
		f.settled = true
		f.window.bytes -= f.size
		f.entry, f.followers, f.size = retry.Entry{}, nil, 0
	}
}

// advance commits what is finished without a hole.
func (w *window) advance() {
	n := 0
	for n < len(w.items) && w.items[n].settled {
		n++
	}
	if n > 0 {
		clear(w.items[:n]) // the array lives on; the items need not
		w.items = w.items[n:]
	}
	if len(w.items) > 0 {
		w.commit(w.items[0].offset)
	} else {
		w.commit(w.next)
	}
	if n > 0 {
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
}

// identity tells entries apart that need an attempt each: every attempt is a delete, whatever was to be done.
type identity struct{ source, table, key string }

func identify(e *retry.Entry) identity { return identity{e.Source, e.Table, e.Key} }

// gather makes one of the entries that lack the same delete and are all due: one attempt serves them all, and if it
// fails, one goes on. So a hot key that cannot be deleted grows to as many entries as it has changes in one topic
// only, and not through all of them and the dead letters.
//
// The one that gains a follower gets a new ID, for an attempt on it may be under way that began before the follower
// was parked, too early for it: settling the old ID then finishes nothing, and both are tried again.
func (s *Store) gather(due []*item) []*item {
	first := make(map[identity]*item, len(due))
	heads := due[:0]
	for _, it := range due {
		id := identify(&it.entry)
		head, found := first[id]
		if !found {
			first[id] = it
			heads = append(heads, it)
			continue
		}
		delete(s.ids, it.entry.ID)
		head.entry.Merge(&it.entry)
		head.followers = append(append(head.followers, it), it.followers...)
		it.followers, it.led = nil, true
		s.name(head)
	}
	return heads
}
