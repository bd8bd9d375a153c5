package stash

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
)

// The default bounds of a stash.
const (
	DefaultMaxKeys  = 5_000_000
	DefaultMaxBytes = 512 << 20
)

// ErrFull: the keys of prepared XA transactions exceed the bounds of the stash. What does not fit is stored by tables
// ([Unknown]), or the same transaction would end the reader at every start.
var ErrFull = errors.New("too many keys in prepared xa transactions: commit or roll back those that XA RECOVER lists " +
	"on the source")

// Prepared is what is known of one transaction without reading its keys.
type Prepared struct {
	// Name is the storage's name of it.
	Name string
	XID  string
	// First is the version of its first row.
	First event.Version
	// Since is when its first chunk was stored.
	Since time.Time
	Keys  int
	// Bytes is the size of the chunks' records.
	Bytes  int64
	Chunks []Chunk

	outcome *outcome // nil: none is known
}

// outcome is the commit or the rollback of a transaction.
type outcome struct {
	version event.Version
	end     event.End
}

// over reports whether the outcome was before v. Versions of two epochs do not say: the same outcome may have been read
// again.
func (p *Prepared) over(v event.Version) bool {
	return p.outcome != nil && p.outcome.version.Epoch == v.Epoch && p.outcome.version.Compare(v) < 0
}

// Chunk is one record of a transaction's keys.
type Chunk struct {
	N  int   // from 1
	At int64 // what Put returned
}

// Storage keeps chunks durably. A method that failed may be called again with the same arguments.
type Storage interface {
	// Name returns the name for a transaction that is read now. It may be the name that an earlier reading had.
	Name(xid string, first event.Version) string
	// Encode makes the record of the next chunk of a transaction.
	Encode(p *Prepared, keys []Key) ([]byte, error)
	// Put stores the record of the last chunk of a transaction and removes what is replaced by it, which may have the same
	// name. It returns once that is durable, with what helps to find the chunk again.
	Put(p *Prepared, record []byte, replaced []*Prepared) (at int64, err error)
	// Get reads a chunk.
	Get(p *Prepared, c Chunk) ([]Key, error)
}

// Options configure a [Stash].
type Options struct {
	Storage Storage
	// MaxKeys and MaxBytes bound what is stored of all transactions together.
	MaxKeys  int
	MaxBytes int64
	// MaxRecord is how large a record may be, in bytes; 0: as large as it is.
	MaxRecord int
	// Changed, if set, is given the number of all keys when it has changed. It must not block.
	Changed func(keys int)
	// Log takes warnings.
	Log *slog.Logger
}

// Stash is the index of what a storage keeps. It may be used by several goroutines at once.
type Stash struct {
	o Options

	mu    sync.Mutex
	byXID map[string][]*Prepared // by First, then in the order in which they were stored
	known []*Prepared            // those whose outcome is known
	keys  int                    // of all
	bytes int64
}

// New returns the stash of what is in a storage.
func New(o Options, all []*Prepared) *Stash {
	s := &Stash{o: o, byXID: map[string][]*Prepared{}}
	slices.SortFunc(all, func(a, b *Prepared) int { return cmp.Compare(a.Chunks[0].At, b.Chunks[0].At) })
	for _, p := range all {
		s.insert(p)
	}
	s.changed()
	return s
}

// insert takes a transaction into the index. The caller holds s.mu.
func (s *Stash) insert(p *Prepared) {
	of := s.byXID[p.XID]
	i, _ := slices.BinarySearchFunc(of, p, func(a, b *Prepared) int {
		if a.First.Compare(b.First) <= 0 {
			return -1
		}
		return 1
	})
	s.byXID[p.XID] = slices.Insert(of, i, p)
	s.keys += p.Keys
	s.bytes += p.Bytes
}

// changed reports the number of keys. The caller holds s.mu.
func (s *Stash) changed() {
	if s.o.Changed != nil {
		s.o.Changed(s.keys)
	}
}

// Writer stores the keys of one transaction while its rows are read. It belongs to one goroutine.
type Writer struct {
	stash *Stash
	p     *Prepared
}

// Begin begins to store the transaction xid whose first row has the version first. What an earlier reading of the same
// transaction has left is replaced with the first chunk.
func (s *Stash) Begin(xid string, first event.Version) *Writer {
	return &Writer{stash: s, p: &Prepared{Name: s.o.Storage.Name(xid, first), XID: xid, First: first}}
}

// Append stores the next keys durably; some thousands make a good chunk. After an error the same call may be repeated.
// [ErrFull] means that nothing was stored; [Unknown] always is.
func (w *Writer) Append(keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	s := w.stash
	if w.p.Since.IsZero() {
		w.p.Since = time.Now().UTC()
	}
	parts, err := s.encode(w.p, keys)
	if err != nil {
		return err
	}
	var replaced []*Prepared
	if len(w.p.Chunks) == 0 {
		replaced = s.earlier(w.p)
	}
	if !AllUnknown(keys) && !s.fits(replaced, parts) {
		return fmt.Errorf("xa transaction %s: %w", w.p.XID, ErrFull)
	}
	next, left := *w.p, replaced
	for _, part := range parts {
		next.add(part)
		at, err := s.o.Storage.Put(&next, part.record, left)
		if err != nil {
			return err
		}
		next.Chunks[len(next.Chunks)-1].At, left = at, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(append(replaced, w.p))
	*w.p = next
	s.insert(w.p)
	s.changed()
	return nil
}

// part is a chunk on its way to the storage.
type part struct {
	keys   int
	record []byte
}

func (p *Prepared) add(c part) {
	p.Keys += c.keys
	p.Bytes += int64(len(c.record))
	p.Chunks = append(p.Chunks, Chunk{N: len(p.Chunks) + 1})
}

// encode makes records of keys, none larger than it may be. What would be written under a key that is too large by
// itself is left out, for a transaction must not be held up by it: the key is forgotten then.
func (s *Stash) encode(p *Prepared, keys []Key) ([]part, error) {
	record, err := s.o.Storage.Encode(p, keys)
	if err != nil {
		return nil, err
	}
	if s.o.MaxRecord == 0 || len(record) <= s.o.MaxRecord {
		return []part{{len(keys), record}}, nil
	}
	if len(keys) == 1 {
		less := keys[0]
		if !less.Shorten() {
			return []part{{1, record}}, nil
		}
		s.o.Log.Warn("a value of a prepared xa transaction is too large to be kept, so its key will be forgotten instead "+
			"of written",
			"table", less.Table, "bytes", len(record), "limit", s.o.MaxRecord)
		return s.encode(p, []Key{less})
	}
	a, err := s.encode(p, keys[:len(keys)/2])
	if err != nil {
		return nil, err
	}
	b, err := s.encode(p, keys[len(keys)/2:])
	return append(a, b...), err
}

// fits reports whether there is room for more once some transactions are replaced.
func (s *Stash) fits(replaced []*Prepared, more []part) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, bytes := s.keys, s.bytes
	for _, p := range replaced {
		keys, bytes = keys-p.Keys, bytes-p.Bytes
	}
	for _, c := range more {
		keys, bytes = keys+c.keys, bytes+int64(len(c.record))
	}
	return keys <= s.o.MaxKeys && bytes <= s.o.MaxBytes
}

// earlier returns what earlier readings of a transaction have stored.
func (s *Stash) earlier(of *Prepared) (found []*Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byXID[of.XID] {
		if p.First == of.First {
			found = append(found, p)
		}
	}
	return found
}

// Recall hands the keys of the transaction xid whose outcome has the version v to each, chunk by chunk, in their order.
// each may block: nothing is held meanwhile. The keys stay, see [Stash.Resolve].
//
// An XID may be used again while its first use is still kept for the position's sake. The transaction meant is the last
// that began before v, unless its outcome is known to be before v as well: what an earlier one wrote is old by now.
func (s *Stash) Recall(xid string, v event.Version, each func(keys []Key) error) error {
	for _, p := range s.pending(xid, v) {
		for _, c := range p.Chunks {
			keys, err := s.o.Storage.Get(&p, c)
			if err != nil {
				return err
			}
			if err := each(keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// pending returns what is kept of the transaction whose outcome has the version v: more than one if two processes have
// read it.
func (s *Stash) pending(xid string, v event.Version) (found []Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last event.Version
	for _, p := range s.byXID[xid] {
		if p.First.Compare(v) >= 0 {
			break
		}
		if p.First != last {
			last, found = p.First, nil
		}
		if !p.over(v) {
			found = append(found, *p)
		}
	}
	return found
}

// Resolve says that the transaction xid was committed or rolled back by the transaction that ends at end, whose version
// is v. Its keys are removed by the save that passes end.
//
// The GTIDs of end are copied: they are valid during the call only, and what they become is another transaction's,
// which may be passed long before this one.
func (s *Stash) Resolve(xid string, v event.Version, end event.End) {
	end.GTIDs = slices.Clone(end.GTIDs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byXID[xid] {
		if p.First.Compare(v) >= 0 || p.over(v) {
			continue
		}
		if p.outcome == nil {
			s.known = append(s.known, p)
		}
		p.outcome = &outcome{v, end}
	}
}

// Passed returns the transactions whose outcome is at or before a position, or all after a gap: what became of them
// there is not known. The storage removes them together with the write that saves the position, or after it, never
// before; then it calls [Stash.Forget].
func (s *Stash) Passed(w *checkpoint.Write) (passed []*Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.Moved {
		for _, of := range s.byXID {
			passed = append(passed, of...)
		}
		return passed
	}
	for _, p := range s.known {
		if checkpoint.Passed(&w.Position, &p.outcome.end) {
			passed = append(passed, p)
		}
	}
	return passed
}

// Forget removes from the index those that the storage has removed.
func (s *Stash) Forget(gone []*Prepared) {
	if len(gone) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(gone)
	s.changed()
}

// forget removes transactions from the index, if they are there. The caller holds s.mu.
func (s *Stash) forget(gone []*Prepared) {
	drop := func(p *Prepared) bool { return slices.Contains(gone, p) }
	for _, p := range gone {
		of := s.byXID[p.XID]
		if i := slices.Index(of, p); i >= 0 {
			s.keys -= p.Keys
			s.bytes -= p.Bytes
			of = slices.Delete(of, i, i+1)
		}
		if s.byXID[p.XID] = of; len(of) == 0 {
			delete(s.byXID, p.XID)
		}
	}
	s.known = slices.DeleteFunc(s.known, drop)
}

// Has reports whether a transaction with this name is kept.
func (s *Stash) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.byXID {
		if slices.ContainsFunc(of, func(p *Prepared) bool { return p.Name == name }) {
			return true
		}
	}
	return false
}

// List returns what is kept, by the versions of the first rows: transactions that are prepared, or whose outcome the
// saved position has not passed.
func (s *Stash) List() (all []Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.byXID {
		for _, p := range of {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b Prepared) int { return a.First.Compare(b.First) })
	return all
}
