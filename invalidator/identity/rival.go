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
	switch {
	case json.Unmarshal(text, &other) != nil || other.Run == "" || other.Run == was.Run:
		r.run = ""
		return nil
	case other.Run != r.run:
		r.run, r.since = other.Run, was.Seen
	}
	if was.Seen.Sub(r.since) < rivalAfter || was.Seen.Sub(r.said) < rivalAgain {
		return nil
	}
	r.said = was.Seen
	return w.deps.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RedisSplit, Group: w.options.Group, Subject: "group",
		Message: fmt.Sprintf("another invalidator of group %s works on another Redis than this one, which works on %s: "+
			"each gets a part of"+
			" the deletes only. Give each Redis an eventlog.kafka.group of its own, and empty both caches", w.options.Group,
			w.options.Address),
	})
}
