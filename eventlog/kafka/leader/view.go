package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// View is what the checkpoint topic of a source held when it was read.
type View struct {
	// Position is that of the last save; the zero position if there is none. Even then its epoch is the highest that
	// the source is known to have had.
	Position event.Position
	// Term is the highest that was ever taken or tried; 0 if none was.
	Term uint64
	// Mappings is the hash of the mappings that the work up to the position was routed by.
	Mappings string
	// Saved is when the position was saved, by the clock of the machine that did.
	Saved time.Time
	// Heads are the highest versions that are known to be in each partition of the topic of invalidations.
	Heads map[int]event.Version
	// Lost is a [*LostError] if there was a position and it is not known any more.
	Lost error
}

// OpenCheckpoint reads the checkpoint of a source. It changes nothing, and may be used while readers run.
func OpenCheckpoint(ctx context.Context, c *broker.Client, names broker.Names, source string) (*View, error) {
	s, err := topic{client: c, names: names, source: source}.read(ctx)
	if err != nil {
		return nil, err
	}
	v := &View{Term: s.term}
	p, err := s.newest()
	var lost *LostError
	if err == nil {
		v.Mappings, v.Saved, v.Heads = p.Mappings, p.Saved, p.heads()
		var loaded checkpoint.Loaded
		loaded, err = s.load(ctx, &p)
		v.Position = loaded.Position
	}
	if errors.As(err, &lost) {
		v.Lost = lost
		v.Position = event.Position{Epoch: s.epoch}
		return v, nil
	}
	return v, err
}

// setPatience is how long [SetPosition] tries while the brokers are away.
const setPatience = 30 * time.Second

// SetPosition puts a position by hand in the place of whatever is known, under a new term. It is refused with
// [ErrRunning] while the source has readers: their number includes one that was killed, until its session ends. The
// position gets an epoch above all that the source has had, since whatever is read again gets versions of its own.
// While the brokers are away it tries for half a minute.
func SetPosition(ctx context.Context, c *broker.Client, names broker.Names, source string, p event.Position) error {
	ctx, cancel := context.WithTimeout(ctx, setPatience)
	defer cancel()
	var (
		members int
		claim   *claimed
	)
	err := insist(ctx, func(error) {}, func() (err error) {
		members, err = c.GroupMembers(ctx, names.ReaderGroup(source))
		return err
	})
	if err != nil {
		return err
	}
	if members > 0 {
		return fmt.Errorf("%w: group %s has %d: stop them first (one that was killed leaves when its session ends)",
			ErrRunning, names.ReaderGroup(source), members)
	}
	err = insist(ctx, func(error) {}, func() (err error) {
		claim, err = topic{client: c, names: names, source: source}.seize(ctx)
		return err
	})
	if err != nil {
		return err
	}
	o := Options{Names: names, Source: source, Log: slog.New(slog.DiscardHandler)}
	if o, err = o.withDefaults(); err != nil {
		return err
	}
	cp, err := open(ctx, claim, &o, newMetrics())
	if err != nil {
		return err
	}
	if claim.Epoch > 0 { // else it is the first position, and the reader finds an epoch
		p.Epoch = max(p.Epoch, claim.Epoch+1)
	}
	return cp.Set(p)
}

// seize takes a term even if the position is lost.
func (t topic) seize(ctx context.Context) (*claimed, error) {
	for {
		s, err := t.read(ctx)
		if err != nil {
			return nil, err
		}
		p, err := s.newest()
		if err == nil {
			_, err = s.load(ctx, &p)
		}
		var lost *LostError
		if errors.As(err, &lost) {
			p, err = position{}, nil
			p.Epoch = s.epoch
		}
		if err != nil {
			return nil, err
		}
		if c, err := s.claim(ctx, p); c != nil || err != nil {
			return c, err
		}
	}
}
