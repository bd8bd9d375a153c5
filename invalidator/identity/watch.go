package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// Deps are what a [Watch] works with. Ask, Facts and Doubts are required.
type Deps struct {
	// Ask returns Redis' INFO.
	Ask func(ctx context.Context) (string, error)
	// Facts keep who Redis was.
	Facts doubt.Facts
	// Doubts take a change. They return once it is durable.
	Doubts interface {
		Record(ctx context.Context, d doubt.Doubt) error
	}
	// Alarms may be nil: alarms are then logged.
	Alarms interface {
		Raise(k alarm.Kind, message string)
	}
	// Log may be nil: slog.Default().
	Log *slog.Logger
}

// Options of a [Watch].
type Options struct {
	// Address and DB are those of Redis: host:port, and the number of its database. Prefix is what all keys begin with.
	Address string
	DB      int
	Prefix  string
	// Source and Group say whose doubt a change is: see [doubt.Doubt]. One of them is empty.
	Source, Group string
}

// How often Redis is asked who it is, and how often what it said is kept though it is the same.
const (
	asks  = time.Second
	keeps = time.Minute
)

// Watch compares who Redis is with who it was.
type Watch struct {
	deps    Deps
	options Options
	news    chan struct{} // wakes Run; it holds one

	mu sync.Mutex
	// answers wait to be compared: the last of each server.
	answers []seen
	// mute is set once it was said that Redis does not say who it is.
	mute bool
}

// seen is a server that answered at a time.
type seen struct {
	server
	at time.Time
}

// maxSeen is how many answers of different servers wait to be compared: more than one address has.
const maxSeen = 16

// New returns a watch. It asks nothing before [Watch.Run].
func New(d Deps, o Options) (*Watch, error) {
	if d.Ask == nil || d.Facts == nil || d.Doubts == nil {
		return nil, errors.New("identity: needs a Redis, facts and doubts")
	}
	if d.Alarms == nil {
		d.Alarms = (*alarm.Board)(nil)
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	return &Watch{deps: d, options: o, news: make(chan struct{}, 1)}, nil
}

// Answered takes what a connection answered to INFO. It does not block. Of an error it is only asked whether Redis
// refuses to say: whether it is there is for others to find out.
func (w *Watch) Answered(info string, err error) {
	s, ok := parse(info, w.options.DB)
	var refused redis.Error
	switch {
	case errors.As(err, &refused) && retry.ClassifyRedis(err) != retry.None, err == nil && !ok:
		w.silent(err)
		return
	case err != nil, s.loading, s.replica:
		return // it is not back yet, or takes no writes: what it holds may still change
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.answers); n > 0 && w.answers[n-1].run == s.run && w.answers[n-1].repl == s.repl {
		w.answers[n-1] = seen{s, time.Now()}
	} else if n < maxSeen {
		w.answers = append(w.answers, seen{s, time.Now()})
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// silent says once that Redis does not say who it is.
func (w *Watch) silent(err error) {
	w.mu.Lock()
	said := w.mute
	w.mute = true
	w.mu.Unlock()
	if said {
		return
	}
	reason := "INFO lacks run_id or uptime_in_seconds"
	if err != nil {
		reason = "it refuses INFO: " + err.Error()
	}
	w.deps.Alarms.Raise(alarm.RedisUnknown,
		fmt.Sprintf("redis %s does not say who it is (%s): a restart from an old snapshot, or a failover, "+
			"will not be noticed; give the user in redis.username the right to INFO (ACL SETUSER)", w.options.Address, reason))
}

// Run asks Redis who it is, compares, and records what is in doubt, until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	was, err := w.load(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx ended
	}
	kept := was
	var other rival
	ticker := time.NewTicker(asks)
	defer ticker.Stop()
	for {
		for _, s := range w.take() {
			if was, err = w.compare(ctx, was, s); err != nil {
				return nil //nolint:nilerr // ctx ended
			}
			if was.Run != kept.Run || was.Repl != kept.Repl || was.Place != kept.Place || was.Seen.Sub(kept.Seen) >= keeps {
				if w.keep(ctx, was) {
					kept = was
				}
			}
		}
		select {
		case <-ctx.Done():
			w.last(was, kept)
			return nil
		case <-w.news:
		case <-ticker.C:
			asked, cancel := context.WithTimeout(ctx, 2*asks)
			w.Answered(w.deps.Ask(asked))
			cancel()
			if err := w.watchRival(ctx, &other, was, kept); err != nil {
				return nil //nolint:nilerr // ctx ended
			}
		}
	}
}

func (w *Watch) take() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.answers
	w.answers = nil
	return s
}

// compare records what is in doubt, and returns who Redis is known to be from now on. It fails only with ctx.
func (w *Watch) compare(ctx context.Context, was known, s seen) (known, error) {
	is := known{Run: s.run, Repl: s.repl, Seen: s.at, Place: w.options.place()}
	if was.Run == "" {
		return is, nil
	}
	if was.Place != "" && was.Place != is.Place && s.keys > 0 {
		if err := w.moved(ctx, was.Place); err != nil {
			return is, err
		}
	}
	why := suspicion(was, s.server, s.at)
	if why == "" {
		if is.Run != was.Run {
			w.deps.Log.Info("redis is another server than before, and holds nothing of before", "address", w.options.Address,
				"keys", s.keys)
		}
		return is, nil
	}
	return is, w.deps.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RedisChanged, Source: w.options.Source, Group: w.options.Group, Subject: w.options.Address,
		Message: fmt.Sprintf("redis %s is not what it was: %s; it holds %d keys, and those that were deleted shortly "+
			"before may be "+
			"back: empty the cache (FLUSHDB), or read the changes of that time again (freshet position set)", w.options.Address,
			why, s.keys),
	})
}

// moved records that the keys are looked for in another place than before.
func (w *Watch) moved(ctx context.Context, from string) error {
	return w.deps.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RedisChanged, Source: w.options.Source, Group: w.options.Group, Subject: w.options.Address + ", " +
			w.options.place(),
		Message: fmt.Sprintf("the keys in redis %s were those of %s, and now are those of %s: what is cached there already "+
			"was not deleted "+
			"for earlier changes, and what is left where it was is not deleted any more: clear both", w.options.Address, from,
			w.options.place()),
	})
}

// place says where in Redis the keys are.
func (o *Options) place() string {
	return fmt.Sprintf("redis.db %d with redis.key_prefix %q", o.DB, o.Prefix)
}

// fact is the name under which the identity is kept.
func (w *Watch) fact() string { return "redis/" + w.options.Source + w.options.Group }

// load returns who Redis was; nobody at the first start. It fails only with ctx.
func (w *Watch) load(ctx context.Context) (was known, err error) {
	loop := retry.Loop{Reporter: &retry.Reporter{Failed: func(err error) {
		w.deps.Alarms.Raise(alarm.StoreFailed, "it cannot be read which Redis this was, so a change of it goes unnoticed: "+
			err.Error())
	}}}
	err = loop.Do(ctx, func() error {
		text, err := w.deps.Facts.Fact(ctx, w.fact())
		if err == nil && text != nil {
			err = json.Unmarshal(text, &was)
		}
		return err
	})
	return was, err
}

// keep has the identity kept, and reports whether it is. What is not kept is tried again a second later.
func (w *Watch) keep(ctx context.Context, is known) bool {
	text, err := json.Marshal(is)
	if err == nil {
		err = w.deps.Facts.SetFact(ctx, w.fact(), text)
	}
	if err != nil && ctx.Err() == nil {
		w.deps.Alarms.Raise(alarm.StoreFailed,
			"it cannot be kept which Redis this is, so a change of it may be reported twice: "+err.Error())
	}
	return err == nil
}

// last keeps when Redis was seen last, at the end.
func (w *Watch) last(was, kept known) {
	if was.Seen.Equal(kept.Seen) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), asks)
	defer cancel()
	w.keep(ctx, was)
}
