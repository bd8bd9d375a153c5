package doubts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// Options configure a [Keeper].
type Options struct {
	// Topic is the topic of doubts. Required.
	Topic string
	// Concerns says which doubts concern this process; the others are not listed. Nil: all do.
	Concerns func(*doubt.Doubt) bool
	// Ensure sees to it that the topic exists, when it was found not to. Nil: nothing does.
	Ensure func(ctx context.Context) error
	// Alarms hears what an operator must hear. Nil: it is logged.
	Alarms *alarm.Board
}

// The kinds of keys.
const (
	doubtPrefix = "doubt/"
	factPrefix  = "fact/"
)

// Keeper is one process's view of the topic. It is safe for concurrent use.
type Keeper struct {
	client *broker.Client
	o      Options
	// loaded is closed once all that is kept has been read.
	loaded chan struct{}

	// next is the offset to read next; below 0: that of the beginning. gone: the topic that was read before is no more.
	// Both are Follow's.
	next int64
	gone bool

	mu   sync.Mutex
	view *view
	// reached is up to where Follow has read, and moved is closed when that changes.
	reached int64
	moved   chan struct{}
	heard   time.Time // when that was last; zero: it was not read so far
	// building is what takes the place of view while the topic is read from its beginning; nil when it is not.
	building *view
}

var (
	_ doubt.Follower    = (*Keeper)(nil)
	_ doubt.SharedFacts = (*Keeper)(nil)
)

// New returns a keeper. It reads nothing before [Keeper.Follow] runs.
func New(c *broker.Client, o Options) (*Keeper, error) {
	if o.Topic == "" {
		return nil, errors.New("doubts: Options.Topic is required")
	}
	return &Keeper{
		client: c, o: o, loaded: make(chan struct{}), moved: make(chan struct{}), view: newView(), next: -1,
	}, nil
}

// Doubts implements [doubt.Keeper]: those that concern this process. It waits until they have been read.
func (k *Keeper) Doubts(ctx context.Context) ([]doubt.Doubt, error) {
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []doubt.Doubt
	for key, r := range k.view.kept {
		id, is := bytes.CutPrefix([]byte(key), []byte(doubtPrefix))
		if !is || r.value == nil {
			continue
		}
		if r.doubt == nil { // all of them are asked for whenever one has come
			d := k.parse(string(id), r)
			r.doubt = &d
			k.view.kept[key] = r
		}
		if d := r.doubt.Clone(); k.o.Concerns == nil || k.o.Concerns(&d) {
			out = append(out, d)
		}
	}
	if k.view.left {
		out = append(out, doubt.Doubt{
			ID: "too-many", Cause: alarm.RecordUnreadable, Since: time.Now(), Last: time.Now(), Count: 1,
			Message: fmt.Sprintf("topic %s holds more than %d MiB of doubts, so that not all are known: dismiss those that "+
				"are listed, and restart", k.o.Topic, maxBytes>>20),
		})
	}
	return out, nil
}

// parse reads a doubt. One that cannot be read is one all the same, since its record was written.
func (k *Keeper) parse(id string, r kept) doubt.Doubt {
	var d doubt.Doubt
	err := json.Unmarshal(r.value, &d)
	if err == nil && d.ID == id {
		return d
	}
	if err == nil {
		err = fmt.Errorf("it names itself %q", d.ID)
	}
	return doubt.Doubt{
		ID: id, Cause: alarm.RecordUnreadable, Since: r.at.UTC(), Last: r.at.UTC(), Count: 1,
		Message: fmt.Sprintf("the doubt at offset %d of topic %s cannot be read, so that any key may be stale: %v", r.offset,
			k.o.Topic, err),
	}
}

// ready waits until what is kept is known.
func (k *Keeper) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-k.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("topic %s could not be read so far: %w", k.o.Topic, ctx.Err())
	}
}

// PutDoubt implements [doubt.Keeper].
func (k *Keeper) PutDoubt(ctx context.Context, d doubt.Doubt) error {
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("doubt %s: %w", d.ID, err)
	}
	return k.write(ctx, doubtPrefix+d.ID, value)
}

// DropDoubt implements [doubt.Keeper].
func (k *Keeper) DropDoubt(ctx context.Context, id string) error {
	return k.write(ctx, doubtPrefix+id, nil)
}

// Fact implements [doubt.Facts].
func (k *Keeper) Fact(ctx context.Context, name string) ([]byte, error) {
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Clone(k.view.kept[factPrefix+name].value), nil
}

// SetFact implements [doubt.Facts].
func (k *Keeper) SetFact(ctx context.Context, name string, value []byte) error {
	if len(value) > doubt.MaxFact {
		return fmt.Errorf("fact %s: it has %d bytes, more than %d", name, len(value), doubt.MaxFact)
	}
	return k.write(ctx, factPrefix+name, value)
}

// FactsUnder implements [doubt.SharedFacts].
func (k *Keeper) FactsUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	facts := map[string][]byte{}
	for key, r := range k.view.kept {
		if name, is := strings.CutPrefix(key, factPrefix); is && strings.HasPrefix(name, prefix) && r.value != nil {
			facts[name] = bytes.Clone(r.value)
		}
	}
	return facts, nil
}

// DropFact implements [doubt.Facts].
func (k *Keeper) DropFact(ctx context.Context, name string) error {
	return k.write(ctx, factPrefix+name, nil)
}

// write appends a record, and knows it from then on.
func (k *Keeper) write(ctx context.Context, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	offset, err := k.client.Produce(ctx, k.o.Topic, 0, broker.Record{Key: []byte(key), Value: value})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.view.apply(offset, key, value, time.Now())
	if k.building != nil { // its reader may have passed this offset already
		k.building.apply(offset, key, value, time.Now())
	}
	return nil
}
