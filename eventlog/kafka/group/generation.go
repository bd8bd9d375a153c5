package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int
}

// held is a partition that this member works on.
type held struct {
	assignment *Assignment
	revoke     context.CancelFunc // ends the handle's context
}

// generation works through one generation: it returns once that has ended, and unless what we have is kept, every
// handle has returned.
//
// The order at its end is what matters. Somebody else may be given our partitions once this member joins again, and the
// library joins when the hooks of the generation have returned. So the hook here waits for the last commit, and where
// nothing is kept for the handles before it, but no longer than the drain: later the brokers would take us for dead,
// and all partitions would move.
func (r *run) generation(ctx context.Context, gen *kafka.Generation) {
	r.joining.Succeeded()
	owned := map[string][]int{}
	n := 0
	for topic, partitions := range gen.Assignments {
		for _, p := range partitions {
			owned[topic] = append(owned[topic], p.ID)
			n++
		}
	}
	r.balancer.remember(gen.ID, owned)
	r.o.Log.Info("a generation of the consumer group began", "group", r.o.ID, "generation", gen.ID, "partitions", n)
	r.o.Generation(owned)

	gctx, ended := context.WithCancel(ctx)
	defer ended()
	// What commits at the end must outlive ctx: the process stops by finishing what it does.
	cctx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	drained := make(chan struct{})
	r.release(gen, ended, cut, drained)
	defer close(drained)
	if r.balancer.lacked() {
		r.lookAgain(gen)
	}

	assignments, err := r.assignments(gctx, r.adopt(gen.ID, gen.MemberID, owned))
	if err == nil { // else the generation ended first
		for _, assignment := range assignments {
			r.start(ctx, assignment)
		}
	}
	<-gctx.Done()
	r.ended = time.Now()
	if ctx.Err() != nil || !r.o.Keep {
		r.windUp(cctx)
		return
	}
	// Whatever moves is done again from here on. What is finished while we join is sent too, as long as the brokers
	// take it.
	fctx, done := context.WithTimeout(cctx, r.o.Drain)
	defer done()
	r.commits.send(fctx)
}

// adopt revokes what a generation takes from us, and returns what it gives us that we do not have.
//
// What we have and are given again is kept if nobody can have had it between: this member was part of the generation
// before. If one was missed, or this is another member as the brokers see it, somebody else may have come further.
func (r *run) adopt(generation int32, member string, owned map[string][]int) map[string][]int {
	next := r.o.Keep && member == r.member && generation == r.number+1
	r.revoke(func(at topicPartition) bool { return !next || !slices.Contains(owned[at.topic], at.partition) })
	r.member, r.number = member, generation
	r.commits.begin(int(generation), member)
	given := map[string][]int{}
	for topic, partitions := range owned {
		for _, p := range partitions {
			if _, kept := r.held[topicPartition{topic, p}]; !kept {
				given[topic] = append(given[topic], p)
			}
		}
	}
	return given
}

// revoke gives up partitions at once: what their handles finish from now on is done again by the next owner.
func (r *run) revoke(which func(topicPartition) bool) {
	for at, h := range r.held {
		if which(at) {
			r.commits.forget(h.assignment)
			h.revoke()
			delete(r.held, at)
		}
	}
}

func all(topicPartition) bool { return true }

// windUp ends all handles, waits for them, and commits what they have finished. The context bounds the commits, as does
// the drain.
func (r *run) windUp(ctx context.Context) {
	for _, h := range r.held {
		h.revoke()
	}
	clear(r.held)
	r.working.Wait()
	ctx, done := context.WithTimeout(ctx, r.o.Drain)
	defer done()
	r.commits.flush(ctx)
}

// start has an assignment handled, once an earlier handle of the same partition has returned.
func (r *run) start(ctx context.Context, assignment *Assignment) {
	ctx, revoke := context.WithCancel(ctx)
	at := topicPartition{assignment.Topic, assignment.Partition}
	before, done := r.last[at], make(chan struct{})
	r.held[at], r.last[at] = held{assignment, revoke}, done
	r.commits.add(assignment)
	r.working.Go(func() {
		defer close(done)
		if before != nil {
			if <-before; ctx.Err() != nil {
				return
			}
		}
		err := r.handle(ctx, assignment)
		if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return
		}
		r.once.Do(func() {
			r.first = fmt.Errorf("%s/%d: %w", assignment.Topic, assignment.Partition, err)
			r.stop()
		})
	})
}

// release is the hook at the end of the generation: it calls ended, and lets the library join again when all is drained
// or the time for it is over.
func (r *run) release(gen *kafka.Generation, ended, cut func(), drained <-chan struct{}) {
	r.hooks.Add(1)
	gen.Start(func(ctx context.Context) {
		defer r.hooks.Done()
		<-ctx.Done()
		ended()
		t := time.NewTimer(r.o.Drain)
		defer t.Stop()
		select {
		case <-drained:
		case <-t.C:
			cut()
			r.o.Log.Warn("partitions were given up before all finished work was committed; what was not is done again", "group",
				r.o.ID,
				"drain", r.o.Drain)
		}
	})
}

// lookAgain ends a generation in which nothing was shared out because a topic was missing. The library ends it when it
// does not find the topic either. But a topic that is made after the partitions were shared out, and before the library
// begins to watch their number, is for it one that has always been there: all would stand idle until something else
// changed.
func (r *run) lookAgain(gen *kafka.Generation) {
	r.hooks.Add(1)
	gen.Start(func(ctx context.Context) { // the generation ends when this returns
		defer r.hooks.Done()
		_ = retry.Sleep(ctx, 2*backoff) // it ends early with ctx only
	})
}

// assignments returns assignments of partitions, with what the group has committed for them. The library has the
// offsets but not their metadata. Every commit of an earlier generation was taken or refused before this one began, so
// what is read now is the last. It tries until ctx ends.
func (r *run) assignments(ctx context.Context, owned map[string][]int) (assignments []*Assignment, err error) {
	if len(owned) == 0 {
		return nil, nil
	}
	loop := retry.Loop{Backoff: retry.Backoff{Max: backoff}, Reporter: broker.Reporter(func(err error) {
		r.o.Log.Warn("the group's offsets cannot be read for now; trying again", "group", r.o.ID, "error", err)
	}, nil)}
	err = loop.Do(ctx, func() error {
		assignments, err = r.committed(ctx, owned)
		return r.explain(ctx, "read the offsets of", err)
	})
	return assignments, err
}

func (r *run) committed(ctx context.Context, owned map[string][]int) ([]*Assignment, error) {
	res, err := r.client.Kafka().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: r.o.ID, Topics: owned})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, err
	}
	var assignments []*Assignment
	for topic, partitions := range owned {
		found := map[int]kafka.OffsetFetchPartition{}
		for _, p := range res.Topics[topic] {
			found[p.Partition] = p
		}
		for _, p := range partitions {
			f, ok := found[p]
			if !ok {
				return nil, fmt.Errorf("%s/%d: the brokers' answer does not name it", topic, p)
			}
			if f.Error != nil {
				return nil, fmt.Errorf("%s/%d: %w", topic, p, f.Error)
			}
			metadata, on := broker.CutWorkedOn(f.Metadata)
			assignments = append(assignments, &Assignment{
				Topic: topic, Partition: p, Offset: max(f.CommittedOffset, -1), Metadata: metadata, On: on,
			})
		}
	}
	return assignments, nil
}
