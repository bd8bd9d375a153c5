package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/retry"
)

// straggler is a partition of which the group has done the last work on another Redis than this process works on: the
// member that has it has not come to this one yet, or was killed before.
type straggler struct {
	partition string
	// apart: no server is the same.
	apart bool
	// since is when that was first seen, and said when it was recorded.
	since, said time.Time
}

const (
	// splitAfter is for how long the members of a group may work on two Redis: at a failover one sees the new master
	// before another, and the partitions of one that was killed are somebody else's after its session.
	splitAfter = 3 * group.DefaultSession
	// splitAgain is how often it is recorded while it lasts.
	splitAgain = time.Minute
)

// elsewhere takes note of whether the group has done its last work on another Redis than this process works on, for any
// partition: what a stamp would say is not all in one of them.
func (g *groupAnswers) elsewhere(at *kafka.Place) bool {
	partition, redis := at.Elsewhere(g.on())
	if partition == "" {
		g.straggler.Store(nil)
		return false
	}
	is, was := straggler{partition: partition, apart: identity.Apart(redis, g.on()), since: time.Now()}, g.straggler.Load()
	if was != nil && was.apart == is.apart {
		is.since, is.said = was.since, was.said
	}
	g.straggler.Store(&is)
	return true
}

// late says which partition is worked on on another Redis; "": none is, as far as this process knows.
func (g *groupAnswers) late() string {
	if s := g.straggler.Load(); s != nil {
		return s.partition
	}
	return ""
}

// recordSplit records that the members of the group work on two Redis: each gets a part of the deletes.
func (g *groupAnswers) recordSplit(ctx context.Context) error {
	s, now := g.straggler.Load(), time.Now()
	if s == nil || !s.apart || now.Sub(s.since) < splitAfter || now.Sub(s.said) < splitAgain {
		return nil
	}
	err := g.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RedisSplit, Group: g.group, Subject: "group",
		Message: fmt.Sprintf("another invalidator of group %s works on another Redis than this one, which works on %s: each gets "+
			"a part of the deletes only. Give each Redis an eventlog.kafka.group of its own, and empty both caches", g.group, g.redis),
	})
	if err == nil {
		said := *s
		said.said = now
		g.straggler.Store(&said)
	}
	return err
}

// together waits until the group has done the last work of all partitions on the Redis that this process works on, so
// that the answer to a doubt about it is the last word: who comes to it later records what it lacks. It returns early
// once nobody waits for this answer any more.
func (g *groupAnswers) together(ctx context.Context, d *doubt.Doubt) error {
	for {
		at, err := g.log.Reached(ctx)
		partition, _ := at.Elsewhere(g.on())
		if err == nil && partition == "" {
			err = g.doubts.Refresh(ctx) // what others have recorded before
		}
		switch {
		case err != nil:
			g.doubts.Say(d.ID, fmt.Sprintf("answered; it ends once the brokers say how far group %s is: %v", g.group, err))
		case partition == "":
			return nil
		default:
			g.doubts.Say(d.ID, fmt.Sprintf("answered; it ends once the invalidator that has partition %s works on the same redis",
				partition))
		}
		if err := retry.Sleep(ctx, asksEach); err != nil {
			return err
		}
		if !g.waited(d) {
			return nil
		}
	}
}

// waited reports whether somebody still waits for the answer to a doubt: it was neither dismissed nor has it come
// again.
func (g *groupAnswers) waited(d *doubt.Doubt) bool {
	return slices.ContainsFunc(g.doubts.List(), func(is doubt.Doubt) bool {
		return is.ID == d.ID && is.Last.Equal(d.Last)
	})
}
