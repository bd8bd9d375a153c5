package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// doubtList is a book of doubts in the words of the admin API.
type doubtList struct{ book func() *doubt.Book }

// ListDoubts implements admin.Doubts.
func (l doubtList) ListDoubts(context.Context) ([]admin.Doubt, error) {
	var out []admin.Doubt
	if !l.book().Loaded() {
		return nil, errors.New("it is not known yet what is in doubt: Kafka has not answered")
	}
	for _, d := range l.book().List() {
		out = append(out, admin.Doubt{
			ID: d.ID, Cause: string(d.Cause), Source: d.Source, Group: d.Group, Tables: d.Tables, Subject: d.Subject,
			Message: d.Message, Since: d.Since, Last: d.Last, Count: d.Count,
		})
	}
	return out, nil
}

// DismissDoubt implements admin.Doubts.
func (l doubtList) DismissDoubt(ctx context.Context, id string, seen time.Time) error {
	err := l.book().Dismiss(ctx, id, seen)
	switch {
	case errors.Is(err, doubt.ErrUnknown):
		return fmt.Errorf("%w: %s", admin.ErrNoDoubt, id)
	case errors.Is(err, doubt.ErrCameAgain):
		return fmt.Errorf("%w: doubt %s", admin.ErrCameAgain, id)
	}
	return err
}

// Doubts are the doubts of a freshet that does not run.
type Doubts struct {
	doubtList
	keeper doubt.Keeper
	close  func() error
}

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
	return &Doubts{doubtList{func() *doubt.Book { return book }}, store, store.Close}, nil
}

func openKafkaDoubts(ctx context.Context, c *config.Config) (*Doubts, error) {
	client, err := kafkaClient(c, nil, slog.Default())
	if err != nil {
		return nil, err
	}
	err = client.Ensure(ctx, []broker.Topic{broker.DoubtsTopic(names(c), sizing(c))}, false)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	// With the whole configuration it is an invalidator's view, which lacks nothing of a reader's.
	role := Reader
	if c.HasRedis() {
		role = Invalidator
	}
	p := &pipeline{config: c, options: Options{Role: role}}
	keeper, err := p.kafkaDoubts(client)
	if err == nil {
		p.doubts, err = doubt.New(keeper, nil, nil)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	run.Go(func() { _ = p.doubts.Run(running) }) // it never fails
	end := func() error {
		stop()
		run.Wait()
		return client.Close()
	}
	if err := p.doubts.Load(ctx); err != nil {
		return nil, errors.Join(err, end())
	}
	return &Doubts{doubtList{func() *doubt.Book { return p.doubts }}, keeper, end}, nil
}
