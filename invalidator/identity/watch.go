package identity

import (
	"context"
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

// Deps are what a [Watch] works with. Redis, Facts and Doubts are required.
type Deps struct {
	// Redis is asked who it is, once a second. Its connections should be new ones: an old one may lead to a server that
	// is not the one any more.
	Redis redis.Cmdable
	// Moved is called when another server answers than before, and returns once nothing goes to that one any more: what
	// it acknowledges later would be in no doubt. nil: nobody needs to know.
	Moved func()
	// Answered returns when a command was sent that Redis has answered, over any connection that was looked at; zero: none
	// was. It must not block. nil: nobody knows.
	Answered func() time.Time
	// Place returns up to where in the log everything is finished, in the form of [doubt.Doubt].From; false if that is
	// not to be stamped now, because keys of before that place may still be stale. It must not block. nil: Redis gets no
	// stamp.
	Place func() (place string, ok bool)
	// Leads reports whether this process moves the stamp, of several that share a Redis. It must not block. nil: there
	// are no others.
	Leads func() bool
	// Name returns what tells the stamp from those of others: the same in all processes that share it. nil: it is drawn,
	// and kept with who Redis was.
	Name func(ctx context.Context) (string, error)
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
	// Window is how far back keys may be stale at least when Redis has changed; 0: as far as its stamp says.
	Window time.Duration
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

	stamp stamp

	mu sync.Mutex
	// answers wait to be compared: the last of each server.
	answers []seen
	// on is what On returns.
	on string
	// unlooked says that a connection was used before it was known who Redis was, so that nobody has looked at it.
	unlooked bool
	// mute is set once it was said that Redis does not say who it is.
	mute bool
	// heard is when a new connection last led to a Redis that takes writes, and unheard why none has since.
	heard   time.Time
	unheard error
}

// seen is a server that answered at a time.
type seen struct {
	server
	// asked is when it was asked, and at when it answered.
	asked, at time.Time
	// worked is when the server before was last at work, before this one was used.
	worked time.Time
	// stamp is the one that it held.
	stamp found
}

// maxSeen is how many answers of different servers wait to be compared: more than one address has.
const maxSeen = 16

// New returns a watch. It asks nothing before [Watch.Run].
func New(d Deps, o Options) (*Watch, error) {
	if d.Redis == nil || d.Facts == nil || d.Doubts == nil {
		return nil, errors.New("identity: needs a Redis, facts and doubts")
	}
	if d.Alarms == nil {
		d.Alarms = (*alarm.Board)(nil)
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Moved == nil {
		d.Moved = func() {}
	}
	return &Watch{
		deps: d, options: o, news: make(chan struct{}, 1), stamp: stamp{leads: d.Leads == nil}, heard: time.Now(),
		unheard: errors.New("none was tried"),
	}, nil
}

// unheardFor is for how long no look may come about before it counts: each takes up to two seconds.
const unheardFor = 5 * time.Second

// Unheard returns since when no new connection has led to a Redis that answers and takes writes, and why; zero: one has
// lately. Older connections may go on answering meanwhile, and lead to a server that has been replaced.
func (w *Watch) Unheard() (since time.Time, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.heard) <= unheardFor {
		return time.Time{}, nil
	}
	return w.heard, w.unheard
}

// hears takes note of whether a connection of Run's own led to a Redis that takes writes.
func (w *Watch) hears(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unheard = err; err == nil {
		w.heard = time.Now()
	}
}

// Look asks Redis who it is, and which stamp it holds, over c: a new connection, before it is used. What it answers is
// compared by [Watch.Run]. It fails if no answer came, or only half of one: the connection must not be used then, since
// the answer may come yet, and would be taken for that to somebody else's command.
//
// That c leads to a Redis which takes writes does not say that no other one has its place: where sentinels say where it
// is, a connection that is needed is made by what any of them says.
func (w *Watch) Look(ctx context.Context, c redis.Cmdable) error {
	_, err := w.look(ctx, c)
	return err
}

// look is Look. It also returns why c does not lead to a Redis that takes writes; nil: it does.
func (w *Watch) look(ctx context.Context, c redis.Cmdable) (why, err error) {
	began := time.Now()
	key, before, named := w.asked()
	if !named { // what it says would be half of the truth
		w.mu.Lock()
		w.unlooked = true // it is left once it is known who Redis was
		w.mu.Unlock()
		if key, before, named = w.asked(); !named {
			return nil, nil
		}
	}
	var answer redis.Error
	if key == "" {
		info, err := c.Info(ctx).Result()
		if why = w.answered(began, info, err, found{}); errors.As(err, &answer) {
			err = nil
		}
		return why, err
	}
	pipe := c.Pipeline()
	info, held := pipe.Info(ctx), pipe.Get(ctx, key)
	_, _ = pipe.Exec(ctx) // each has its own error
	err = info.Err()
	if err == nil && (redis.HasErrorPrefix(held.Err(), "CLUSTERDOWN") || redis.HasErrorPrefix(held.Err(), "MOVED")) {
		return nil, nil // it does not know yet what it has to serve: its stamp would be missing from what it says
	}
	if lost := held.Err(); err == nil && lost != nil && !errors.As(lost, &answer) {
		err = lost // only half of the answer came: it is asked again
	}
	w.refused(key, held.Err())
	stamp := w.stamp.find(before, held.Val(), held.Err())
	if err == nil && stamp.is == absent && before.text != "" {
		stamp.swapped, err = hasSwapped(ctx, c)
	}
	why = w.answered(began, info.Val(), err, stamp)
	if errors.As(err, &answer) {
		err = nil
	}
	return why, err
}

// answered takes what Redis has answered that was asked at a time. It returns why that is no Redis that takes writes;
// nil: it is one.
func (w *Watch) answered(asked time.Time, info string, err error, held found) (why error) {
	s, ok := parse(info, w.options.DB)
	var refused redis.Error
	switch {
	case errors.As(err, &refused) && retry.ClassifyRedis(err) != retry.None, err == nil && !ok:
		w.silent(err)
		return nil
	case err != nil:
		return err
	}
	switch { // what it holds may still change, and nobody may write to it
	case s.loading:
		return errors.New("the server there is still loading its data")
	case s.replica:
		return errors.New("the server there is a replica")
	}
	is := seen{server: s, asked: asked, at: time.Now(), stamp: held}
	if w.deps.Answered != nil {
		is.worked = w.deps.Answered()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on != "" && w.on != s.run {
		w.on = notSure // before the connection is used
	}
	if n := len(w.answers); n > 0 && w.answers[n-1].run == s.run && w.answers[n-1].repl == s.repl {
		is.worked = w.answers[n-1].worked // by now it may be this one that is at work
		w.answers[n-1] = is
	} else if n < maxSeen {
		w.answers = append(w.answers, is)
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
	return nil
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
	due := time.NewTimer(retry.ToBeat(asks))
	defer due.Stop()
	for {
		for _, s := range w.take() {
			if was, err = w.compare(ctx, was, s); err != nil {
				return nil //nolint:nilerr // ctx ended
			}
			w.worksOn(was.Run)
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
		case <-due.C:
			due.Reset(retry.ToBeat(asks))
			asked, cancel := context.WithTimeout(ctx, 2*asks)
			w.renew(asked, was, "")
			why, _ := w.look(asked, w.deps.Redis)
			w.hears(why)
			cancel()
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
	is := known{Run: s.run, Repl: s.repl, Seen: s.at, Place: w.options.place(), Stamp: was.Stamp}
	if was.Run == "" {
		w.stamp.confirm(s.stamp)
		return is, nil
	}
	if is.Run != was.Run {
		w.deps.Moved() // first: the doubt is about all that was acknowledged before it
	}
	if was.Place != "" && was.Place != is.Place && s.keys > 0 {
		if err := w.moved(ctx, was.Place); err != nil {
			return is, err
		}
	}
	why := suspicion(was.until(s), s.server, s.at)
	switch {
	case why == "" && s.stamp.is == another && w.stamp.known() == s.stamp.before: // else asked before that was found
		why = "the stamp that freshet keeps in it is an older one"
	case why == "" && s.stamp.swapped && s.keys > 0 && w.stamp.known() == s.stamp.before:
		why = "the stamp that freshet keeps in it is gone, and its databases have been swapped (SWAPDB)"
	case why == "":
		if is.Run != was.Run {
			w.deps.Log.Info("redis is another server than before, and holds nothing of before", "address", w.options.Address,
				"keys", s.keys)
		}
		w.stamp.confirm(s.stamp)
		return is, nil
	}
	if err := w.doubt(ctx, why, s, w.lacks(was, s)); err != nil {
		return is, err
	}
	w.stamp.adopt(s.stamp) // durable first: nothing else says how old the data is
	return is, nil
}

// doubt records that keys may be back in a Redis. It fails only with ctx.
func (w *Watch) doubt(ctx context.Context, why string, s seen, lacks []lack) error {
	for _, l := range lacks {
		if err := w.deps.Doubts.Record(ctx, doubt.Doubt{
			Cause: alarm.RedisChanged, Source: w.options.Source, Group: w.options.Group, Subject: w.options.Address,
			From: l.from,
			Message: fmt.Sprintf("redis %s is not what it was: %s; it holds %d keys, and those that were deleted %s may be back",
				w.options.Address, why, s.keys, l.since),
		}); err != nil {
			return err
		}
	}
	return nil
}

// lack is from where on changes may not have reached a Redis, and the same in words; "" if that is not known.
type lack struct{ from, since string }

// lacks returns what a Redis may lack.
//
// What the operator says about the time comes on top of what the stamp says: data may be older than that, and what was
// finished within it may be a change of long before, from a backlog or from keys in trouble. The stamp knows of both.
func (w *Watch) lacks(was known, s seen) (all []lack) {
	if w.options.Window > 0 {
		from := was.Seen.Add(-w.options.Window).UTC().Format(time.RFC3339)
		all = append(all, lack{from, "after " + from + " (redis.failover_window)"})
	}
	place := w.stamp.says(s.stamp.text)
	if s.stamp.is == absent || place == "" {
		if len(all) == 0 {
			all = append(all, lack{"", "before"})
		}
		return all
	}
	return append(all, lack{place, "after its data was saved or copied"})
}

// moved records that the keys are looked for in another place than before.
func (w *Watch) moved(ctx context.Context, from string) error {
	return w.deps.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RedisMoved, Source: w.options.Source, Group: w.options.Group, Subject: w.options.Address + ", " +
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
