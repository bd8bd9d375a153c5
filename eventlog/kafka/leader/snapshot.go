package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// topic is the checkpoint topic of a source.
type topic struct {
	client *broker.Client
	names  broker.Names
	source string
	// held: this process has led the source with a position from this topic, so there must be one.
	held bool
	// least is the lowest term to take. Default: the time, see term.go.
	least func() uint64
}

func (t topic) name() string { return t.names.Checkpoint(t.source) }

// snapshot is what the topic held when it was read: the last record of each key, as compaction would leave it. It must
// not matter to anything here what compaction has removed already.
type snapshot struct {
	topic
	// next is the offset after what was read.
	next int64
	live map[string]kept
	// term is the highest term that any record or mark of the source names.
	term uint64
	// epoch is the highest epoch that a mark of the source names. known says that there must be a position: there is a
	// mark, and nobody has taken it out since, or a position that does not count.
	epoch uint32
	known bool
}

// kept is a record that counts.
type kept struct {
	offset int64
	value  []byte // of a position
	head   xaHead // of a chunk of a prepared transaction
	bytes  int
}

// read reads the whole checkpoint topic, and the marks of the source.
func (t topic) read(ctx context.Context) (*snapshot, error) {
	s := &snapshot{topic: t, live: map[string]kept{}}
	var err error
	if s.next, err = t.client.ReadAll(ctx, t.name(), 0, s.add); err != nil {
		return nil, t.explain(err)
	}
	_, err = t.client.ReadAll(ctx, t.names.Marks(), 0, s.addMark)
	if broker.Classify(err) == broker.Missing {
		return s, nil // nobody has made a mark
	}
	return s, t.explain(err)
}

// explain makes a [LostError] of a damaged record.
func (t topic) explain(err error) error {
	if errors.Is(err, errDamaged) {
		return &LostError{Source: t.source, Topic: t.name(), Reason: err}
	}
	return err
}

func (s *snapshot) add(r broker.Record) error {
	key := string(r.Key)
	kind, o, ok := parseKey(key)
	if !ok {
		return nil // of a newer version, which knows what to do with it
	}
	s.term = max(s.term, o.term)
	if r.Value == nil {
		delete(s.live, key)
		return nil
	}
	k := kept{offset: r.Offset, bytes: len(r.Value)}
	switch kind {
	case kindPosition:
		k.value = slices.Clone(r.Value)
	case kindXA:
		err := read(r.Value, &k.head)
		if err == nil {
			err = check(s.source, k.head.Format, k.head.Source)
		}
		if err != nil {
			return fmt.Errorf("%s at offset %d: %w", key, r.Offset, err)
		}
	}
	s.live[key] = k
	return nil
}

func (s *snapshot) addMark(r broker.Record) error {
	if string(r.Key) != s.source {
		return nil
	}
	if r.Value == nil { // the source was removed: should it come back, it begins again, in a term of its own
		s.known = false
		return nil
	}
	m, err := record.ParseMark(r.Value)
	if err != nil {
		return fmt.Errorf("topic %s at offset %d: %w", s.names.Marks(), r.Offset, err)
	}
	s.known = true
	s.term, s.epoch = max(s.term, m.Term), max(s.epoch, m.Version.Epoch)
	return nil
}

// newest returns the position to go on from: that of the highest term that was taken, and of this the last. A claim
// that came to nothing is none, nor is a position that its leader meant for another topic. The zero value means that
// there is none, which is a [LostError] if the source has made marks, since those come after its first position.
func (s *snapshot) newest() (position, error) {
	var best position
	for key, k := range s.live {
		if kind, _, _ := parseKey(key); kind != kindPosition {
			continue
		}
		var p position
		err := read(k.value, &p)
		if err == nil {
			err = check(s.source, p.Format, p.Source)
		}
		if err != nil {
			return best, s.explain(fmt.Errorf("%s at offset %d: %w", key, k.offset, err))
		}
		if p.Claim && p.At != k.offset {
			continue
		}
		if p.After > k.offset {
			s.known = true
			continue
		}
		if cmp.Or(cmp.Compare(p.Term, best.Term), cmp.Compare(p.Seq, best.Seq)) > 0 {
			best = p
		}
	}
	best.Epoch = max(best.Epoch, s.epoch)
	if best.File == "" && best.GTIDs == "" && (s.known || s.held) {
		return best, s.lost(errors.New("it holds no position, although the source has had one: it was deleted, created again " +
			"or emptied"))
	}
	return best, nil
}

func (s *snapshot) lost(reason error) error {
	return &LostError{Source: s.source, Topic: s.name(), Reason: reason}
}

// load returns what a checkpoint goes on from.
func (s *snapshot) load(ctx context.Context, p *position) (checkpoint.Loaded, error) {
	at, err := p.PositionJSON.Position()
	if err != nil {
		return checkpoint.Loaded{}, s.lost(fmt.Errorf("%w: %w", errDamaged, err))
	}
	at.State, err = s.state(ctx, p.State)
	return checkpoint.Loaded{Position: at, Mappings: p.Mappings}, err
}

// state puts a State together.
func (s *snapshot) state(ctx context.Context, ref *stateRef) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	state := make([]byte, 0, ref.Bytes)
	for n := 1; n <= ref.Chunks; n++ {
		key := chunkKey(ref.Name, n)
		k, ok := s.live[key]
		if !ok {
			return nil, s.lost(fmt.Errorf("%w: %s is missing", errDamaged, key))
		}
		var c stateChunk
		value, err := s.fetch(ctx, key, k.offset)
		if err == nil {
			err = read(value, &c)
		}
		if err == nil {
			err = check(s.source, c.Format, s.source)
		}
		if err != nil {
			return nil, s.explain(fmt.Errorf("%s: %w", key, err))
		}
		state = append(state, c.Text...)
	}
	if len(state) != ref.Bytes {
		return nil, s.lost(fmt.Errorf("%w: %s has %d bytes instead of %d", errDamaged, ref.Name, len(state), ref.Bytes))
	}
	return state, nil
}

// fetch returns the value of a record by its key and the offset that it was last seen at. If it is not there any more,
// because it was written a second time and compaction has removed the first, all of the topic is looked through.
func (t topic) fetch(ctx context.Context, key string, offset int64) ([]byte, error) {
	f, err := t.client.Fetch(ctx, t.name(), 0, offset, fetchBytes, time.Second)
	if err == nil && len(f.Records) > 0 && string(f.Records[0].Key) == key && f.Records[0].Offset == offset {
		return f.Records[0].Value, nil
	}
	if err != nil && broker.Classify(err) != broker.OutOfRange {
		return nil, err
	}
	var value []byte
	_, err = t.client.ReadAll(ctx, t.name(), 0, func(r broker.Record) error {
		if string(r.Key) == key {
			value = slices.Clone(r.Value)
		}
		return nil
	})
	if err == nil && value == nil {
		err = fmt.Errorf("%w: it is missing", errDamaged)
	}
	return value, err
}

// fetchBytes is how much a fetch of one record asks for. A larger batch comes whole.
const fetchBytes = 64 << 10

// litter returns the keys that nobody needs once the leadership o has saved a position after p: the positions of
// earlier terms, States that are not referred to, and prepared transactions that p says are gone.
func (s *snapshot) litter(o owner, p *position) []string {
	var keys []string
	for key := range s.live {
		kind, of, _ := parseKey(key)
		if kind == kindPosition && of != o || kind == kindState && !p.State.holds(key) || kind == kindXA && p.gone(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// gone reports whether a key is that of a chunk of a prepared transaction that is gone.
func (p *position) gone(key string) bool {
	name, _, ok := chunkOf(key)
	return ok && slices.Contains(p.Gone, name)
}

// holds reports whether a key is that of one of the State's chunks.
func (r *stateRef) holds(key string) bool { return r != nil && strings.HasPrefix(key, r.Name+"/") }
