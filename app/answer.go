package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router/keyspace"
)

// answering answers doubts: it has Redis forget all keys that may be stale, and dismisses what it has answered. One
// scope answers all doubts that are there when it begins.
type answering struct {
	doubts *doubt.Book
	scope  *scope.Scope
	keys   *operate.Keys
	// visible returns the newest version of a source that everybody is known to see.
	visible func(source string) (v event.Version, ok bool)
	// finished returns up to which version of the source everything is finished.
	finished func() event.Version
	source   string

	// asked are the requests by name that are under way.
	asked chan request

	// held returns how many keys are parked.
	held func() (retry.Held, error)
	redo *redoing
	mu   sync.Mutex
	// scoped are the doubts of which the binlog does not hold the changes any more, with when each came last: a scope
	// answers them.
	scoped map[string]time.Time
}

// buildAnswering has the doubts answered that come up in a reading, and about its Redis.
func (p *process) buildAnswering(r *reading, d *deleting) error {
	options, err := connect.RedisOptions(p.config)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	p.later("the scopes' redis", client.Close)
	s, err := scope.New(scope.Deps{Redis: scope.Single{Client: client}, Serve: d.engine.Serve, Log: p.options.Log},
		scope.Options{Rate: p.config.ScopeRate, Prefix: p.config.Redis.KeyPrefix})
	if err != nil {
		return err
	}
	a := &answering{
		doubts: p.doubts, scope: s, keys: r.keys, visible: d.engine.Visible,
		finished: r.finished, source: p.config.Source.Name, asked: make(chan request),
		held:   d.letters.Held,
		redo:   &redoing{shared: p.shared, live: r, serve: d.engine.Serve, take: s.Take},
		scoped: map[string]time.Time{},
	}
	d.alongside = append(d.alongside, a.run, r.definitions.run)
	p.answers.Store(a)
	return nil
}

// request is keys that an operator names.
type request struct {
	keys []string
	done chan<- error // has room
}

// byItself reports whether doubts of a cause are answered without being asked: those of which the keys are known to be
// stale, or may be, once and for all. Where the trouble lasts it has to be ended first, and what may empty a cache that
// is right for the most part is for an operator to decide.
func byItself(cause alarm.Kind) bool {
	switch cause {
	case alarm.TruncatedTable, alarm.StatementLogged, alarm.DefinitionChanged, alarm.XAKeysUnknown, alarm.XAUnread,
		alarm.RedisChanged, alarm.ByHand:
		return true
	}
	return false
}

const (
	// looksEach is how often it is looked whether there is anything to answer: what comes within it is answered together.
	looksEach = time.Second
	// finishedEach is how often it is looked whether older changes are finished.
	finishedEach = 100 * time.Millisecond
	// restsFor is how many times as long as a scope went through Redis none follows.
	restsFor = 4
)

// run answers doubts, and has keys forgotten by name, until ctx ends.
func (a *answering) run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return a.answerAll(ctx) })
	g.Go(func() error { return a.redoAll(ctx) })
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

// answerAll answers doubts until ctx ends. Where the engine fails, it says so itself.
func (a *answering) answerAll(ctx context.Context) error {
	wait := looksEach
	for retry.Sleep(ctx, wait) == nil {
		wait = looksEach
		if due := a.due(); len(due) > 0 && a.marked() {
			busy, err := a.answer(ctx, due)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("answer doubts: %w", err)
			}
			wait = max(wait, min(restsFor*busy, time.Hour))
		}
	}
	return nil
}

// marked reports whether a mark of the source has come: before, nothing is known of what everybody can see.
func (a *answering) marked() bool {
	_, ok := a.visible(a.source)
	return ok
}

// newest returns the newest version that everybody is known to see.
func (a *answering) newest() event.Version {
	v, _ := a.visible(a.source)
	return v
}

// open returns the doubts that are being answered, or will be.
func (a *answering) open() []doubt.Doubt {
	return slices.DeleteFunc(a.doubts.List(), func(d doubt.Doubt) bool {
		return !byItself(d.Cause) && !d.Asked || d.Stuck || d.Source != "" && d.Source != a.source
	})
}

// due returns the doubts that one scope can answer now: one that is about some templates or keys only is answered
// alone.
func (a *answering) due() []doubt.Doubt {
	due := slices.DeleteFunc(a.open(), a.byRedo)
	alone := func(d doubt.Doubt) bool { return d.Pattern != "" || len(d.Templates) > 0 }
	if i := slices.IndexFunc(due, alone); i >= 0 {
		return due[i : i+1]
	}
	return due
}

// answer answers doubts by one scope, and returns for how long that went through Redis. It fails only with ctx, or when
// the engine does.
func (a *answering) answer(ctx context.Context, due []doubt.Doubt) (busy time.Duration, err error) {
	say := func(format string, args ...any) {
		for _, d := range due {
			a.doubts.Say(d.ID, fmt.Sprintf(format, args...))
		}
	}
	keys, err := a.keys.InDoubt(ctx, due...)
	if err != nil {
		say("it cannot be answered yet: %v", err)
		return 0, nil
	}
	var progress scope.Progress
	done := make(chan error, 1)
	t := scope.Task{
		Keys: keys, Source: a.source, At: latest(due), Progress: &progress,
		Newest:   a.newest,
		Finished: func(ctx context.Context) error { return a.await(ctx, latest(due)) },
	}
	operate.Narrow(&t, &due[0])
	if len(keys.Targets()) == 0 {
		done <- nil
	} else {
		go func() { done <- a.scope.Run(ctx, t) }()
	}
	ticker := time.NewTicker(looksEach)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			say("%s", sentence(&progress))
			continue
		case err = <-done:
		}
		break
	}
	busy = time.Duration(progress.Busy.Load())
	if err != nil {
		return busy, err
	}
	for _, d := range due {
		if err := a.finish(ctx, d, keys); err != nil {
			return busy, err
		}
	}
	return busy, nil
}

// await waits until everything up to a version is finished.
func (a *answering) await(ctx context.Context, v event.Version) error {
	for a.finished().Compare(v) < 0 {
		if err := retry.Sleep(ctx, finishedEach); err != nil {
			return err
		}
	}
	return nil
}

// finish dismisses a doubt that was answered, unless some of its keys could not be looked for.
func (a *answering) finish(ctx context.Context, d doubt.Doubt, keys *keyspace.Keyspace) error {
	if b := operate.BlindTo(&d, keys); b != nil {
		a.doubts.Stuck(d.ID, fmt.Sprintf("not all of its keys can be looked for: %s; or clear the others yourself, and "+
			"`freshet doubts dismiss %s`", b, d.ID))
		return nil
	}
	return a.dismiss(ctx, &d)
}

// dismiss dismisses a doubt that was answered.
func (a *answering) dismiss(ctx context.Context, d *doubt.Doubt) error {
	err := a.doubts.Dismiss(ctx, d.ID, d.Last)
	switch {
	case errors.Is(err, doubt.ErrCameAgain):
		a.doubts.Say(d.ID, "it has come again since it was answered: once more")
	case errors.Is(err, doubt.ErrUnknown): // somebody was quicker
	case err != nil:
		return err
	}
	return nil
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

// forgetNow does the work of forget.
func (a *answering) forgetNow(ctx context.Context, keys []string) error {
	all, err := a.keys.All(ctx)
	if err != nil {
		return err
	}
	return a.scope.Forget(ctx, scope.Task{
		Keys: all, Source: a.source, Progress: &scope.Progress{},
		Newest: a.newest,
	}, keys)
}

// latest returns the last place in the binlog that a doubt is about.
func latest(due []doubt.Doubt) (at event.Version) {
	for _, d := range due {
		if d.At.Compare(at) > 0 {
			at = d.At
		}
	}
	return at
}

// sentence says how far a scope has come.
func sentence(p *scope.Progress) string {
	all := p.Keys.Load()
	looked := fmt.Sprintf("%d of about %d keys looked at, %d forgotten", min(p.Looked.Load(), all), all, p.Found.Load())
	if trouble := p.Trouble.Load(); trouble != nil {
		return fmt.Sprintf("being answered, and waiting for redis (%v): %s", *trouble, looked)
	}
	switch p.Stage.Load() {
	case scope.StageFirst:
		return "being answered, first of two passes over redis: " + looked
	case scope.StageSettling:
		return fmt.Sprintf("being answered: %d keys forgotten; the second pass begins once slow readers are over, and older "+
			"changes are finished", p.Found.Load())
	case scope.StageSecond:
		return "being answered, second of two passes over redis: " + looked
	}
	return "about to be answered"
}
