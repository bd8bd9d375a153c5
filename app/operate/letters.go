package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// LetterStore is where either event log keeps the keys in trouble.
type LetterStore interface {
	DeadLetters(ctx context.Context, f retry.Filter, after uint64, n int) ([]retry.Entry, error)
	Replay(ctx context.Context, f retry.Filter, now time.Time) (int, error)
	Purge(ctx context.Context, f retry.Filter) (int, error)
}

// Letters are the dead letters of a freshet that does not run.
type Letters struct {
	Box
	close func() error
}

// OpenLetters opens the store of a configuration for its dead letters. With the embedded log it fails while a freshet
// runs on it.
func OpenLetters(ctx context.Context, c *config.Config) (*Letters, error) {
	if c.EventLog.Kind == config.EventLogKafka {
		return openKafkaLetters(ctx, c)
	}
	s, err := openExisting(c)
	if err != nil {
		return nil, err
	}
	return &Letters{func() LetterStore { return s }, s.Close}, nil
}

func openKafkaLetters(ctx context.Context, c *config.Config) (*Letters, error) {
	if !c.HasRedis() {
		return nil, spec.Problems{{
			Pos: spec.Pos{File: c.File}, What: "there is no redis, so this is a reader's, which has no dead letters",
			Do: "name the configuration of an invalidator with --config",
		}}
	}
	k := c.EventLog.Kafka
	client, err := openTopics(ctx, c,
		broker.InvalidatorTopics(connect.Topics(c), k.Group, c.Retry.ParkDelays, connect.Sizing(c)))
	if err != nil {
		return nil, err
	}
	log, err := kafka.New(client, kafka.Options{Topic: k.Topic, Group: k.Group, Delays: c.Retry.ParkDelays})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Letters{func() LetterStore { return log.Letters() }, client.Close}, nil
}

// openExisting opens the store for changing it, and makes none.
func openExisting(c *config.Config) (*embedded.Store, error) {
	probe, err := embedded.OpenReadOnly(c.EventLog.Dir, embedded.Options{})
	if err != nil {
		return nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, err
	}
	return embedded.Open(c.EventLog.Dir, embedded.Options{})
}

// Close closes the store.
func (l *Letters) Close() error { return l.close() }

// Box is the dead letters in a store, once there is one, in the words of the admin API.
type Box func() LetterStore

// List implements admin.Letters.
func (b Box) List(ctx context.Context, table string, after uint64, limit int) ([]admin.Letter, error) {
	entries, err := b().DeadLetters(ctx, retry.Filter{Table: table}, after, limit)
	out := make([]admin.Letter, len(entries))
	for i, e := range entries {
		out[i] = admin.Letter{
			ID: e.ID, Key: e.Key, Action: e.Action.String(), Source: e.Source, Table: e.Table, Version: e.Version.String(),
			Error: e.Error, Attempts: e.Attempts, First: e.First, Last: e.Last,
		}
	}
	return out, err
}

// Replay implements admin.Letters.
func (b Box) Replay(ctx context.Context, sel admin.Selection) (int, error) {
	n, err := b().Replay(ctx, filter(sel), time.Now())
	if err != nil && n > 0 {
		err = fmt.Errorf("%d were replayed; %w", n, err)
	}
	return n, err
}

// Purge implements admin.Letters.
func (b Box) Purge(ctx context.Context, sel admin.Selection) (int, error) {
	return b().Purge(ctx, filter(sel))
}

func filter(s admin.Selection) retry.Filter { return retry.Filter{IDs: s.IDs, Table: s.Table} }
