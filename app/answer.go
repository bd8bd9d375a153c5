package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// answering answers doubts: it has Redis forget all keys that may be stale, and dismisses what it has answered. One
// scope answers all doubts that are there when it begins.
type answering struct {
	doubts *doubt.Book
	scope  *scope.Scope
	// mine reports whether a doubt is one of those that are answered here.
	mine func(d *doubt.Doubt) bool
	// ready says until when an answer to doubts has to wait, in half a sentence; "": it can begin. nil: it always can.
	ready func(ctx context.Context, due []doubt.Doubt) (waitsUntil string)
	// learn returns what is known of a source, or of all if it has no name: one at least.
	learn func(ctx context.Context, source string) ([]*operate.Learned, error)
	// visible returns the newest version of a source that everybody is known to see.
	visible func(source string) (v event.Version, ok bool)
	// finished waits until everything is finished up to the last place that doubts are about. It hands what it waits for
	// to say, in half a sentence. It fails only with ctx.
	finished func(ctx context.Context, due []doubt.Doubt, say func(waitsUntil string)) error
	// spread returns over how many partitions the keys of a source have been spread. nil: nothing is.
	spread func(ctx context.Context, source string) (operate.Spread, error)
	prefix string
	log    *slog.Logger
	// shared: other processes hear of what is stuck here.
	shared bool

	// asked are the requests by name that are under way.
	asked chan request

	// live is what reads the source, and held returns how many keys are parked: for the stamp of the one process that
	// there is with the embedded log.
	live *reading
	held func() (retry.Held, error)
	// redo does changes again; nil: none of the doubts that are answered here is about that.
	redo redoer
	// walks returns what reads the rows of a source, or says why nothing does here.
	walks func(source string) (*walking, error)
	// given keeps what is answered; nil with the embedded log, where all is read again.
	given *trail

	mu sync.Mutex
	// scoped are the doubts of which the log does not hold the changes any more, with when each came last: a scope answers
	// them.
	scoped map[string]time.Time
}

// buildAnswering has the doubts answered that come up in a reading, and about its Redis.
func (p *process) buildAnswering(r *reading, d *deleting) error {
	a, err := p.newAnswering(d)
	if err != nil {
		return err
	}
	a.mine = func(d *doubt.Doubt) bool { return d.Source == "" || d.Source == p.config.Source.Name }
	a.learn = func(ctx context.Context, _ string) ([]*operate.Learned, error) {
		l, err := r.keys.Learn(ctx, p.config.Source.Name)
		return []*operate.Learned{l}, err
	}
	a.finished = func(ctx context.Context, due []doubt.Doubt, _ func(string)) error {
		return await(ctx, r.finished, latest(due))
	}
	a.redo = &redoing{shared: p.shared, live: r, serve: d.engine.ServeGently, take: a.scope.Take, visible: a.visible}
	a.live, a.held = r, d.letters.Held
	w, err := p.newWalking(d, a.scope)
	if err != nil {
		return err
	}
	w.seen = r.definitions
	a.walks = func(string) (*walking, error) { return w, nil }
	warming := &warming{walking: w}
	p.warming.Store(warming)
	d.alongside = append(d.alongside, a.run, warming.follow, warming.runAll, r.definitions.run)
	p.answers.Store(a)
	return nil
}

// newAnswering makes what is the same in every process that has Redis.
func (p *process) newAnswering(d *deleting) (*answering, error) {
	deps := scope.Deps{Redis: d.searched(), Serve: d.engine.ServeGently, Log: p.options.Log}
	s, err := scope.New(deps, scope.Options{Rate: p.config.ScopeRate, Prefix: p.config.Redis.KeyPrefix})
	return &answering{
		doubts: p.doubts, scope: s, visible: d.engine.Visible, prefix: p.config.Redis.KeyPrefix, asked: make(chan request),
		log: p.options.Log, scoped: map[string]time.Time{},
	}, err
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
	case alarm.TruncatedTable, alarm.StatementLogged, alarm.RowsCascaded, alarm.DefinitionChanged, alarm.XAKeysUnknown,
		alarm.XAUnread, alarm.ColumnAbsent, alarm.BinlogGap, alarm.RedisChanged, alarm.ByHand:
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
	g.Go(func() error { return a.answerOrRedo(ctx) })
	g.Go(func() error { return a.forgetAll(ctx) })
	return g.Wait()
}

// answerOrRedo answers doubts until ctx ends.
func (a *answering) answerOrRedo(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return a.answerAll(ctx) })
	g.Go(func() error { return a.redoAll(ctx) })
	g.Go(func() error { return a.walkAll(ctx) })
	return g.Wait()
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

// answerAll answers doubts until ctx ends. Where the engine fails, it says so itself.
func (a *answering) answerAll(ctx context.Context) error {
	wait := looksEach
	for retry.Sleep(ctx, wait) == nil {
		wait = looksEach
		if due := a.due(); len(due) > 0 {
			busy, err := a.answer(ctx, due)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("answer doubts: %w", err)
			}
			wait = max(wait, min(restsFor*busy, time.Hour))
		}
	}
	return nil
}

// wanted reports whether a doubt is answered.
func wanted(d *doubt.Doubt) bool { return d.Asked || byItself(d.Cause) }

// open returns the doubts that are being answered, or will be.
func (a *answering) open() []doubt.Doubt {
	return slices.DeleteFunc(a.doubts.List(), func(d doubt.Doubt) bool {
		return !wanted(&d) || d.Stuck || !a.mine(&d)
	})
}

// due returns the doubts that one scope can answer now: one that is about some templates or keys only is answered
// alone, and those about lost records of some partitions are together, after the others.
func (a *answering) due() []doubt.Doubt {
	due := slices.DeleteFunc(a.open(), func(d doubt.Doubt) bool { return a.byRedo(d) || a.byWalk(d) })
	alone := func(d doubt.Doubt) bool { return d.Pattern != "" || len(d.Templates) > 0 }
	if i := slices.IndexFunc(due, alone); i >= 0 {
		return due[i : i+1]
	}
	lost := func(d doubt.Doubt) bool { return d.Lost != nil }
	if slices.ContainsFunc(due, func(d doubt.Doubt) bool { return !lost(d) }) {
		return slices.DeleteFunc(due, lost)
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
	if a.ready != nil {
		if until := a.ready(ctx, due); until != "" {
			say("before it is answered it waits until %s", until)
			return 0, nil
		}
	}
	sources, err := a.learn(ctx, due[0].Source)
	if err != nil {
		say("it cannot be answered yet: %v", err)
		return 0, nil
	}
	var parts []*part
	for _, l := range sources {
		p, err := a.part(ctx, l, due)
		if err != nil {
			say("it cannot be answered: %v", err)
			return 0, nil
		}
		if _, marked := a.visible(l.Source); !marked { // nothing is known of what everybody can see
			say("it is answered once the reader of source %s says what everybody can see", l.Source)
			return 0, nil
		}
		parts = append(parts, p)
	}
	for _, p := range parts {
		took, err := a.forgetIn(ctx, p, due, say)
		busy += took
		if err != nil {
			return busy, err
		}
	}
	if ended, err := a.forgetRows(ctx, parts, due, say); err != nil || !ended {
		return busy, err
	}
	for _, d := range due {
		if err := a.finish(ctx, d, parts); err != nil {
			return busy, err
		}
	}
	return busy, nil
}

// part is what doubts are about in the keys of one source.
type part struct {
	operate.Learned
	keys *keyspace.Keyspace
	// lost are the partitions whose records are lost, if that is all that the doubts are about, and meant says which keys
	// these can be; nil: any.
	lost  []int
	meant func(key string) bool
	// forgotten is how many keys were.
	forgotten int64
}

// part returns what doubts are about in the keys of a source.
func (a *answering) part(ctx context.Context, l *operate.Learned, due []doubt.Doubt) (*part, error) {
	keys, err := l.InDoubt(a.prefix, due...)
	p := &part{Learned: *l, keys: keys}
	if err != nil || a.spread == nil || due[0].Lost == nil { // of those that are due together, all say it or none
		return p, err
	}
	spread, err := a.spread(ctx, l.Source)
	if err != nil {
		return nil, err
	}
	var lost []*doubt.Lost
	for _, d := range due {
		lost = append(lost, d.Lost)
		p.lost = append(p.lost, d.Lost.Partition)
	}
	slices.Sort(p.lost)
	p.lost = slices.Compact(p.lost)
	p.meant = spread.Holds(lost...)
	return p, nil
}

// newest returns the newest version of a source that everybody is known to see.
func (a *answering) newest(source string) func() event.Version {
	return func() event.Version {
		v, _ := a.visible(source)
		return v
	}
}

// forgetIn has all keys of a part forgotten, or as many as are by the time that all doubts are dismissed. It returns
// for how long that went through Redis.
func (a *answering) forgetIn(ctx context.Context, p *part, due []doubt.Doubt, say func(format string, args ...any),
) (busy time.Duration, err error) {
	if len(p.keys.Targets()) == 0 {
		return 0, nil
	}
	var progress scope.Progress
	var waits atomic.Pointer[string]
	t := scope.Task{
		Keys: p.keys, Meant: p.meant, Source: p.Source, At: latest(due), Progress: &progress, Newest: a.newest(p.Source),
		Finished: func(ctx context.Context) error {
			return a.finished(ctx, due, func(until string) { waits.Store(&until) })
		},
	}
	operate.Narrow(&t, &due[0])
	done := make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- a.scope.Run(running, t) }()
	ticker := time.NewTicker(looksEach)
	defer ticker.Stop()
	var meter event.Meter
	for {
		select {
		case now := <-ticker.C:
			if dismissed(a.doubts, due...) {
				cancel()
			}
			for _, d := range due {
				a.doubts.Reached(d.ID, sentence(&progress, waits.Load()), scoped(&meter, now, &progress))
			}
		case err = <-done:
			if running.Err() != nil {
				err = ctx.Err()
			}
			p.forgotten = progress.Found.Load()
			return time.Duration(progress.Busy.Load()), err
		}
	}
}

// dismissed reports whether none of the doubts is there any more: nobody waits for the answer.
func dismissed(book *doubt.Book, due ...doubt.Doubt) bool {
	there := book.List()
	return !slices.ContainsFunc(due, func(d doubt.Doubt) bool {
		return slices.ContainsFunc(there, func(o doubt.Doubt) bool { return o.ID == d.ID })
	})
}

// await waits until everything up to a version is finished.
func await(ctx context.Context, finished func() event.Version, v event.Version) error {
	for finished().Compare(v) < 0 {
		if err := retry.Sleep(ctx, finishedEach); err != nil {
			return err
		}
	}
	return nil
}

// finish dismisses a doubt that was answered, unless some of its keys could not be looked for.
func (a *answering) finish(ctx context.Context, d doubt.Doubt, parts []*part) error {
	var mappings []*router.Mapping
	for _, p := range parts {
		mappings = append(mappings, p.Mappings...)
	}
	if t := operate.Unmapped(&d, mappings); t != "" {
		a.doubts.Stuck(d, fmt.Sprintf("no mapping has the key %s any more, so freshet does not know its keys: delete them in "+
			"Redis, and `freshet doubts dismiss %s`", t, d.ID))
		return a.tell(ctx, d.ID)
	}
	forgotten := int64(0)
	for _, p := range parts {
		forgotten += p.forgotten
		if b := operate.BlindTo(&d, p.keys); b != nil {
			a.doubts.Stuck(d, fmt.Sprintf("not all of its keys can be looked for: %s; or clear the others yourself, and "+
				"`freshet doubts dismiss %s`", b, d.ID))
			return a.tell(ctx, d.ID)
		}
	}
	return a.dismiss(ctx, &d, fmt.Sprintf("%d keys%s forgotten, in two passes over redis", forgotten, ofPartitions(parts)))
}

// ofPartitions says in which partitions the keys of parts can have been, if not in any.
func ofPartitions(parts []*part) string {
	switch {
	case len(parts[0].lost) == 0:
		return ""
	case slices.ContainsFunc(parts, func(p *part) bool { return p.meant == nil }):
		return ", of any partition since it is not known over how many they were spread, were"
	}
	return fmt.Sprintf(" of partitions %s were", numbers(parts[0].lost))
}

// tell tells other processes that a doubt is stuck. It fails only with ctx.
func (a *answering) tell(ctx context.Context, id string) error {
	if !a.shared {
		return nil
	}
	loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}}
	return loop.Do(ctx, func() error { return a.doubts.TellStuck(ctx, id) })
}

// dismiss dismisses a doubt that was answered, as a sentence says.
func (a *answering) dismiss(ctx context.Context, d *doubt.Doubt, answer string) error {
	settle := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}, Reporter: &retry.Reporter{Failed: func(err error) {
		a.doubts.Say(d.ID, "it is answered, and that cannot be saved; trying again: "+err.Error())
	}}}
	kept := false
	return settle.Do(ctx, func() error {
		if !kept {
			if err := a.given.add(ctx, d); err != nil {
				return err
			}
			kept = true
		}
		err := a.doubts.Answered(ctx, d.ID, d.Last, answer)
		switch {
		case err == nil:
			a.log.Info("a doubt is answered", "doubt", d.ID, "cause", d.Cause, "answer", answer)
		case errors.Is(err, doubt.ErrCameAgain):
			a.doubts.Say(d.ID, "it has come again since it was answered: once more")
			return nil
		case errors.Is(err, doubt.ErrUnknown): // somebody was quicker
			return nil
		}
		return err
	})
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

// latest returns the last place in the binlog that a doubt is about.
func latest(due []doubt.Doubt) (at event.Version) {
	for _, d := range due {
		if d.At.Compare(at) > 0 {
			at = d.At
		}
	}
	return at
}

// scoped returns how far the two passes of a scope are; nil while it is between them.
func scoped(m *event.Meter, now time.Time, p *scope.Progress) *event.Progress {
	looked, all := min(p.Looked.Load(), p.Keys.Load()), p.Keys.Load()
	switch p.Stage.Load() {
	case scope.StageFirst:
		return m.Take(now, looked, 2*all)
	case scope.StageSecond:
		return m.Take(now, all+looked, 2*all)
	}
	return nil
}

// sentence says how far a scope has come, and until when it waits, if that is known.
func sentence(p *scope.Progress, waits *string) string {
	all := p.Keys.Load()
	looked := fmt.Sprintf("%d of about %d keys looked at, %d forgotten", min(p.Looked.Load(), all), all, p.Found.Load())
	if trouble := p.Trouble.Load(); trouble != nil {
		return fmt.Sprintf("being answered, and waiting for redis (%v): %s", *trouble, looked)
	}
	switch p.Stage.Load() {
	case scope.StageFirst:
		return "being answered, first of two passes over redis: " + looked
	case scope.StageSettling:
		if waits != nil && *waits != "" {
			return fmt.Sprintf("being answered: %d keys forgotten; before the second pass it waits until %s", p.Found.Load(),
				*waits)
		}
		return fmt.Sprintf("being answered: %d keys forgotten; the second pass begins once slow readers are over, and older "+
			"changes are finished", p.Found.Load())
	case scope.StageSecond:
		return "being answered, second of two passes over redis: " + looked
	}
	return "about to be answered"
}
