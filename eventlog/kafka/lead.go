package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// Lead has f run by the one member of the group that has the first partition of the topic, for as long as it has it:
// what must be done once for a group. It is called before [Log.Consume], which waits for f when the partition goes, and
// ends if f fails.
func (l *Log) Lead(f func(ctx context.Context) error) { l.lead = f }

// leading runs serve, which works on the first partition, with what [Log.Lead] was given alongside.
//
// Once all of a partition is finished, serve returns, and the partition stays ours: its context ends with ctx, as that
// of each other partition, unless the lead fails.
func (l *Log) leading(ctx context.Context, serve func(context.Context) error) error {
	if l.lead == nil {
		return serve(ctx)
	}
	serving, giveUp := context.WithCancel(ctx)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error {
		err := l.lead(leading)
		if err != nil {
			giveUp()
		}
		return err
	})
	err := serve(serving)
	stop()
	return errors.Join(err, group.Wait())
}

// Unfinished returns those of the partitions that the group has not finished up to these ends, and why some of them do
// not go on. It asks the brokers for what the group has committed.
func (l *Log) Unfinished(ctx context.Context, ends map[int]int64) (left []int, stopped []error, err error) {
	committed, err := l.client.GroupOffsets(ctx, l.o.Group, l.o.Topic)
	if err != nil {
		return nil, nil, err
	}
	left, stopped = unfinished(l.o.Topic, l.o.Group, ends, committed)
	return left, stopped, nil
}

func unfinished(topic, group string, ends map[int]int64, committed map[int]broker.Committed,
) (left []int, stopped []error) {
	for p, end := range ends {
		c := committed[p]
		loss, what, is := consumer.StoppedBy(c.Metadata)
		if is { // also if its offset is beyond the end, as where the log was cut
			stopped = append(stopped, consumer.FoundBefore(loss, what, topic, p, group, c.Offset))
		}
		if is || c.Offset < end {
			left = append(left, p)
		}
	}
	slices.Sort(left)
	return left, stopped
}

// Place is how far a group has come in the topic.
type Place struct {
	// Partitions are those that the group has begun.
	Partitions map[int]consumer.Reached `json:"partitions"`
	// On says on which Redis the group has done its last work, for the partitions of all its topics of which that is
	// known, by topic/partition.
	On map[string]string `json:"-"`
}

// Elsewhere returns a partition that was worked on last on another Redis than on, and on which; "" if none was, or on
// is "".
func (p *Place) Elsewhere(on string) (partition, redis string) {
	for _, partition := range slices.Sorted(maps.Keys(p.On)) {
		if redis := p.On[partition]; on != "" && redis != on {
			return partition, redis
		}
	}
	return "", ""
}

// ParsePlace reads a place that was written as JSON.
func ParsePlace(text []byte) (p Place, err error) {
	if err = json.Unmarshal(text, &p); err == nil && p.Partitions == nil {
		err = errors.New("no partitions")
	}
	if err != nil {
		return p, fmt.Errorf("%.100q is no place in a topic: %w", text, err)
	}
	return p, nil
}

// Since returns the place from which on a topic holds what was written at a time or later. If some of that may be gone,
// the error is [consumer.ErrGone].
func Since(ctx context.Context, c *broker.Client, topic string, at time.Time) (Place, error) {
	p := Place{Partitions: map[int]consumer.Reached{}}
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return p, err
	}
	for i := range n {
		if p.Partitions[i], err = consumer.Since(ctx, c, topic, i, at); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Since is [Since] for the topic of the log.
func (l *Log) Since(ctx context.Context, at time.Time) (Place, error) {
	return Since(ctx, l.client, l.o.Topic, at)
}

// Marked returns the newest version that the topic of marks says everybody can see of a source; zero: it says nothing
// of it. What a member of the group has heard before is no newer.
func (l *Log) Marked(ctx context.Context, source string) (v event.Version, err error) {
	_, err = l.client.ReadAll(ctx, broker.Names{Topic: l.o.Topic}.Marks(), 0, func(r broker.Record) error {
		if string(r.Key) != source {
			return nil
		}
		if r.Value == nil {
			v = event.Version{} // the source is no more
			return nil
		}
		if m, err := record.ParseMark(r.Value); err == nil && m.Version.Compare(v) > 0 {
			v = m.Version
		}
		return nil
	})
	return v, err
}

// Span returns a part of a partition that is read once more, apart from the group: [consumer.NewSpan].
func (l *Log) Span(partition int, from consumer.Reached, end int64) *consumer.Span {
	return consumer.NewSpan(l.client, l.o.Topic, partition, from, end)
}

// Reached returns how far the group has come, as the brokers say: everything before it is finished, or parked.
func (l *Log) Reached(ctx context.Context) (Place, error) {
	p := Place{Partitions: map[int]consumer.Reached{}, On: map[string]string{}}
	topics, err := l.retryTopics(ctx)
	if err != nil {
		return p, err
	}
	all, err := l.client.OffsetsOfAll(ctx, l.o.Group, append(topics, l.o.Topic)...)
	for topic, committed := range all {
		for n, c := range committed {
			if c.On.Redis != "" {
				p.On[topicPartition{topic, n}.String()] = c.On.Redis
			}
		}
	}
	for n, c := range all[l.o.Topic] {
		p.Partitions[n] = consumer.Reached{Offset: c.Offset, Seen: c.Metadata}
	}
	return p, err
}

// retries are the retry topics of a group, as they were some time ago.
type retries struct {
	mu     sync.Mutex
	topics []string
	looked time.Time
	// again says that there may be others by now. A member with delays of its own makes their topics before it joins, and
	// parks nothing before the generation that it joins has begun.
	again atomic.Bool
}

// retriesEvery is how often it is looked at least which retry topics there are: that changes with retry.park_delays
// only.
const retriesEvery = time.Minute

// retryTopics returns the retry topics that there are, those of delays that are not configured any more as well. One of
// them that was deleted, as it may be, holds nothing.
func (l *Log) retryTopics(ctx context.Context) (there []string, err error) {
	l.retries.mu.Lock()
	defer l.retries.mu.Unlock()
	if l.retries.again.Swap(false) || time.Since(l.retries.looked) >= retriesEvery {
		former, err := l.former(ctx)
		if err != nil {
			l.retries.again.Store(true)
			return nil, err
		}
		l.retries.topics, l.retries.looked = append(former, l.letters.Topics()...), time.Now()
	}
	for _, topic := range l.retries.topics {
		_, err := l.client.Partitions(ctx, topic)
		switch {
		case broker.Classify(err) == broker.Missing:
		case err != nil:
			return nil, err
		default:
			there = append(there, topic)
		}
	}
	return there, nil
}

// Parked reports whether any key of the group is parked, in any process, as the brokers say.
func (l *Log) Parked(ctx context.Context) (bool, error) {
	return parked(func() (map[topicPartition]int64, error) { return l.retryEnds(ctx) },
		func(at topicPartition) (int64, error) {
			committed, err := l.client.GroupOffsets(ctx, l.o.Group, at.topic)
			return committed[at.partition].Offset, err
		})
}

// parked reports whether any key is parked, from where the retry topics end, and what the group has finished of them.
//
// A key that is tried again in vain goes from one retry topic to another: it is written there before it is finished
// here. So none is parked if all is finished in all of the topics, and nothing has come to any of them meanwhile.
func parked(ends func() (map[topicPartition]int64, error), finished func(topicPartition) (int64, error)) (bool, error) {
	before, err := ends()
	if err != nil {
		return true, err
	}
	for at, end := range before {
		if offset, err := finished(at); err != nil || offset < end {
			return true, err
		}
	}
	after, err := ends()
	return !maps.Equal(before, after), err
}

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int
}

// String returns topic/partition.
func (t topicPartition) String() string { return fmt.Sprintf("%s/%d", t.topic, t.partition) }

// retryEnds returns where the partitions of the retry topics end.
func (l *Log) retryEnds(ctx context.Context) (map[topicPartition]int64, error) {
	ends := map[topicPartition]int64{}
	topics, err := l.retryTopics(ctx)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		n, err := l.client.Partitions(ctx, topic)
		if err != nil {
			return nil, err
		}
		for i := range n {
			if ends[topicPartition{topic, i}], err = l.client.End(ctx, topic, i); err != nil {
				return nil, err
			}
		}
	}
	return ends, nil
}
