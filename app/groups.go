package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/retry"
)

// groupAnswers answers doubts for the Redis of one group of invalidators. Each group answers for its own, in the member
// that has the first partition of the topic; the others forget keys by name only.
type groupAnswers struct {
	*answering // each source gets one of its own
	log        groupLog
	// ends returns where the partitions of the topic end now. It waits while the brokers are away.
	ends  func(ctx context.Context) (map[int]int64, error)
	facts doubt.SharedFacts
	group string
	// leads is set while this process is the one that answers.
	leads atomic.Bool
	// redo does changes again.
	redo redoer
	// walk reads the rows of the source that the configuration has, and warming fills the cache from them.
	walk    *walking
	warming *warming
	// on returns on which Redis this process works (see [kafka.Redis]), and redis is its name for people. straggler is who
	// works on another one; nil: nobody, as far as is known.
	on        func() string
	redis     string
	straggler atomic.Pointer[straggler]
	// settled is up to where all was finished when that was last asked; nil: it is not known.
	settled atomic.Pointer[settled]
}

// groupLog is the group's end of the event log.
type groupLog interface {
	// Unfinished returns those of the partitions that the group has not finished up to these ends, and why some of them
	// do not go on.
	Unfinished(ctx context.Context, ends map[int]int64) (left []int, stopped []error, err error)
	// Reached returns how far the group is, and Parked whether any of its keys is parked.
	Reached(ctx context.Context) (kafka.Place, error)
	Parked(ctx context.Context) (bool, error)
	// Since returns the place of a time, and Span what a partition holds from a place up to an end.
	Since(ctx context.Context, at time.Time) (kafka.Place, error)
	Span(partition int, from consumer.Reached, end int64) *consumer.Span
	// Marked returns the newest version that the topic of marks says everybody can see of a source.
	Marked(ctx context.Context, source string) (event.Version, error)
}

// newGroupAnswers returns what answers the doubts of the group, before there is anything to answer them with.
func (p *process) newGroupAnswers(log groupLog, b *brokers) *groupAnswers {
	return &groupAnswers{log: log, ends: b.ends, facts: p.sharedFacts, group: p.config.EventLog.Kafka.Group}
}

// buildGroupAnswers has doubts answered for the group's Redis.
func (p *process) buildGroupAnswers(g *groupAnswers, d *deleting, log *kafka.Log) error {
	a, err := p.newAnswering(d)
	if err != nil {
		return err
	}
	a.ready, a.learn, a.finished, a.shared, a.spread = g.ready, g.learn, g.await, true, g.spread
	a.given, a.held, a.together = &trail{facts: g.facts, group: g.group}, d.letters.Held, g.together
	g.on, g.redis = d.identity.On, connect.RedisName(p.config)
	g.answering = a
	g.redo = &groupRedo{
		log: g.log, ends: g.ends, facts: g.facts, doubts: p.doubts, given: a.given, group: g.group,
		serve: d.engine.ServeGently, take: a.scope.Take, visible: a.visible,
	}
	if g.walk, err = p.newWalking(d, a.scope); err != nil {
		return err
	}
	g.walk.marked, a.marked = g.log.Marked, g.log.Marked
	g.warming = &warming{walking: g.walk}
	p.warming.Store(g.warming)
	log.Lead(g.lead)
	d.alongside = append(d.alongside, a.forgetAll, g.follow, g.warming.follow, p.enroll)
	p.answers.Store(a)
	return nil
}

// enroll makes the group known, so that no doubt ends before it has answered it.
func (p *process) enroll(ctx context.Context) error {
	loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}, Reporter: &retry.Reporter{Failed: func(err error) {
		p.alarms.Raise(alarm.StoreFailed, "the group of these invalidators cannot be made known, so that doubts may end "+
			"before it has answered them: "+err.Error())
	}}}
	_ = loop.Do(ctx, func() error { return p.doubts.Enroll(ctx) }) // it ends early with ctx only
	return nil
}

// learn returns what readers have kept of a source, or of all.
func (g *groupAnswers) learn(ctx context.Context, source string) ([]*operate.Learned, error) {
	if source == "" {
		return operate.LearnAll(ctx, g.facts)
	}
	l, err := operate.Learn(ctx, g.facts, source)
	return []*operate.Learned{l}, err
}

// spread returns over how many partitions the keys of a source have been spread. Each number was kept before records
// were written that may be lost by now, so all that was kept before is read first.
func (g *groupAnswers) spread(ctx context.Context, source string) (operate.Spread, error) {
	if err := g.doubts.Refresh(ctx); err != nil {
		return nil, err
	}
	return operate.ReadSpread(ctx, g.facts, source)
}

// lead answers doubts until ctx ends: those about the keys of each source, and those about the keys of all, on their
// own, so that a source without a reader does not hold up the others.
func (g *groupAnswers) lead(ctx context.Context) error {
	g.leads.Store(true)
	defer g.leads.Store(false)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		g.keepSettled(ctx)
		return nil
	})
	all.Go(func() error { return g.warming.runAll(ctx) })
	answered := map[string]bool{}
	for retry.Beat(ctx, looksEach) == nil {
		for _, d := range g.doubts.List() {
			if of := known(&d); !answered[of] {
				answered[of] = true
				all.Go(func() error { return g.of(of).answerOrRedo(ctx) })
			}
		}
	}
	return all.Wait()
}

// of returns what answers the doubts about the keys of one source, or with "" those about the keys of all: they also
// are about changes of all sources, which are done again.
func (g *groupAnswers) of(source string) *answering {
	a := &answering{
		doubts: g.doubts, scope: g.scope, ready: g.ready, learn: g.learn, visible: g.visible, finished: g.await,
		marked: g.marked, spread: g.spread, shared: g.shared, prefix: g.prefix, log: g.answering.log, given: g.given,
		together: g.together, scoped: map[string]time.Time{}, walks: g.walks,
		mine: func(d *doubt.Doubt) bool { return known(d) == source },
	}
	if source == "" {
		a.redo = g.redo
	}
	return a
}

// walks returns what reads the rows of a source, or says what is missing for that.
func (g *groupAnswers) walks(source string) (*walking, error) {
	c := g.walk.config
	switch {
	case !c.HasSource():
		return nil, fmt.Errorf("the invalidator of group %s that has partition 0 has no source, so it cannot read rows: write "+
			"source, as the reader's file has it, into the files of all invalidators of the group", g.group)
	case c.Source.Name != source:
		return nil, fmt.Errorf("the invalidator of group %s that has partition 0 reads rows of source %s only, by its file, and not "+
			"of source %s", g.group, c.Source.Name, source)
	}
	return g.walk, nil
}

// follow says of the doubts that another member answers that it does, until ctx ends.
func (g *groupAnswers) follow(ctx context.Context) error {
	for retry.Beat(ctx, looksEach) == nil {
		if g.leads.Load() {
			continue
		}
		for _, d := range g.doubts.List() {
			if wanted(&d) && !g.doubts.Echo(d.ID) {
				g.doubts.Say(d.ID, fmt.Sprintf("answered by the invalidator of group %s that has partition 0: ask that one how far "+
					"it is", g.group))
			}
		}
	}
	return nil
}

// asksEach is how often the brokers are asked how far the group is.
const asksEach = 500 * time.Millisecond

// await waits until the group has finished all that the topic holds of changes up to the last place of doubts.
//
// That place has no record of its own in the topic, and marks may overtake records there. So the ends of the partitions
// count, as they are once the reader has said that everything up to the place is in the topic (ready).
func (g *groupAnswers) await(ctx context.Context, _ []doubt.Doubt, say func(waitsUntil string)) error {
	ends, err := g.ends(ctx)
	if err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	for {
		left, stopped, err := g.log.Unfinished(ctx, ends)
		switch {
		case err != nil:
			say(fmt.Sprintf("the brokers say how far group %s is: %v", g.group, err))
		case len(left) == 0:
			say("")
			return nil
		case len(stopped) > 0:
			say(fmt.Sprintf("each partition is finished up to where it ends now, and one is stopped: %v", stopped[0]))
		default:
			say(fmt.Sprintf("the group has finished partitions %s up to where they end now", numbers(left)))
		}
		if err := retry.Sleep(ctx, asksEach); err != nil {
			return err
		}
	}
}

// ready waits for the reader of a source to say that everything up to the last place of doubts is in the topic. Before
// it says so it has kept the columns of the tables as they are after that place.
func (g *groupAnswers) ready(ctx context.Context, due []doubt.Doubt) (waitsUntil string) {
	at, source := latest(due), due[0].Source
	if at.IsZero() {
		return ""
	}
	text, err := g.facts.Fact(ctx, loggedFact+source)
	if err != nil {
		return fmt.Sprintf("the topic of doubts can be read: %v", err)
	}
	var logged event.Version
	if text != nil && json.Unmarshal(text, &logged) == nil && logged.Compare(at) >= 0 {
		return ""
	}
	return fmt.Sprintf("the reader of source %s says that everything up to then is in the topic", source)
}

// numbers lists the first few of partitions.
func numbers(all []int) string {
	var some []string
	for _, n := range all[:min(len(all), 10)] {
		some = append(some, fmt.Sprint(n))
	}
	if len(all) > len(some) {
		some = append(some, "…")
	}
	return strings.Join(some, ", ")
}

// keepMappings keeps the mappings for the next start, and with Kafka for the invalidators, before anything is read by
// them: answers by former mappings would leave keys out. It fails only with ctx.
func (r *reading) keepMappings(ctx context.Context) error {
	loop := retry.Loop{Backoff: retry.Backoff{Max: 5 * time.Second}, Reporter: &retry.Reporter{Failed: func(err error) {
		r.alarms.Raise(alarm.StoreFailed, err.Error()+": the source is not read until they are")
	}}}
	err := loop.Do(ctx, func() error {
		return operate.KeepMappings(ctx, r.facts, r.config.Source.Name, r.config.Mappings)
	})
	if err == nil {
		r.definitions.keepOrSay(ctx) // so that they are known once the source is read; tried again while it is
	}
	return err
}

// loggedFact is what the names of facts begin with that say up to which version a source's changes are in the topic.
const loggedFact = "logged/"

// share does for the groups of invalidators what only the reader of a source can, until ctx ends: it says how far the
// topic has everything, as long as they wait for that, and drops the doubts that all of them have settled.
func (r *reading) share(ctx context.Context) error {
	var failed string
	for retry.Beat(ctx, looksEach) == nil {
		err := r.keepLogged(ctx)
		if err == nil {
			err = r.doubts.Release(ctx, r.config.Source.Name)
		}
		switch {
		case err == nil:
			failed = ""
		case ctx.Err() == nil && err.Error() != failed:
			failed = err.Error()
			r.options.Log.Warn("groups of invalidators wait for what cannot be kept; trying again", "error", err)
		}
	}
	return nil
}

// keepLogged says up to where everything is in the topic, if a doubt is about a place beyond what was said. What
// readers filled the cache with may have other columns than rows have last shown, so it looks at the tables first.
func (r *reading) keepLogged(ctx context.Context) error {
	name, durable := loggedFact+r.config.Source.Name, r.saved.Durable() // first: a gap may just be passed
	if r.finished().IsZero() {
		return nil // after a gap, what was read before it may not be in the topic yet
	}
	is := event.VersionAt(durable.Epoch, durable.File, durable.Pos)
	text, err := r.facts.Fact(ctx, name)
	if err != nil {
		return err
	}
	var said event.Version
	if text != nil && json.Unmarshal(text, &said) != nil {
		said = event.Version{}
	}
	if r.doubts.LastPlace(r.config.Source.Name).Compare(said) <= 0 || is.Compare(said) <= 0 {
		return nil
	}
	if err := r.definitions.refresh(ctx); err != nil {
		return fmt.Errorf("the columns of the mapped tables: %w", err)
	}
	// A reader that was to lead before, and was stopped in between, may have kept its own.
	if err := operate.KeepMappings(ctx, r.sharedFacts, r.config.Source.Name, r.config.Mappings); err != nil {
		return err
	}
	if text, err = json.Marshal(is); err != nil {
		return err
	}
	return r.facts.SetFact(ctx, name, text)
}
