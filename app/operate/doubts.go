package operate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// Book is a book of doubts, once there is one, in the words of the admin API.
type Book func() *doubt.Book

// ListDoubts implements admin.Doubts.
func (b Book) ListDoubts(context.Context) ([]admin.Doubt, error) {
	var out []admin.Doubt
	if !b().Loaded() {
		return nil, errors.New("it is not known yet what is in doubt: Kafka has not answered")
	}
	for _, d := range b().List() {
		var partition *int
		if d.Lost != nil {
			partition = &d.Lost.Partition
		}
		out = append(out, admin.Doubt{
			ID: d.ID, Cause: string(d.Cause), Source: d.Source, Group: d.Group, Tables: d.Tables, Schemas: d.Schemas,
			Subject: d.Subject, Message: d.Message, Since: d.Since, Last: d.Last, Count: d.Count,
			Templates: d.Templates, Pattern: d.Pattern, Partition: partition, Asked: d.Asked, Answer: d.Answer, Stuck: d.Stuck,
			Progress: d.Progress,
		})
	}
	return out, nil
}

// DismissDoubt implements admin.Doubts.
func (b Book) DismissDoubt(ctx context.Context, id string, seen time.Time) error {
	err := b().Dismiss(ctx, id, seen)
	switch {
	case errors.Is(err, doubt.ErrUnknown):
		return fmt.Errorf("%w: %s", admin.ErrNoDoubt, id)
	case errors.Is(err, doubt.ErrCameAgain):
		return fmt.Errorf("%w: doubt %s", admin.ErrCameAgain, id)
	}
	return err
}

// AnswerDoubt implements admin.Doubts.
func (b Book) AnswerDoubt(ctx context.Context, id string) error {
	err := b().Ask(ctx, id)
	if errors.Is(err, doubt.ErrUnknown) {
		return fmt.Errorf("%w: %s", admin.ErrNoDoubt, id)
	}
	return err
}

// EndedDoubt implements admin.Doubts.
func (b Book) EndedDoubt(ctx context.Context, id string) (admin.EndedDoubt, error) {
	e, err := b().Ending(ctx, id)
	if errors.Is(err, doubt.ErrUnknown) {
		return admin.EndedDoubt{}, fmt.Errorf("%w: %s", admin.ErrNoDoubt, id)
	}
	return admin.EndedDoubt{ID: e.ID, Last: e.Last, Ended: e.Ended, How: e.How, Answer: e.Answer}, err
}

// Doubts are the doubts of a freshet that does not run.
type Doubts struct {
	Book
	keeper doubt.Keeper
	close  func() error
	facts  doubt.SharedFacts
}

// Facts are what processes know of each other; nil with the embedded log.
func (d *Doubts) Facts() doubt.SharedFacts { return d.facts }

// Close closes what they are kept in.
func (d *Doubts) Close() error { return d.close() }

// OpenDoubts opens what a configuration keeps its doubts in. With the embedded log it fails while a freshet runs on it.
func OpenDoubts(ctx context.Context, c *config.Config) (*Doubts, error) {
	if c.EventLog.Kind == config.EventLogKafka {
		return openKafkaDoubts(ctx, c)
	}
	store, err := openExisting(c)
	if err != nil {
		return nil, err
	}
	book, err := doubt.New(store, nil, nil)
	if err == nil {
		err = book.Load(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Doubts{Book: func() *doubt.Book { return book }, keeper: store, close: store.Close}, nil
}

func openKafkaDoubts(ctx context.Context, c *config.Config) (*Doubts, error) {
	client, err := openTopics(ctx, c, []broker.Topic{broker.DoubtsTopic(connect.Topics(c), connect.Sizing(c))})
	if err != nil {
		return nil, err
	}
	// With the whole configuration it is an invalidator's view, which lacks nothing of a reader's.
	keeper, err := connect.Doubts(client, c, !c.HasRedis(), nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	book, err := doubt.New(keeper, nil, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	group := c.EventLog.Kafka.Group
	if !c.HasRedis() {
		group = ""
	}
	book.Share(keeper, group)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	run.Go(func() { _ = book.Run(running) }) // it never fails
	end := func() error {
		stop()
		run.Wait()
		return client.Close()
	}
	if err := book.Load(ctx); err != nil {
		return nil, errors.Join(err, end())
	}
	return &Doubts{Book: func() *doubt.Book { return book }, keeper: keeper, close: end, facts: keeper}, nil
}
