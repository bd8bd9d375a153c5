package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/retry"
)

// groupRedo does changes once more that are in Kafka: the member of the group that answers doubts reads all partitions
// of the topic again, one after the other and apart from the group, from a place on to where they end when it begins.
// Their keys go through its own engine as one more partition. So no other member has to know of it.
type groupRedo struct {
	log    groupLog
	ends   func(ctx context.Context) (map[int]int64, error)
	facts  doubt.Facts
	doubts *doubt.Book
	given  *trail
	group  string
	serve  func(ctx context.Context, p eventlog.Partition) error
	// take waits until so many keys more may be forgotten.
	take    func(ctx context.Context, keys int) error
	visible func(source string) (v event.Version, ok bool)
}

// notHeld is errNotInLog in other words.
type notHeld string

// Error returns the words.
func (e notHeld) Error() string { return string(e) }

// Is makes it errNotInLog.
func (notHeld) Is(target error) bool { return target == errNotInLog }

// errNotInTopic says that the topic does not hold the changes any more.
const errNotInTopic = notHeld("the topic does not hold these changes any more")

// ready implements redoer.
func (*groupRedo) ready() bool { return true }

// run implements redoer.
func (r *groupRedo) run(ctx context.Context, d *doubt.Doubt) (keys int64, err error) {
	p, err := r.build(ctx, d)
	if err != nil {
		return 0, inTopic(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var g errgroup.Group
	g.Go(func() error {
		p.keepReached(watching)
		return nil
	})
	g.Go(func() error {
		report(watching, r.doubts, d, p, stop)
		return nil
	})
	err = r.serve(ctx, p)
	stopWatching()
	_ = g.Wait() // what could not be kept is done once more
	switch {
	case context.Cause(ctx) == errDismissed:
		return p.taken.Load(), nil
	case p.gone != nil:
		err = p.gone
	case err == nil && !p.finished():
		err = errStopped
	}
	return p.taken.Load(), inTopic(err)
}

// inTopic returns an error of a redo, with what is gone as errNotInLog.
func inTopic(err error) error {
	if errors.Is(err, consumer.ErrGone) {
		return notHeld(err.Error())
	}
	return err
}

// build makes a redo.
func (r *groupRedo) build(ctx context.Context, d *doubt.Doubt) (*rereading, error) {
	from, err := r.begin(ctx, d)
	if err != nil {
		return nil, err
	}
	// What is finished by now was visible to everybody. What comes in between is finished later than that.
	reached, err := r.log.Reached(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := r.ends(ctx)
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	p := &rereading{redo: r, doubt: d, seen: reached, place: kafka.Place{Partitions: maps.Clone(from.Partitions)}}
	for _, n := range slices.Sorted(maps.Keys(ends)) {
		p.spans = append(p.spans, span{n, r.log.Span(n, from.Partitions[n], ends[n])})
		p.left.Add(max(ends[n]-from.Partitions[n].Offset, 0))
	}
	p.all = p.left.Load()
	for n := range from.Partitions {
		if _, there := ends[n]; !there {
			return nil, fmt.Errorf("%w: it has no partition %d any more", errNotInTopic, n)
		}
	}
	return p, nil
}

// begin returns where to begin: at the place of the doubt, or at the one that a redo for the same doubt has come to.
// Doubts that were answered after that place are in doubt again when it returns.
func (r *groupRedo) begin(ctx context.Context, d *doubt.Doubt) (from kafka.Place, err error) {
	if place := placeKept(ctx, r.facts, r.fact(), d); place != nil {
		return kafka.ParsePlace(place)
	}
	var answered []doubt.Doubt
	if at, failed := time.Parse(time.RFC3339, d.From); failed == nil {
		if from, err = r.log.Since(ctx, at); err == nil {
			answered, err = r.given.since(ctx, at)
		}
		if d.Cause == alarm.ByHand { // Redis has what operators asked for, this redo too if it was asked for before
			answered = slices.DeleteFunc(answered, func(d doubt.Doubt) bool { return d.Group != "" })
		}
	} else {
		var p groupPlace
		if from, err = kafka.ParsePlace([]byte(d.From)); err != nil || json.Unmarshal([]byte(d.From), &p) != nil {
			return from, fmt.Errorf("%w: the stamp in redis is not of this version of freshet: %w", errNotInTopic, err)
		}
		answered, err = r.given.after(ctx, p.Answered)
	}
	if err == nil {
		err = r.given.again(ctx, r.doubts, answered)
	}
	return from, err
}

// fact is the name under which it is kept how far a redo has come.
func (r *groupRedo) fact() string { return "redo/" + r.group }

// span is what is read again of a partition.
type span struct {
	partition int
	*consumer.Span
}

// rereading is the partition that a redo is for the engine. Fetch is called by one goroutine, Commit by another.
type rereading struct {
	redo  *groupRedo
	doubt *doubt.Doubt
	// seen is what the group had finished when it began.
	seen kafka.Place

	// What belongs to Fetch: the partitions, which of them is read, and that some of it is gone.
	spans []span
	at    int
	gone  error

	// taken counts keys, and left the offsets that are not fetched yet.
	taken, left atomic.Int64
	// all is what left was at the beginning.
	all       int64
	partition atomic.Int64
	// trouble is why nothing comes; nil: it comes.
	trouble atomic.Pointer[error]
	// unmarked is a source of which no mark says yet what everybody can see; nil: there is none.
	unmarked atomic.Pointer[string]

	mu           sync.Mutex
	issued, done int
	ended        bool
	// whole are the partitions that were fetched to their end, and place is how far all is finished.
	whole []consumer.Reached
	place kafka.Place
}

// rereadToken names a batch of a redo: its ordinal, and what is finished once it is.
type rereadToken struct {
	eventlog.Issued
	n, at   int
	reached consumer.Reached
}

// ID implements [eventlog.Partition].
func (*rereading) ID() int { return redoPartition }

// Fetch implements [eventlog.Partition].
func (p *rereading) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	for p.at < len(p.spans) {
		s := &p.spans[p.at]
		p.partition.Store(int64(s.partition))
		left := s.Left()
		b, err := p.next(ctx, s)
		p.left.Add(s.Left() - left)
		if err != nil {
			return nil, nil, err
		}
		if b == nil {
			p.mu.Lock()
			p.whole = append(p.whole, s.Reached())
			p.mu.Unlock()
			p.at++
			continue
		}
		t := rereadToken{at: p.at, reached: s.Reached()}
		p.known(b, s.partition, &t.reached)
		if err := p.redo.take(ctx, b.Len()); err != nil {
			return nil, nil, err
		}
		p.taken.Add(int64(b.Len()))
		p.mu.Lock()
		p.issued++
		t.n = p.issued
		p.mu.Unlock()
		return b, t, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return nil, nil, io.EOF
}

// next returns the next batch of a partition; nil: there is none. It waits while the brokers are away.
func (p *rereading) next(ctx context.Context, s *span) (b *event.Batch, err error) {
	waiting := func(err error) { p.trouble.Store(&err) }
	err = broker.Insist(ctx, waiting, func() (err error) {
		b, err = s.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, consumer.ErrGone):
			p.gone = err
			return nil
		}
		return err
	})
	if err == nil {
		p.trouble.Store(nil)
	}
	return b, errors.Join(err, p.gone)
}

// known says of a batch that everybody can see it, if no mark does: that of a source which was removed never comes.
// What the group has finished was visible.
func (p *rereading) known(b *event.Batch, partition int, reached *consumer.Reached) {
	if _, marked := p.redo.visible(b.Source); marked || b.Age >= 0 {
		p.unmarked.Store(nil)
		return
	}
	if reached.Offset <= p.seen.Partitions[partition].Offset {
		b.Age = 0
		return
	}
	source := b.Source
	p.unmarked.Store(&source)
}

// Commit implements [eventlog.Partition].
func (p *rereading) Commit(t eventlog.Token) {
	token := t.(rereadToken)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = token.n
	for i := range token.at {
		p.place.Partitions[p.spans[i].partition] = p.whole[i]
	}
	p.place.Partitions[p.spans[token.at].partition] = token.reached
}

// finished reports whether all was fetched and is finished. It is asked once the engine has returned.
func (p *rereading) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended && p.done == p.issued
}

// keepReached keeps how far the redo has come, until ctx ends, and once more then.
func (p *rereading) keepReached(ctx context.Context) {
	kept := -1
	for last := false; !last; {
		last = retry.Sleep(ctx, redoSavesEach) != nil
		p.mu.Lock()
		done := p.done
		place, err := json.Marshal(p.place)
		p.mu.Unlock()
		if err != nil || done == kept {
			continue
		}
		saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), redoSavesEach)
		if keepPlace(saving, p.redo.facts, p.redo.fact(), p.doubt, json.RawMessage(place)) == nil {
			kept = done
		}
		cancel()
	}
}

// reached returns how many offsets were fetched, of all.
func (p *rereading) reached() (done, of, keys int64) {
	return p.all - p.left.Load(), p.all, p.taken.Load()
}

// sentence says how far the redo is.
func (p *rereading) sentence() string {
	s := beingRedone + fmt.Sprintf("reading partition %d of the topic, %d records left, %d keys forgotten", p.partition.Load(), p.left.Load(), p.taken.Load())
	if err := p.trouble.Load(); err != nil {
		s += fmt.Sprintf("; it waits: %v", *err)
	}
	if source := p.unmarked.Load(); source != nil {
		s += fmt.Sprintf("; it waits until the reader of source %s says what everybody can see", *source)
	}
	return s
}
