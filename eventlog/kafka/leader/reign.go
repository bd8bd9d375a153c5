package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/stash"
)

// maxAttempt is how long one attempt to write may take, the pause that a quota asks for included.
const maxAttempt = 15 * time.Second

// maxGone bounds how many prepared transactions that are about to be removed a position names, in some 40 KB. A save
// passes those of about a fifth of a second.
const maxGone = 2000

// maxLitter bounds the keys that wait for their tombstone. Those beyond it are left to the next leader.
const maxLitter = 100_000

// errRecreated: the topic is not the one that the leadership began on.
var errRecreated = errors.New("the checkpoint topic was cut short or created again")

// reign is one leadership as its checkpoint topic sees it: what it writes, and what it notices there.
//
// It knows the offset that its next record will have. If a record gets another, somebody else has written in between,
// and it looks what: a higher term ends the reign; a lower one is what an old leader has left, and is removed.
type reign struct {
	topic
	owner
	// inUse reports whether a chunk that another leader wrote is still needed.
	inUse func(key string) bool

	mu     sync.Mutex // held while one attempt to write is made
	heads  func() map[int]event.Version
	next   int64         // everything below is known
	over   error         // why the reign is over; nil: it is not
	ended  chan struct{} // closed when it is
	last   position      // the last that is durable
	seq    uint64        // of the last attempt to save
	states uint64        // attempts to write a State
	litter []string      // what must be removed after the next save
}

func newReign(c *claimed, inUse func(key string) bool) *reign {
	return &reign{
		topic: c.topic, owner: c.owner(), inUse: inUse, next: c.next, last: c.position, ended: make(chan struct{}),
		litter: c.litter(c.owner(), &c.position),
	}
}

// begin returns the context of one attempt and locks the reign. The attempt is made even if the leader is stopping:
// the last save is its last act.
func (r *reign) begin() (ctx context.Context, end func()) {
	r.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), maxAttempt)
	return ctx, func() { r.mu.Unlock(); cancel() }
}

// append writes records in one batch and returns the offset of the first, once it is sure that no record of a higher
// term is before them. After any error they may have been written or not.
func (r *reign) append(ctx context.Context, records ...broker.Record) (int64, error) {
	if r.over != nil {
		return 0, r.over
	}
	offset, err := r.client.Produce(ctx, r.name(), 0, records...)
	if err != nil {
		return 0, err
	}
	if err := r.look(ctx, offset); err != nil {
		return 0, err
	}
	if offset < r.next {
		r.end(errRecreated)
		return 0, r.over
	}
	r.next = offset + int64(len(records))
	return offset, nil
}

// watch looks whether anybody else has written.
func (r *reign) watch(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		return r.over
	}
	end, err := r.client.End(ctx, r.name(), 0)
	if err != nil {
		return err
	}
	// A broker that has just become the leader does not tell an end before it knows how far all replicas are (KIP-207).
	if end < r.next {
		r.end(errRecreated)
	}
	return r.look(ctx, end)
}

// look reads what others have written below end.
func (r *reign) look(ctx context.Context, end int64) error {
	for r.next < end {
		f, err := r.client.Fetch(ctx, r.name(), 0, r.next, 1<<20, time.Second)
		if err != nil {
			return err
		}
		for _, rec := range f.Records {
			if rec.Offset < end {
				r.examine(rec)
			}
		}
		if f.Next == r.next {
			return &broker.Error{
				Class: broker.Transient, What: "read " + r.name(),
				Err: fmt.Errorf("nothing at offset %d, which is before the end %d", r.next, end),
			}
		}
		r.next = min(f.Next, end)
	}
	return r.over
}

// examine takes note of a record that may be another leader's.
func (r *reign) examine(rec broker.Record) {
	key := string(rec.Key)
	kind, o, ok := parseKey(key)
	switch {
	case !ok, o == r.owner:
		return // our own, written twice
	case o.term > r.term:
		r.end(ErrDeposed)
	case rec.Value == nil, kind == kindState && r.last.State.holds(key), kind == kindXA && r.inUse(key):
	default:
		r.discard(key)
	}
}

// end ends the reign.
func (r *reign) end(why error) {
	if r.over == nil {
		r.over = why
		close(r.ended)
	}
}

func (r *reign) discard(keys ...string) {
	r.litter = append(r.litter, keys[:min(len(keys), maxLitter-len(r.litter))]...)
}

// save saves a position.
//
// The order is what makes it safe. A new State is written first, so that a position never refers to one that is not
// there. What the position makes superfluous is removed only once it is durable and no higher term is before it, and
// the same holds for what the caller removes after it. A successor reads the topic up to its claim, which is therefore
// after this position, and goes on from this one or a later one: it needs nothing of what is removed, even if this
// leader is stopped now and removes it much later.
//
// passed are the prepared transactions that the caller removes next. The position names them: a successor that finds
// them all the same would take them for open ones, with the keys of an earlier use of their XIDs.
func (r *reign) save(w checkpoint.Write, passed []*stash.Prepared) error {
	ctx, end := r.begin()
	defer end()
	p := r.last
	p.Gone = slices.Clone(p.Gone)
	for _, t := range passed {
		if len(p.Gone) < maxGone && !slices.Contains(p.Gone, t.Name) {
			p.Gone = append(p.Gone, t.Name)
		}
	}
	p.PositionJSON = checkpoint.PlaceOf(&w.Position)
	if w.State {
		ref, err := r.putState(ctx, w.Position.State)
		if err != nil {
			return err
		}
		p.State = ref
	}
	if err := r.put(ctx, p); err != nil {
		return err
	}
	return r.sweep(ctx)
}

// removed notes that the prepared transactions that the last position names are gone.
func (r *reign) removed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Gone = nil
}

// rename saves the mappings' hash, with the position as it is.
func (r *reign) rename(mappings string) error {
	ctx, end := r.begin()
	defer end()
	p := r.last
	p.Mappings = mappings
	if err := r.put(ctx, p); err != nil {
		return err
	}
	return r.sweep(ctx)
}

// put writes a position.
//
// A request that was given up may still be on its way, and arrive after later ones: so each attempt has a number of
// its own, of which the highest counts, and the keys are few but not one, so that a straggler does not replace the last
// position when the topic is compacted.
func (r *reign) put(ctx context.Context, p position) error {
	r.seq++
	p.Term, p.Writer, p.Claim, p.At, p.After, p.Seq = r.term, r.writer, false, 0, r.next, r.seq
	p.Heads, p.Saved = r.sample(), time.Now().UTC()
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := r.append(ctx, broker.Record{Key: []byte(p.key()), Value: value}); err != nil {
		return err
	}
	if old := r.last.State; old != nil && (p.State == nil || p.State.Name != old.Name) {
		r.discardState(old)
	}
	r.last = p
	return nil
}

// sample returns the chain heads: the highest that are known of each partition.
func (r *reign) sample() map[int]event.Version {
	out := map[int]event.Version{}
	for p, v := range r.last.Heads {
		out[p] = v
	}
	if r.heads == nil {
		return out
	}
	for p, v := range r.heads() {
		if v.Compare(out[p]) > 0 {
			out[p] = v
		}
	}
	return out
}

// stateBytes is how much of a State goes into one record: JSON makes up to six bytes of one.
const stateBytes = 64 << 10

// leastStateBytes is how little is tried where the topic takes small records only.
const leastStateBytes = 1 << 10

// putState writes a State under a name of its own.
func (r *reign) putState(ctx context.Context, state []byte) (*stateRef, error) {
	if state == nil {
		return nil, nil
	}
	r.states++
	ref := &stateRef{Name: r.key(kindState, r.states), Bytes: len(state)}
	size := stateBytes
	for rest := state; len(rest) > 0; {
		n := cut(rest, size)
		value, err := json.Marshal(stateChunk{Format: format, Text: checkpoint.Text(rest[:n])})
		if err != nil {
			return nil, err
		}
		_, err = r.append(ctx, broker.Record{Key: []byte(chunkKey(ref.Name, ref.Chunks+1)), Value: value})
		if errors.Is(err, kafka.MessageSizeTooLarge) && size > leastStateBytes {
			size /= 2 // somebody has lowered the topic's max.message.bytes since the start
			continue
		}
		ref.Chunks++
		if err != nil {
			r.discardState(ref)
			return nil, err
		}
		rest = rest[n:]
	}
	return ref, nil
}

func (r *reign) discardState(ref *stateRef) {
	for n := range ref.Chunks {
		r.discard(chunkKey(ref.Name, n+1))
	}
}

// cut returns how much of b to take so that it is at most n bytes and does not end within a UTF-8 character.
func cut(b []byte, n int) int {
	if len(b) <= n {
		return len(b)
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}

// sweep removes the litter.
func (r *reign) sweep(ctx context.Context) error {
	for len(r.litter) > 0 {
		n := min(len(r.litter), 500)
		if err := r.remove(ctx, r.litter[:n]); err != nil {
			return err
		}
		r.litter = r.litter[n:]
	}
	return nil
}

// remove writes tombstones, in one batch.
func (r *reign) remove(ctx context.Context, keys []string) error {
	records := make([]broker.Record, len(keys))
	for i, key := range keys {
		records[i].Key = []byte(key)
	}
	_, err := r.append(ctx, records...)
	return err
}
