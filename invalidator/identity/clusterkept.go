package identity

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// knownCluster is what is kept of a cluster. Its Run is none of a server, so that nobody takes it for a single Redis.
type knownCluster struct {
	known
	Nodes map[string]*lineage `json:"nodes"`
}

const clusterRun = "cluster"

// fact is the name under which the identities are kept.
func (c *Cluster) fact() string { return "redis/" + c.options.Source + c.options.Group }

// load learns who the masters were, and records that Redis was none of this cluster. It fails only with ctx.
func (c *Cluster) load(ctx context.Context) error {
	var was knownCluster
	loop := retry.Loop{Reporter: &retry.Reporter{Failed: func(err error) {
		c.deps.Alarms.Raise(alarm.StoreFailed, "it cannot be read which nodes the cluster had, so a change of them goes "+
			"unnoticed: "+err.Error())
	}}}
	err := loop.Do(ctx, func() error {
		text, err := c.deps.Facts.Fact(ctx, c.fact())
		if err == nil && text != nil {
			err = json.Unmarshal(text, &was)
		}
		if err == nil && c.deps.Name != nil {
			was.Stamp, err = c.deps.Name(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if was.Stamp == "" {
		was.Stamp = rand.Text()[:12]
	}
	c.stamp = was.Stamp
	if c.nodes = was.Nodes; c.nodes == nil {
		c.nodes = map[string]*lineage{}
	}
	if was.Run != "" && was.Run != clusterRun {
		if err := c.record(ctx, doubt.Doubt{
			Cause: alarm.RedisChanged, Subject: c.options.Address,
			Message: fmt.Sprintf("redis is %s now, and was a single one before: nothing says that the deletes reached it",
				c.options.Address),
		}); err != nil {
			return err
		}
	}
	if here := c.options.place(); was.Place != "" && was.Place != here {
		return c.record(ctx, doubt.Doubt{
			Cause: alarm.RedisMoved, Subject: c.options.Address + ", " + here,
			Message: fmt.Sprintf("the keys in %s were those of %s, and now are those of %s: what is cached there already was not "+
				"deleted for earlier changes, and what is left where it was is not deleted any more: clear both",
				c.options.Address, was.Place, here),
		})
	}
	return nil
}

// lost records that slots came to a master from one that nobody has looked at since.
func (c *Cluster) lost(ctx context.Context, m *watched, from *lineage, slots int) error {
	return c.record(ctx, doubt.Doubt{
		Cause: alarm.RedisChanged, Subject: m.watch.options.Address,
		Message: fmt.Sprintf("redis %s has %d slots of a master that could not be looked at after they had gone, or was started "+
			"again before (it was last seen at %s, with the run_id %s), and may have had older data when it gave them away: those "+
			"keys that were deleted before may be back", m.watch.options.Address, slots,
			from.Seen.UTC().Format(time.RFC3339), from.Run),
	})
}

// late records that a master took slots when their giver had given up, and took deletes again.
func (c *Cluster) late(ctx context.Context, m, from *watched, slots int) error {
	return c.record(ctx, doubt.Doubt{
		Cause: alarm.RedisChanged, Subject: m.watch.options.Address,
		Message: fmt.Sprintf("redis %s has taken %d slots though %s says that their move has failed: what that one "+
			"acknowledged until they were taken is lost, so that keys that were deleted may be back",
			m.watch.options.Address, slots, from.Address),
	})
}

// regained records that a master has got slots of which it may have old keys.
func (c *Cluster) regained(ctx context.Context, m *watched, slots int) error {
	return c.record(ctx, doubt.Doubt{
		Cause: alarm.RedisChanged, Subject: m.watch.options.Address,
		Message: fmt.Sprintf("redis %s has got %d slots that another master had, and may have kept old keys in them: it came "+
			"back with data of before it gave them away, or brought data of its own", m.watch.options.Address, slots),
	})
}

func (c *Cluster) record(ctx context.Context, d doubt.Doubt) error {
	d.Source, d.Group = c.options.Source, c.options.Group
	return c.deps.Doubts.Record(ctx, d)
}

// keep has the identities kept, and reports whether they are. What is not kept is tried again a second later.
func (c *Cluster) keep(ctx context.Context) bool {
	text, err := json.Marshal(knownCluster{
		known{Run: clusterRun, Seen: time.Now(), Place: c.options.place(), Stamp: c.stamp}, c.nodes,
	})
	if err == nil {
		err = c.deps.Facts.SetFact(ctx, c.fact(), text)
	}
	if err != nil && ctx.Err() == nil {
		c.deps.Alarms.Raise(alarm.StoreFailed,
			"it cannot be kept which nodes the cluster has, so a change of them may be reported twice: "+err.Error())
	}
	return err == nil
}
