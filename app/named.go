package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router/keyspace"
)

// request is keys that an operator names.
type request struct {
	keys []string
	done chan<- error // has room
}

// forgetAll has keys forgotten by name until ctx ends.
func (a *answering) forgetAll(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case r := <-a.asked:
			g.Go(func() error {
				r.done <- a.forgetNow(ctx, r.keys)
				return nil
			})
		}
	}
}

// patience is how long somebody waits for keys that are named to be finished.
const patience = 20 * time.Second

// forget has keys forgotten that an operator names, without the prefix, and returns how many once all is finished. It
// goes on when nobody waits for it any more.
func (a *answering) forget(ctx context.Context, keys []string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	select {
	case a.asked <- request{keys, done}:
		select {
		case err := <-done:
			return len(keys), err
		case <-ctx.Done():
		}
		return 0, fmt.Errorf("not finished within %s: it goes on, and `freshet status` says what it waits for", patience)
	case <-ctx.Done():
		return 0, errors.New("freshet is starting, or stopping: try again")
	}
}

// forgetNow does the work of forget: each source's keys as the source's mappings say, and the rest with those of the
// first.
func (a *answering) forgetNow(ctx context.Context, keys []string) error {
	sources, err := a.learn(ctx, "")
	if err != nil {
		return err
	}
	var tasks []scope.Task
	for _, l := range sources {
		all, err := keyspace.New(l.Mappings, l.Tables, a.prefix)
		if err != nil {
			return err
		}
		tasks = append(tasks, scope.Task{
			Keys: all, Source: l.Source, Progress: &scope.Progress{}, Newest: a.newest(l.Source),
		})
	}
	of := make([][]string, len(tasks))
	for _, key := range keys {
		known := false
		for i := range tasks {
			mine := false
			tasks[i].Keys.Match(a.prefix+key, func(*keyspace.Target) { mine = true })
			if mine {
				of[i], known = append(of[i], key), true
			}
		}
		if !known {
			of[0] = append(of[0], key)
		}
	}
	for i, t := range tasks {
		if len(of[i]) > 0 {
			err = errors.Join(err, a.scope.Forget(ctx, t, of[i]))
		}
	}
	return err
}
