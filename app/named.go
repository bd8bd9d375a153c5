package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router/keyspace"
)

// request is keys that an operator names.
type request struct {
	keys []string
	done chan<- error // has room
}

// The bounds of what is done at once for those who name keys. While Redis is away nothing is finished, and they may ask
// again and again.
const (
	// namedBytes bounds the keys that are not finished, and namedCost is what each takes besides its name.
	namedBytes = 32 << 20
	namedCost  = 64
	// namedAtOnce is how many units of work they are at most, and namedEach how often one begins. What comes meanwhile is
	// one unit. So with a D of less than a minute none has to wait for a former one.
	namedAtOnce = 1024
	namedEach   = 50 * time.Millisecond
)

// learnedFor is for how long what was learned of the sources counts for keys that are named: a program may name one
// after the other, and the source must not be asked for each. What such a key is not known to be is deleted as a whole.
const learnedFor = time.Second

// size is what a request takes of namedBytes.
func (r *request) size() (n int64) {
	for _, key := range r.keys {
		n += int64(len(key)) + namedCost
	}
	return n
}

// forgetAll has keys forgotten by name until ctx ends. What was asked for while it was busy is one unit of work.
func (a *answering) forgetAll(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(namedAtOnce)
	var sources []*operate.Learned
	var begun, learned time.Time
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case r := <-a.asked:
			_ = retry.Sleep(ctx, namedEach-time.Since(begun)) // with ctx all ends at once
			begun = time.Now()
			all := a.alsoAsked(r)
			var err error
			if sources == nil || time.Since(learned) > learnedFor {
				learned = time.Now()
				if sources, err = a.learn(ctx, ""); err != nil {
					sources = nil
				}
			}
			known := sources
			g.Go(func() error {
				if err == nil {
					err = a.forgetNow(ctx, known, all)
				}
				for _, r := range all {
					a.named.Add(-r.size())
					r.done <- err
				}
				return nil
			})
		}
	}
}

// alsoAsked returns a request and all that wait with it.
func (a *answering) alsoAsked(r request) []request {
	all := []request{r}
	for {
		select {
		case r := <-a.asked:
			all = append(all, r)
		default:
			return all
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
	r := request{keys, done}
	if a.named.Add(r.size()) > namedBytes {
		a.named.Add(-r.size())
		return 0, errors.New("too many keys that were named before are not finished: try again once they are, " +
			"`freshet status` says what they wait for")
	}
	select {
	case a.asked <- r:
		select {
		case err := <-done:
			return len(keys), err
		case <-ctx.Done():
		}
		return 0, fmt.Errorf("not finished within %s: it goes on, and `freshet status` says what it waits for", patience)
	case <-ctx.Done():
		a.named.Add(-r.size())
		return 0, errors.New("not begun: freshet is starting, or stopping, or is busy with keys that were named before: try " +
			"again")
	}
}

// forgetNow does the work of forget: each source's keys as the source's mappings say, and the rest with those of the
// first.
func (a *answering) forgetNow(ctx context.Context, sources []*operate.Learned, all []request) error {
	var tasks []scope.Task
	for _, l := range sources {
		keys, err := keyspace.New(l.Mappings, l.Tables, a.prefix)
		if err != nil {
			return err
		}
		tasks = append(tasks, scope.Task{
			Keys: keys, Source: l.Source, Progress: &scope.Progress{}, Newest: a.newest(l.Source),
		})
	}
	of := make([][]string, len(tasks))
	add := func(key string) {
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
	for _, r := range all {
		for _, key := range r.keys {
			add(key)
		}
	}
	var err error
	for i, t := range tasks {
		if len(of[i]) > 0 {
			err = errors.Join(err, a.scope.Forget(ctx, t, of[i]))
		}
	}
	return err
}
