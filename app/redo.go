package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// redoer does changes once more, one redo at a time. Their keys are forgotten; nothing is written.
type redoer interface {
	// ready reports whether a redo can begin.
	ready() bool
	// run has the keys forgotten of all changes that a doubt names, and returns how many there were. It returns early when
	// the doubt is dismissed. It fails with errNotInLog, with ctx, or if the engine does.
	run(ctx context.Context, d *doubt.Doubt) (keys int64, err error)
}

// redoing does the changes from a place in the binlog on once more, alongside the live stream: a second reader, from
// there to the end that the binlog has when it begins, whose keys go through the same engine as one more partition. So
// every promise about a key holds for them as well.
type redoing struct {
	*shared
	live  *reading
	serve func(ctx context.Context, p eventlog.Partition) error
	// take waits until so many keys more may be forgotten.
	take func(ctx context.Context, keys int) error
	// visible says whether a mark of the source has come.
	visible func(source string) (v event.Version, ok bool)
}

// errNotInLog says that the binlog does not hold the changes any more.
var errNotInLog = errors.New("the binlog does not hold these changes any more")

// ready implements redoer.
func (r *redoing) ready() bool {
	_, marked := r.visible(r.config.Source.Name)
	return marked
}

const (
	// redoPartition is the number of the partition that a redo is, in logs. No log has it.
	redoPartition = -2
	// redoSavesEach is how often it is saved how far a redo has come.
	redoSavesEach = time.Second
)

// byRedo reports whether a doubt is answered by doing changes again.
func (a *answering) byRedo(d doubt.Doubt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.redo != nil && d.From != "" && !d.Last.Equal(a.scoped[d.ID])
}

// beingRedone begins what is said of a doubt that is answered by doing changes again.
const beingRedone = "being answered, by doing the changes again: "

// redoAll answers the doubts about the changes from a place on, one after the other, until ctx ends.
func (a *answering) redoAll(ctx context.Context) error {
	if a.redo == nil {
		return nil
	}
	again := retry.Loop{Backoff: retry.Backoff{Min: time.Second, Max: time.Minute}}
	for retry.Beat(ctx, looksEach) == nil {
		due := slices.DeleteFunc(a.open(), func(d doubt.Doubt) bool { return !a.byRedo(d) })
		if len(due) == 0 || !a.redo.ready() {
			continue
		}
		d := &due[0]
		a.doubts.Say(d.ID, beingRedone+"about to begin")
		keys, err := a.redo.run(ctx, d)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			again.Succeeded()
			if err := a.askUnread(ctx, d); err != nil {
				return fmt.Errorf("answer doubts: %w", err)
			}
			done := fmt.Sprintf("%d keys forgotten, by doing the changes again", keys)
			if err := a.dismiss(ctx, d, done); err != nil {
				return fmt.Errorf("answer doubts: %w", err)
			}
		case errors.Is(err, errNotInLog) && d.Cause == alarm.ByHand:
			a.doubts.Stuck(*d, fmt.Sprintf("%v; have the keys forgotten in another way (`freshet invalidate`), and "+
				"`freshet doubts dismiss %s`", err, d.ID))
			if a.tell(ctx, d.ID) != nil {
				return nil
			}
		case errors.Is(err, errNotInLog):
			a.log.Warn("changes cannot be done again, so all keys that they may be about are forgotten",
				"doubt", d.ID, "error", err)
			a.mu.Lock()
			a.scoped[d.ID] = d.Last
			a.mu.Unlock()
		default:
			a.doubts.Say(d.ID, fmt.Sprintf("the changes cannot be done again: %v; trying again", err))
			if again.Wait(ctx, err) != nil {
				return nil
			}
		}
	}
	return nil
}

// askUnread has a scope answer what a redo could not read: rows of before a DDL, of which nobody knows the columns any
// more. The live stream has read them, so this is no trouble that lasts.
func (a *answering) askUnread(ctx context.Context, of *doubt.Doubt) error {
	for _, d := range a.doubts.List() {
		if d.Cause != alarm.EventUndecodable || !a.mine(&d) || d.Last.Before(of.Last) {
			continue
		}
		if err := a.doubts.Insist(ctx, d.ID); err != nil {
			return err
		}
	}
	return nil
}

// place returns up to where everything is finished, as freshet stamps it into Redis; false while keys of before may
// still be stale, since a Redis that comes back with this data has them again. It is asked while nothing is known to be
// wrong with Redis.
func (a *answering) place() (string, bool) {
	at := a.live.saved.Current() // first: what is in doubt is recorded before it is passed over
	if at.IsZero() || a.live.finished().IsZero() || a.hasLetters() || len(a.open()) > 0 {
		return "", false
	}
	text, err := json.Marshal(checkpoint.PlaceOf(&at))
	return string(text), err == nil
}

// hasLetters reports whether any key may be parked, or was given up. Its change is finished as far as the log goes, but
// is not in Redis: a dead letter that is replayed later would be undone by a Redis that comes back with what it held
// before.
func (a *answering) hasLetters() bool {
	held, err := a.held()
	return err != nil || !held.Counted || held.Parked+held.DeadLetters > 0
}

// redo is one that is under way.
type redo struct {
	source *canal.Canal
	reader reader
	log    *embedded.Log
	cp     *checkpoint.Checkpoint
	keys   again
	// extent is how long the binlog was when it began.
	extent canal.Extent
}

// run implements redoer.
func (r *redoing) run(ctx context.Context, d *doubt.Doubt) (keys int64, err error) {
	run, err := r.build(ctx, d)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var g errgroup.Group
	g.Go(func() error {
		run.source.Watch(watching, func(event.Mark) {}) // the engine has those of the live stream
		return nil
	})
	g.Go(func() error { return run.cp.Run(ctx, run.log.Durable(), checkpoint.SaverOptions{Every: redoSavesEach}) })
	g.Go(func() error {
		err := run.log.Consume(ctx, func(ctx context.Context, p eventlog.Partition) error {
			run.keys.Partition = p
			return r.serve(ctx, &run.keys)
		})
		if err == nil && !run.keys.finished() {
			err = errStopped
		}
		stopWatching()
		stop(err) // without it, to read on makes no sense
		return err
	})
	g.Go(func() error {
		report(watching, r.doubts, d, run, stop)
		return nil
	})
	err = run.reader.run(ctx)
	run.source.Close()
	if err != nil {
		stop(err)
	}
	run.log.Close()
	if others := g.Wait(); err == nil {
		err = others
	}
	if context.Cause(ctx) == errDismissed {
		return run.keys.taken.Load(), nil
	}
	if errors.Is(err, retry.ErrHalt) {
		err = fmt.Errorf("%w: %w", errNotInLog, err)
	}
	return run.keys.taken.Load(), err
}

var (
	// errStopped says that the engine was stopped before all keys were forgotten.
	errStopped = errors.New("the engine was stopped before all changes were done again")
	// errDismissed says that an operator has dismissed the doubt.
	errDismissed = errors.New("the doubt was dismissed")
)

// build makes a redo.
func (r *redoing) build(ctx context.Context, d *doubt.Doubt) (*redo, error) {
	o := r.source()
	at, err := r.begin(ctx, o, d)
	if err != nil {
		return nil, err
	}
	run := &redo{cp: checkpoint.New("the redo", redone{r, d}, checkpoint.Loaded{Position: at}), keys: again{take: r.take}}
	if run.log, err = embedded.NewLog(embedded.LogOptions{}); err != nil {
		return nil, err
	}
	if run.extent, err = canal.Measure(ctx, o); err != nil {
		return nil, err
	}
	troubles := &troubles{alarms: r.alarms, doubts: r.doubts, source: r.config.Source.Name, seen: r.live.definitions}
	route, err := router.New(r.config.Mappings, router.Options{Reporter: troubles})
	if err != nil {
		return nil, err
	}
	o.Follow = true                // it reads where the live stream does
	o.ServerID = 0                 // the one of the configuration is the live stream's
	o.FillFrom, o.FillLag = nil, 0 // it is the live stream's marks that count
	o.Term, o.UntilCaughtUp = r.live.saved.Term(), true
	connect.Routed(&o, route)
	o.Alarms, o.Doubts, o.Logger = r.alarms, r.doubts, r.options.Log
	if run.source, err = canal.New(o, troubles.binding(route.Bind), run.cp); err != nil {
		return nil, err
	}
	run.reader = reader{
		source: run.source, log: leftovers{run.log}, router: route, fresh: &freshness{}, name: o.Source, term: o.Term,
		xa: &xaMemory{store: noXA{}, alarms: r.alarms}, troubles: troubles, doubts: r.doubts, latency: latency.New(),
	}
	return run, nil
}

// begin returns where to begin: at the place of the doubt, or at the one that a redo for the same doubt has come to.
// The position has the epoch of the live stream, so that a change has the same version in both.
func (r *redoing) begin(ctx context.Context, o canal.Options, d *doubt.Doubt) (at event.Position, err error) {
	text := d.From
	if place := placeKept(ctx, r.facts, r.fact(), d); place != nil {
		text = string(place)
	}
	var place checkpoint.PositionJSON
	if json.Unmarshal([]byte(text), &place) == nil {
		if at, err = place.Position(); err != nil {
			return at, fmt.Errorf("%w: %w", errNotInLog, err)
		}
	} else if since, failed := time.Parse(time.RFC3339, text); failed != nil { // somebody else has written the stamp
		return at, fmt.Errorf("%w: %.100q is no place in it", errNotInLog, text)
	} else {
		at, err = canal.LocateSince(ctx, o, since)
	}
	if gap := (*canal.GapError)(nil); errors.As(err, &gap) || errors.Is(err, canal.ErrBeforeBinlog) {
		return at, fmt.Errorf("%w: %w", errNotInLog, err)
	}
	if err != nil {
		return at, err
	}
	now := r.live.saved.Current()
	if at.GTIDs.IsEmpty() && at.Server != now.Server {
		return at, fmt.Errorf("%w: it was that of another server", errNotInLog)
	}
	if at.Epoch != 0 && at.Epoch != now.Epoch && at.Server == now.Server {
		// Its binlog may have begun again, with the same names of files and the same GTIDs.
		return at, fmt.Errorf("%w: the position was set, or the source failed over and back, since", errNotInLog)
	}
	at.Raise(now.Server, now.Epoch)
	return at, nil
}

// fact is the name under which it is kept how far a redo has come.
func (r *redoing) fact() string { return "redo/" + r.config.Source.Name }

// reached is how far the redo or the walk for a doubt has come, since that came last.
type reached struct {
	Doubt string          `json:"doubt"`
	Last  time.Time       `json:"last"`
	Place json.RawMessage `json:"place"`
}

// placeKept returns how far the answer to a doubt has come, as it was kept under a name; nil: nothing is known.
func placeKept(ctx context.Context, facts doubt.Facts, name string, d *doubt.Doubt) json.RawMessage {
	var p reached
	text, err := facts.Fact(ctx, name)
	if err != nil || text == nil || json.Unmarshal(text, &p) != nil || p.Doubt != d.ID || !p.Last.Equal(d.Last) {
		return nil
	}
	return p.Place
}

// keepPlace keeps that.
func keepPlace(ctx context.Context, facts doubt.Facts, name string, d *doubt.Doubt, place any) error {
	at, err := json.Marshal(place)
	if err != nil {
		return err
	}
	text, err := json.Marshal(reached{d.ID, d.Last, at})
	if err != nil {
		return err
	}
	return facts.SetFact(ctx, name, text)
}

// redone keeps how far a redo has come. It implements [checkpoint.Storage].
type redone struct {
	*redoing
	doubt *doubt.Doubt
}

// WritePosition implements [checkpoint.Storage].
func (r redone) WritePosition(w checkpoint.Write) error {
	return keepPlace(context.Background(), r.facts, r.fact(), r.doubt, checkpoint.PlaceOf(&w.Position))
}

// WriteMappings implements [checkpoint.Storage].
func (redone) WriteMappings(string) error { return nil }

// reached returns how many keys were forgotten. In all there are as many more as there are bytes in the binlog.
func (r *redo) reached() (done, of, keys int64) {
	keys = r.keys.taken.Load()
	if first, newest := r.keys.first.Load(), r.keys.newest.Load(); newest != nil {
		of = event.AllAt(r.extent.Share(*first, *newest), keys)
	}
	return keys, of, keys
}

// sentence says how far a redo is; "": there is nothing new to say.
func (r *redo) sentence() string {
	s := r.source.Stats()
	if s.Committed.IsZero() {
		return ""
	}
	return fmt.Sprintf("%sat the changes of %s, %s, %d keys forgotten", beingRedone,
		s.Committed.UTC().Format(time.RFC3339), written(s.File, s.Pos), r.keys.taken.Load())
}

// underWay is a redo that says how far it is: in a sentence, "" for nothing new, and how much is done of how much, 0
// for not known, and how many keys that were.
type underWay interface {
	sentence() string
	reached() (done, of, keys int64)
}

// report says of a doubt how far its redo is, until ctx ends, or the doubt is dismissed: it calls stop with
// errDismissed. That drops what is between its first and its final action. No other change relies on that final action:
// what is done again is a leftover, which leaves the version of the key's own change. A scope is dropped in this way
// too.
func report(ctx context.Context, book *doubt.Book, d *doubt.Doubt, is underWay, stop context.CancelCauseFunc) {
	var meter event.Meter
	for retry.Sleep(ctx, looksEach) == nil {
		if dismissed(book, *d) {
			stop(errDismissed)
			return
		}
		done, of, keys := is.reached()
		p := meter.Take(time.Now(), done, of)
		p.Keys = keys
		if s := is.sentence(); s != "" {
			book.Reached(d.ID, s, p)
		}
	}
}
