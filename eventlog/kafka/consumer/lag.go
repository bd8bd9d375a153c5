package consumer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// Lag is how far a partition is behind.
type Lag struct {
	Partition int
	// Records is how many are not finished.
	Records int64
	// Finished is the offset below which everything is finished: what is committed, or about to be.
	Finished int64
	// End is the offset that the next record will get, as last heard: a second or so ago, and some more while the
	// brokers do not answer.
	End int64
	// Oldest is when the oldest record that is not finished was written; the zero time when there is none, or it has
	// not been fetched yet.
	Oldest time.Time
	// Headroom is how long that record is kept at least, by the topic's retention.ms; negative: retention may delete
	// it any moment. Known says that it is known.
	Headroom time.Duration
	Known    bool
	// Stopped is why nothing more is read of it; nil: it is read.
	Stopped *LostError

	start int64
}

// Lags returns how far each partition that this process owns is behind, by number.
func (c *Consumer) Lags() []Lag {
	c.mu.Lock()
	retention := c.retention
	c.mu.Unlock()
	var out []Lag
	for _, p := range c.owned() {
		if l, ok := p.lag(retention); ok {
			out = append(out, l)
		}
	}
	return out
}

// lag is not known before it is known where to read.
func (p *assignedPartition) lag(retention time.Duration) (Lag, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := Lag{
		Partition: p.id, Records: max(p.end-p.finished, 0), Finished: p.finished, End: max(p.end, p.finished), start: p.start,
		Stopped: p.loss,
	}
	switch {
	case len(p.pending) > 0:
		l.Oldest = p.pending[0].time
	case !p.stuck.IsZero():
		l.Oldest = p.stuck
	}
	if retention > 0 && !l.Oldest.IsZero() {
		l.Headroom, l.Known = retention-time.Since(l.Oldest), true
	}
	return l, p.begun
}

const (
	// watchEvery is how often lags are looked at.
	watchEvery = 5 * time.Second
	// settingsEvery is how often the topic's settings are.
	settingsEvery = 5 * time.Minute
)

// watch keeps the ends of the partitions true while they have no room, and known who leads them; it raises an alarm
// before retention deletes what is not finished.
func (c *Consumer) watch(ctx context.Context) {
	var asked time.Time
	for ctx.Err() == nil {
		if time.Since(asked) >= settingsEvery {
			asked = time.Now()
			c.askRetention(ctx)
		}
		if leaders, err := c.cluster.Leaders(ctx, c.o.Names.Topic); err == nil {
			c.fetcher.lead(leaders)
		}
		for _, p := range c.owned() {
			c.watchPartition(ctx, p)
		}
		_ = retry.Beat(ctx, watchEvery) // the loop looks at ctx
	}
}

func (c *Consumer) watchPartition(ctx context.Context, p *assignedPartition) {
	p.mu.Lock()
	heard := p.heard
	p.mu.Unlock()
	if time.Since(heard) > watchEvery/2 {
		start, end, err := c.cluster.Range(ctx, p.assignment.Topic, p.id)
		if err != nil {
			return // who fetches it says so
		}
		p.observe(start, end)
	}
	c.mu.Lock()
	retention := c.retention
	c.mu.Unlock()
	if l, ok := p.lag(retention); ok && l.endangered(retention) {
		c.o.Alarms.Raise(alarm.RetentionNear,
			fmt.Sprintf("%s is so far behind in group %s that the topic's retention will soon"+
				" delete records that are not finished: raise retention.ms and retention.bytes of topic %s, or fix what holds up"+
				" the invalidators", p.what, c.o.Group, p.assignment.Topic))
	}
}

// endangered reports whether records may be deleted before they are finished. Where retention.ms is known, the last
// quarter of it is the danger. Where it is not, and where retention.bytes is the one that bites: when the first tenth
// of what is left is all that lies before them, records have been deleted before, and the oldest is not just being
// worked on.
func (l *Lag) endangered(retention time.Duration) bool {
	if l.Records == 0 || l.Stopped != nil {
		return false
	}
	if l.Known && l.Headroom < retention/4 {
		return true
	}
	return l.start > 0 && (l.Finished-l.start)*10 < l.End-l.start && !l.Oldest.IsZero() &&
		time.Since(l.Oldest) > grown(retention)
}

// grown is the age from which a record's nearness to the log's beginning counts.
func grown(retention time.Duration) time.Duration {
	if retention > 0 {
		return retention / 4
	}
	return 10 * time.Minute
}

// askRetention asks for the topic's retention.ms. It takes an ACL (DescribeConfigs) that the invalidators need for
// nothing else, so without an answer freshet does without.
func (c *Consumer) askRetention(ctx context.Context) {
	if d, known := retention(ctx, c.client, c.o.Names.Topic); known {
		c.mu.Lock()
		c.retention = d
		c.mu.Unlock()
	}
}

// retention returns a topic's retention.ms, if the brokers say so; 0: forever.
func retention(ctx context.Context, c *broker.Client, topic string) (d time.Duration, known bool) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	res, err := c.Kafka().DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
		}},
	})
	if err != nil {
		return 0, false
	}
	for _, r := range res.Resources {
		for _, e := range r.ConfigEntries {
			ms, err := strconv.ParseInt(e.ConfigValue, 10, 64)
			if e.ConfigName == "retention.ms" && err == nil {
				d, known = max(time.Duration(min(ms, maxRetention))*time.Millisecond, 0), true
			}
		}
	}
	return d, known
}

// maxRetention bounds what is believed, in ms: a century.
const maxRetention = 100 * 365 * 24 * 3600 * 1000

// doubtLost keeps durably that a loss is passed over.
func (c *Consumer) doubtLost(ctx context.Context, e *LostError) error {
	return c.o.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RecordsLost, Group: e.Group, Subject: fmt.Sprintf("%s/%d", e.Topic, e.Partition), Lost: e.Records(),
		Message: fmt.Sprintf("passed over, as --skip-lost or on_gap says: records of %s/%d are lost to group %s: %s."+
			" Keys that changed meanwhile may stay stale unless the cache was cleared", e.Topic, e.Partition, e.Group, e.what()),
	})
}

// doubtStrange keeps durably that another program has committed the group's offset. It fails with ctx only.
func (p *assignedPartition) doubtStrange() error {
	return p.c.o.Doubts.Record(p.ctx, doubt.Doubt{
		Cause: alarm.PositionSkipped, Group: p.c.o.Group, Subject: p.what,
		Message: fmt.Sprintf("the offset of group %s in %s was set to %d by another program than freshet: if it was set "+
			"forward, the"+
			" changes between are never acted upon, and their keys may stay stale (if nobody has, the brokers keep no metadata of"+
			" commits: raise offset.metadata.max.bytes)", p.c.o.Group, p.what, p.assignment.Offset),
	})
}
