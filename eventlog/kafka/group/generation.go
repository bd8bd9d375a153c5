package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// generation works through one generation: it returns once that has ended and every handle has returned.
//
// The order at its end is what matters. Somebody else may be given our partitions once this member joins again, and
// the library joins when the hooks of the generation have returned. So the hook here waits for the handles and for
// the last commit, but no longer than the drain: later the brokers would take us for dead, and all partitions would
// move.
func (r *run) generation(ctx context.Context, gen *kafka.Generation) error {
	r.member = gen.MemberID
	r.trouble.over()
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

	hctx, revoke := context.WithCancel(ctx)
	defer revoke()
	// What commits at the end must outlive ctx: the process stops by finishing what it does.
	cctx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	drained := make(chan struct{})
	r.release(gen, revoke, cut, drained)
	defer close(drained)
	if r.balancer.lacked() {
		r.lookAgain(gen)
	}

	c := &commits{
		client: r.client.Kafka(), group: r.o.ID, generation: int(gen.ID), member: gen.MemberID,
		timeout: r.o.Session / 5, log: r.o.Log, claims: map[*Claim]*progress{}, more: make(chan struct{}, 1),
		explain: func(ctx context.Context, err error) error { return r.explain(ctx, "commit the offsets of", err) },
	}
	claims, err := r.claims(hctx, owned)
	if err != nil {
		return nil // the generation ended first
	}
	for _, claim := range claims {
		c.add(claim)
	}
	err = r.handles(hctx, revoke, cctx, c, claims)
	fctx, done := context.WithTimeout(cctx, r.o.Drain)
	defer done()
	c.flush(fctx)
	return err
}

// release is the hook at the end of the generation: it tells the handles, and lets the library join again when they
// are done or their time is over.
func (r *run) release(gen *kafka.Generation, revoke, cut func(), drained <-chan struct{}) {
	r.hooks.Add(1)
	gen.Start(func(ctx context.Context) {
		defer r.hooks.Done()
		<-ctx.Done()
		revoke()
		t := time.NewTimer(r.o.Drain)
		defer t.Stop()
		select {
		case <-drained:
		case <-t.C:
			cut()
			r.o.Log.Warn("partitions were given up before all finished work was committed; what was not is done again", "group", r.o.ID,
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
		t := time.NewTimer(2 * backoff)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	})
}

// handles runs a handle for each claim, and the commits beside them, and returns when all have returned, with the
// first error that is not about the end of the generation.
func (r *run) handles(ctx context.Context, revoke func(), cctx context.Context, c *commits, claims []*Claim) error {
	var (
		working, committing sync.WaitGroup
		once                sync.Once
		first               error
	)
	cctx, stop := context.WithCancel(cctx)
	committing.Go(func() { c.run(cctx) })
	for _, claim := range claims {
		working.Go(func() {
			err := r.handle(ctx, claim)
			if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return
			}
			once.Do(func() { first = fmt.Errorf("%s/%d: %w", claim.Topic, claim.Partition, err) })
			revoke()
		})
	}
	<-ctx.Done()
	working.Wait()
	stop()
	committing.Wait()
	return first
}

// claims returns the claims of the generation, with what the group has committed for them. The library has the offsets
// but not their metadata. Every commit of an earlier generation was taken or refused before this one began, so what
// is read now is the last. It tries until ctx ends.
func (r *run) claims(ctx context.Context, owned map[string][]int) ([]*Claim, error) {
	var t trouble
	for len(owned) > 0 {
		claims, err := r.committed(ctx, owned)
		if err == nil {
			return claims, nil
		}
		err = r.explain(ctx, "read the offsets of", err)
		if ctx.Err() == nil && t.worthSaying(err) {
			r.o.Log.Warn("the group's offsets cannot be read for now; trying again", "group", r.o.ID, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff / 2):
		}
	}
	return nil, nil
}

func (r *run) committed(ctx context.Context, owned map[string][]int) ([]*Claim, error) {
	res, err := r.client.Kafka().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: r.o.ID, Topics: owned})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, err
	}
	var claims []*Claim
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
			claims = append(claims, &Claim{
				Topic: topic, Partition: p, Offset: max(f.CommittedOffset, -1), Metadata: f.Metadata,
			})
		}
	}
	return claims, nil
}
