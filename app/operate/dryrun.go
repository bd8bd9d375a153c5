package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// Cached is what a scope would forget.
type Cached struct {
	// Keys are how many keys there are, a field of a hash being one; by the patterns of the mappings' tables.
	Keys map[string]int
	// Examples are some of the keys, as they stand in Redis but for redis.key_prefix.
	Examples []string
	// Blind are the templates whose keys cannot be looked for, each in a sentence.
	Blind []string
}

// maxExamples bounds [Cached].Examples.
const maxExamples = 20

// DryRun looks which keys a scope would forget, and forgets none. It asks the source for its tables and goes through
// Redis once, as slowly as a scope does; p says how far it is.
func DryRun(ctx context.Context, c *config.Config, s admin.Scope, p *scope.Progress) (*Cached, error) {
	if err := (Invalidations{Config: c}).elsewhere(); err != nil {
		return nil, err
	}
	if s.Since != "" {
		return dryRedo(ctx, c, s.Since, p)
	}
	if s.Where != "" {
		return DryWalk(ctx, c, s.Tables[0], s.Where, true, p)
	}
	sources, d, err := meantBy(ctx, c, s)
	if err != nil {
		return nil, err
	}
	found := &Cached{Keys: map[string]int{}}
	var parts []*keyspace.Keyspace
	for _, l := range sources {
		keys, err := l.InDoubt(c.Redis.KeyPrefix, d)
		if err != nil {
			return nil, err
		}
		for _, w := range l.Rows([]doubt.Doubt{d}) {
			found.Blind = append(found.Blind, fmt.Sprintf("the keys of %s.%s with scope: rows: those of its rows; see --where 1",
				w.Schema, w.Name))
		}
		for _, b := range keys.Blind() {
			found.Blind = append(found.Blind, b.String())
		}
		if len(keys.Targets()) > 0 {
			parts = append(parts, keys)
		}
	}
	if len(parts) == 0 {
		return found, nil
	}
	redis, closeRedis, err := connect.Searched(c)
	if err != nil {
		return nil, err
	}
	defer closeRedis()
	if _, err := redis.Server(ctx); err != nil {
		return nil, fmt.Errorf("redis %s: %w", connect.RedisName(c), err)
	}
	if err := searchable(ctx, c, redis, parts); err != nil {
		return nil, err
	}
	for _, keys := range parts {
		here := &Cached{Keys: map[string]int{}}
		look, err := scope.New(scope.Deps{
			Redis: redis, Serve: here.take, Log: slog.New(slog.DiscardHandler),
		}, scope.Options{Rate: math.MaxInt, Prefix: c.Redis.KeyPrefix})
		if err != nil {
			return nil, err
		}
		t := scope.Task{Keys: keys, Progress: p}
		Narrow(&t, d)
		if err := look.Look(ctx, t); err != nil {
			return nil, err
		}
		found.add(here)
	}
	return found, nil
}

// dryRedo looks which keys the changes since a time are about, and forgets none. It reads the binlog, or with Kafka the
// topic, up to its end, and asks nothing of Redis.
func dryRedo(ctx context.Context, c *config.Config, since string, p *scope.Progress) (*Cached, error) {
	d, err := Invalidations{Config: c}.since(since)
	if err != nil {
		return nil, err
	}
	if c.EventLog.Kind == config.EventLogKafka {
		return dryTopic(ctx, c, d.From, p)
	}
	o := connect.Source(c)
	from, err := time.Parse(time.RFC3339, d.From)
	if err != nil {
		return nil, err
	}
	at, err := canal.LocateSince(ctx, o, from)
	if err != nil {
		return nil, err
	}
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	connect.Routed(&o, route)
	o.ServerID, o.UntilCaughtUp = 0, true // the one of the configuration is the live stream's
	source, err := canal.New(o, func(_ context.Context, t *event.Table) ([]event.Need, error) { return route.Bind(t) },
		checkpoint.New("the dry run", unsaved{}, checkpoint.Loaded{Position: at}))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	extent, err := canal.Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	found := &Cached{Keys: map[string]int{}}
	var b event.Batch
	var first *event.Version
	for {
		step, err := source.Next(ctx)
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if step.Kind != canal.Rows {
			source.HandedOver() // to nobody
			continue
		}
		err = step.Each(func(change *event.Change) error {
			route.Route(&b, change)
			if first == nil {
				v := change.Version
				first = &v
			}
			p.Keys.Store(event.AllAt(extent.Share(*first, change.Version), p.Looked.Add(1)))
			p.Found.Add(int64(b.Len()))
			found.count(&b)
			b.Reset()
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// dryTopic is dryRedo with Kafka.
func dryTopic(ctx context.Context, c *config.Config, since string, p *scope.Progress) (*Cached, error) {
	found := &Cached{Keys: map[string]int{}}
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return nil, err
	}
	topic := connect.Topics(c).Topic
	return found, onKafka(c, func(client *broker.Client) error {
		place, err := kafka.Since(ctx, client, topic, at)
		if err != nil {
			return err
		}
		ends := map[int]int64{}
		for n, at := range place.Partitions {
			if ends[n], err = client.End(ctx, topic, n); err != nil {
				return err
			}
			p.Keys.Add(max(0, ends[n]-at.Offset))
		}
		for _, n := range slices.Sorted(maps.Keys(place.Partitions)) {
			span := consumer.NewSpan(client, topic, n, place.Partitions[n], ends[n])
			for {
				b, err := span.Next(ctx)
				if err == io.EOF {
					break
				}
				if err != nil {
					return err
				}
				p.Looked.Add(1)
				p.Found.Add(int64(b.Len()))
				found.count(b)
			}
		}
		return nil
	})
}

// unsaved is where the position of a dry run is kept: nowhere.
type unsaved struct{}

// WritePosition implements [checkpoint.Storage].
func (unsaved) WritePosition(checkpoint.Write) error { return nil }

// WriteMappings implements [checkpoint.Storage].
func (unsaved) WriteMappings(string) error { return nil }

// add adds what was found of another source.
func (f *Cached) add(o *Cached) {
	for table, n := range o.Keys {
		f.Keys[table] += n
	}
	f.Examples = append(f.Examples, o.Examples...)
	f.Examples = f.Examples[:min(len(f.Examples), maxExamples)]
}

// meantBy returns what is known of the sources, and the doubt that stands for a scope. With Kafka that is what readers
// have kept; else the source is asked.
func meantBy(ctx context.Context, c *config.Config, s admin.Scope) (sources []*Learned, d doubt.Doubt, err error) {
	v := Invalidations{Config: c}
	if c.EventLog.Kind != config.EventLogKafka {
		if d, err = v.doubt(ctx, s); err != nil {
			return nil, d, err
		}
		l, err := inspect(ctx, c)
		return []*Learned{l}, d, err
	}
	kept, err := OpenDoubts(ctx, c)
	if err != nil {
		return nil, d, err
	}
	v.Facts = kept.Facts
	if d, err = v.doubt(ctx, s); err == nil {
		sources, err = LearnAll(ctx, kept.Facts())
	}
	return sources, d, errors.Join(err, kept.Close())
}

// inspect asks the source for its tables.
func inspect(ctx context.Context, c *config.Config) (*Learned, error) {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	o := connect.Source(c)
	connect.Routed(&o, route)
	keys := Keys{Mappings: route.Mappings(), Source: o}
	return keys.Learn(ctx, c.Source.Name)
}

// take counts what a pass hands out.
func (f *Cached) take(ctx context.Context, p eventlog.Partition) error {
	f.Examples = nil
	clear(f.Keys)
	for {
		b, token, err := p.Fetch(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.Commit(token)
		f.count(b)
	}
}

// count counts the keys of a batch.
func (f *Cached) count(b *event.Batch) {
	for i := range b.Len() {
		f.Keys[b.Of(i).Table]++
		if key := b.Key(i); len(f.Examples) < maxExamples && !slices.Contains(f.Examples, key) {
			f.Examples = append(f.Examples, strings.Clone(key))
		}
	}
}
