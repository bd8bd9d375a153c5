package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// How often it is looked whether all is finished: what this process has costs nothing to ask, what others have is a
// request to the brokers.
const (
	lookEvery = 10 * time.Millisecond
	askEvery  = 500 * time.Millisecond
)

// believed is for how long a partition of somebody else must look stopped, or a log too short: it may just be passed
// over, be given to us, or have a new leader that does not know yet how far all replicas are.
const believed = 10 * time.Second

// awaitEnd waits until all is finished after CloseAt, but for partitions that are stopped, which it returns as an
// error; false if ctx ends before.
func (l *Log) awaitEnd(ctx context.Context) (over bool, lost error) {
	select {
	case <-l.closing:
	case <-ctx.Done():
		return false, nil
	}
	e := ending{log: l, elsewhere: elsewhere{log: l, since: map[int]time.Time{}}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked time.Time
	for {
		left := e.unfinished()
		stopped := l.resting.among(left)
		stopped = append(stopped, e.elsewhere.among(left)...)
		done := len(left) == len(stopped)
		if done && e.whole {
			return true, errors.Join(stopped...)
		}
		if done && e.certain() {
			short, err := e.tell(ctx)
			return err == nil, errors.Join(append(stopped, short...)...)
		}
		if done && !e.looked || time.Since(asked) >= askEvery {
			asked = time.Now()
			e.ask(ctx, left, done)
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// ending is what the brokers say of a log that must be finished.
type ending struct {
	log       *Log
	elsewhere elsewhere
	committed map[int]broker.Committed
	// cut are the partitions that end before what the group has committed, so that the commit finishes nothing.
	cut map[int]bool
	// looked: it was looked whether the log is as long as it was; whole: it is.
	looked, whole bool
	// short are the partitions that end before what a source has written to them, and since when it looks so.
	short []*consumer.LostError
	since time.Time
}

// ask asks the brokers how far the group is and, once that seems to be all, whether the log is as long as it was. What
// they do not answer is asked again.
func (e *ending) ask(ctx context.Context, left []int, done bool) {
	e.looked, e.whole = done, false
	committed, err := e.log.client.GroupOffsets(ctx, e.log.o.Group, e.log.o.Topic)
	if err != nil {
		return
	}
	cut := map[int]bool{}
	for p, c := range committed {
		if c.Offset <= e.log.ends[p] { // so long it was when the log was closed
			continue
		}
		_, end, err := e.log.client.Range(ctx, e.log.o.Topic, p)
		if err != nil {
			return
		}
		cut[p] = end < c.Offset
	}
	e.committed, e.cut = committed, cut
	e.elsewhere.look(ctx, left, committed)
	if !done || len(e.unfinished()) > len(left) {
		e.looked = false
		return
	}
	short, err := e.log.shorterThanMarked(ctx)
	if err != nil {
		return
	}
	if e.short, e.whole = short, len(short) == 0; e.whole {
		e.since = time.Time{}
	} else if e.since.IsZero() {
		e.since = time.Now()
	}
}

// certain reports whether the log has been too short for long enough.
func (e *ending) certain() bool { return len(e.short) > 0 && time.Since(e.since) >= believed }

// tell records that partitions are too short, and returns it as errors. It fails with ctx only.
func (e *ending) tell(ctx context.Context) (lost []error, err error) {
	for _, short := range e.short {
		if err := e.log.tell(ctx, short); err != nil {
			return nil, err
		}
		lost = append(lost, short)
	}
	return lost, nil
}

// unfinished returns the partitions that are not finished up to their ends, as far as is known here, and from what the
// group has committed.
func (e *ending) unfinished() []int {
	finished := map[int]int64{}
	for p, c := range e.committed {
		finished[p] = c.Offset
	}
	for _, lag := range e.log.consumer.Lags() {
		finished[lag.Partition] = max(finished[lag.Partition], lag.Finished)
	}
	var left []int
	for p, end := range e.log.ends {
		if finished[p] < end || e.cut[p] {
			left = append(left, p)
		}
	}
	return left
}

// shorterThanMarked returns the partitions that end before what a source has written to them, by its last mark. With a
// topic go its groups' commits, so when it is made again it looks like one that never held anything; marks have a topic
// of their own.
func (l *Log) shorterThanMarked(ctx context.Context) (short []*consumer.LostError, err error) {
	if l.o.SkipLost {
		return nil, nil
	}
	last := map[string]record.Mark{}
	_, err = l.client.ReadAll(ctx, broker.Names{Topic: l.o.Topic}.Marks(), 0, func(r broker.Record) error {
		m, err := record.ParseMark(r.Value)
		switch key := string(r.Key); {
		case r.Value == nil:
			delete(last, key) // a source that is no more
		case err == nil && m.Term >= last[key].Term:
			last[key] = m
		}
		return nil
	})
	if err != nil && broker.Classify(err) != broker.Missing {
		return nil, err
	}
	n, err := l.client.Partitions(ctx, l.o.Topic)
	if err != nil {
		return nil, err
	}
	ends := map[int]int64{}
	for source, m := range last {
		for p, written := range m.Ends {
			if _, asked := ends[p]; !asked && written > 0 && p < n {
				if _, ends[p], err = l.client.Range(ctx, l.o.Topic, p); err != nil {
					return nil, err
				}
			}
			if written > ends[p] {
				short = append(short, consumer.FoundBefore(consumer.Truncated,
					fmt.Sprintf("source %s has written to it up to offset %d,"+
						" and the log ends at %d (the topic was created again, or brokers without its end took it over)", source, written,
						ends[p]),
					l.o.Topic, p, l.o.Group, written))
			}
		}
	}
	return short, nil
}
