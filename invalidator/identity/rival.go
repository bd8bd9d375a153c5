package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
)

// All invalidators of a group keep who Redis is under one name. Two that work on two Redis share out the partitions all
// the same, so that each Redis gets a part of the deletes, and both look fresh. Each finds the other's Redis under that
// name, again and again, while its own goes on answering.

// rival is a Redis that another process keeps in the place of ours.
type rival struct {
	run string
	// since is when it was found, said when it was last recorded.
	since, said time.Time
}

const (
	// rivalAfter is for how long our Redis must go on answering: at a failover one process sees the new master before
	// another.
	rivalAfter = 10 * time.Second
	// rivalAgain is how often it is recorded while it lasts.
	rivalAgain = time.Minute
)

// answers takes note of the Redis that another process keeps now, "" if it is ours, and reports whether that must be
// recorded. seen is when ours answered last.
func (r *rival) answers(run string, seen time.Time) bool {
	if run == "" {
		r.run = ""
		return false
	}
	if run != r.run {
		r.run, r.since = run, seen
	}
	if seen.Sub(r.since) < rivalAfter || seen.Sub(r.said) < rivalAgain {
		return false
	}
	r.said = seen
	return true
}

// split is the doubt that another process of the group works on another Redis.
func (o *Options) split() doubt.Doubt {
	return doubt.Doubt{
		Cause: alarm.RedisSplit, Group: o.Group, Subject: "group",
		Message: fmt.Sprintf("another invalidator of group %s works on another Redis than this one, which works on %s: "+
			"each gets a part of"+
			" the deletes only. Give each Redis an eventlog.kafka.group of its own, and empty both caches", o.Group, o.Address),
	}
}

// watchRival records that another process of the group works on another Redis. It fails only with ctx.
func (w *Watch) watchRival(ctx context.Context, r *rival, was, kept known) error {
	if w.options.Group == "" || kept.Run == "" || kept.Run != was.Run {
		return nil // nobody else keeps it, or we have not yet
	}
	text, err := w.deps.Facts.Fact(ctx, w.fact())
	if err != nil {
		return ctx.Err()
	}
	var other known
	if json.Unmarshal(text, &other) != nil || other.Run == was.Run {
		other.Run = ""
	}
	if !r.answers(other.Run, was.Seen) {
		return nil
	}
	return w.deps.Doubts.Record(ctx, w.options.split())
}

// watchRival records that another process of the group works on another cluster, or on a single Redis: on one of which
// no node is one of ours. kept says that ours are kept. It fails only with ctx.
func (c *Cluster) watchRival(ctx context.Context, r *rival, kept bool) error {
	if c.options.Group == "" || !kept || len(c.nodes) == 0 {
		return nil
	}
	text, err := c.deps.Facts.Fact(ctx, c.fact())
	if err != nil {
		return ctx.Err()
	}
	var other knownCluster
	if json.Unmarshal(text, &other) != nil {
		other.Run = ""
	}
	var seen time.Time
	for id, n := range c.nodes {
		if other.Nodes[id] != nil {
			other.Run = ""
		}
		if n.Seen.After(seen) {
			seen = n.Seen
		}
	}
	if !r.answers(other.Run, seen) {
		return nil
	}
	return c.deps.Doubts.Record(ctx, c.options.split())
}
