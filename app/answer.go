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
	// marked is as in [walking].
	marked func(ctx context.Context, source string) (event.Version, error)
	// finished waits until everything is finished up to the last place that doubts are about. It hands what it waits for
	// to say, in half a sentence. It fails only with ctx.
	finished func(ctx context.Context, due []doubt.Doubt, say func(waitsUntil string)) error
	// spread returns over how many partitions the keys of a source have been spread. nil: nothing is.
	spread func(ctx context.Context, source string) (operate.Spread, error)
	prefix string
	log    *slog.Logger
	// shared: other processes hear of what is stuck here.
	shared bool

	// asked takes requests by name, and named is what those take that are not finished, in bytes.
	asked chan request
	named atomic.Int64

	// live is what reads the source, and held returns how many keys are parked: for the stamp of the one process that
	// there is with the embedded log.
	live *reading
	held func() (retry.Held, error)
	// redo does changes again; nil: none of the doubts that are answered here is about that.
	redo redoer
	// walks returns what reads the rows of a source, or says why nothing does here.
	walks func(source string) (*walking, error)
	// together waits until all processes that share a Redis work on the same one, before a doubt about that ends. nil:
	// there is one process.
	together func(ctx context.Context, d *doubt.Doubt) error
	// given keeps what is answered; nil with the embedded log, where all is read again.
	given *trail

	// rested is until when no scope follows the one before.
	rested time.Time

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
	a.mine = func(*doubt.Doubt) bool { return true } // there is one source, also under a name that it had before
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
	d.alongside = append(d.alongside, a.run, warming.follow, warming.runAll, r.definitions.run, r.healAll)
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
	// looksAgainEach is how often it is looked whether the keys of a doubt that is stuck can be looked for by now.
	looksAgainEach = 30 * time.Second
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

// answerAll answers doubts until ctx ends. Where the engine fails, it says so itself.
func (a *answering) answerAll(ctx context.Context) error {
	looked := time.Now()
	for retry.Beat(ctx, looksEach) == nil {
		if time.Since(looked) >= looksAgainEach {
			a.lookAgain(ctx)
			looked = time.Now()
		}
		if err := a.answerDue(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("answer doubts: %w", err)
		}
	}
	return nil
}

// lookAgain has doubts answered that were stuck since not all of their keys could be looked for, and can be by now: the
// columns of a table are known, or another source has the keys.
func (a *answering) lookAgain(ctx context.Context) {
	for _, d := range a.doubts.List() {
		if !d.Stuck || !wanted(&d) || !a.mine(&d) || a.byRedo(d) || a.byWalk(d) {
			continue
		}
		sources, err := a.learn(ctx, known(&d))
		var parts []*part
		for _, l := range sources {
			if err != nil {
				break
			}
			var p *part
			p, err = a.part(ctx, l, []doubt.Doubt{d})
			parts = append(parts, p)
		}
		blind := func(p *part) bool { return operate.BlindTo(&d, p.keys) != nil }
		if err == nil && a.unknown(&d, parts) == "" && !slices.ContainsFunc(parts, blind) {
			a.doubts.Resume(d)
		}
	}
}

// answerDue answers the doubts that one scope can answer now, or says of them that it rests after the one before. It
// fails only with ctx, or when the engine does.
func (a *answering) answerDue(ctx context.Context) error {
	due := a.due()
	if len(due) == 0 {
		return nil
	}
	if left := time.Until(a.rested); left > 0 {
		for _, d := range due {
			a.doubts.Say(d.ID, fmt.Sprintf("it is answered in %s: after an answer freshet rests for %d times as long as that "+
				"took", left.Round(time.Second), restsFor))
		}
		return nil
	}
	busy, err := a.answer(ctx, due)
	a.rested = time.Now().Add(min(restsFor*busy, time.Hour))
	return err
}

// wanted reports whether a doubt is answered.
func wanted(d *doubt.Doubt) bool { return d.Asked || byItself(d.Cause) }

// open returns the doubts that are being answered, or will be.
func (a *answering) open() []doubt.Doubt {
	return slices.DeleteFunc(a.doubts.List(), func(d doubt.Doubt) bool {
		return !wanted(&d) || d.Stuck || !a.mine(&d)
	})
}

// due returns the doubts that one scope can answer now: one that is about a pattern is answered alone, one about some
// templates with others about templates of the same tables, and those about lost records of some partitions are
// together, after the others.
func (a *answering) due() []doubt.Doubt {
	due := slices.DeleteFunc(a.open(), func(d doubt.Doubt) bool { return a.byRedo(d) || a.byWalk(d) })
	narrow := func(d doubt.Doubt) bool {
		return d.Pattern != "" || len(d.Templates) > 0 || known(&d) != d.Source
	}
	if i := slices.IndexFunc(due, narrow); i >= 0 {
		first := due[i]
		return slices.DeleteFunc(due, func(d doubt.Doubt) bool { return d.ID != first.ID && !alike(&first, &d) })
	}
	lost := func(d doubt.Doubt) bool { return d.Lost != nil }
	if slices.ContainsFunc(due, func(d doubt.Doubt) bool { return !lost(d) }) {
		return slices.DeleteFunc(due, lost)
	}
	return due
}

// alike reports whether two doubts are about templates of the same tables, and nothing else tells their keys apart.
func alike(a, b *doubt.Doubt) bool {
	some := func(d *doubt.Doubt) bool { return len(d.Templates) > 0 && d.Pattern == "" && d.Lost == nil }
	return some(a) && some(b) && known(a) == known(b) && slices.Equal(a.Tables, b.Tables) &&
		slices.Equal(a.Schemas, b.Schemas)
}

// known returns the source whose mappings say what the keys of a doubt are; "": those of all do. The reader of another
// database that was given the name of a source has mappings of its own, and a name of its own by now.
func known(d *doubt.Doubt) string {
	if d.Cause == alarm.SourceShared {
		return ""
	}
	return d.Source
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
	sources, err := a.learn(ctx, known(&due[0]))
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
		if a.marked != nil {
			if p.heard, err = a.marked(ctx, l.Source); err != nil {
				say("it cannot be answered yet: the brokers do not say what everybody can see: %v", err)
				return 0, nil
			}
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
	if why := a.unknown(&d, parts); why != "" {
		a.doubts.Stuck(d, why)
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

// unknown says why nobody knows which keys a doubt is about; "": it is known. Those of another database that was given
// the name of a source are not known by what is read under that name: the mappings may be the same, and its tables, and
// what their columns hold, are others.
func (a *answering) unknown(d *doubt.Doubt, parts []*part) string {
	var mappings []*router.Mapping
	other := a.shared && d.Cause == alarm.SourceShared
	for _, p := range parts {
		if !other || p.Source != d.Source {
			mappings = append(mappings, p.Mappings...)
		}
	}
	t := operate.Unmapped(d, mappings)
	switch {
	case other && len(d.Templates) == 0:
		return fmt.Sprintf("which keys the mappings of the other database have was not recorded: if its reader read under "+
			"a source.name of its own when this was answered they are forgotten, else clear them; then `freshet doubts "+
			"dismiss %s`", d.ID)
	case other && t != "":
		return fmt.Sprintf("no source but %s has the key %s, so freshet does not know the keys of the other database: "+
			"give that a source.name of its own, start its reader, and `freshet doubts answer %s`; or delete them in Redis, "+
			"and `freshet doubts dismiss %s`", d.Source, t, d.ID, d.ID)
	case t != "":
		return fmt.Sprintf("no mapping has the key %s any more, so freshet does not know its keys: delete them in "+
			"Redis, and `freshet doubts dismiss %s`", t, d.ID)
	}
	return ""
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
	if a.together != nil && d.Cause == alarm.RedisChanged {
		if err := a.together(ctx, d); err != nil {
			return err
		}
	}
	kept := false
	return settle.Do(ctx, func() error {
		if !kept {
			if a.given != nil { // the next member may have given others, if this one was stopped meanwhile
				if err := a.doubts.Refresh(ctx); err != nil {
					return err
				}
			}
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
