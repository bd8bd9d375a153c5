package doubt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
)

// SharedFacts are [Facts] that other processes read and write as well.
type SharedFacts interface {
	Facts
	// FactsUnder returns the facts whose names begin with prefix, by their names.
	FactsUnder(ctx context.Context, prefix string) (map[string][]byte, error)
}

// The names of facts about groups. A group is known once it has kept one of the first two: who its Redis is is kept by
// every version of freshet, but only of a Redis that says who it is.
const (
	groupFact   = "group/"
	redisFact   = "redis/"
	settledFact = "settled/" // and the doubt's ID, a slash, and the group
	stuckFact   = "stuck/"   // the same
)

// sharing is what a book knows of the groups of invalidators that its doubts concern. What is not a group's own doubt
// concerns each of them: it is there until every group that is known has settled it for its own Redis.
type sharing struct {
	facts SharedFacts
	// group is that of this process; "": it deletes no keys.
	group  string
	groups []string
	// settled holds what groups have settled, and stuck what they cannot answer, by doubt and group.
	settled map[string]map[string]settlement
	stuck   map[string]map[string]stuck
}

// settlement says which doubt was settled: one that is dropped and comes again has another Since, and what came after
// Last is not settled.
type settlement struct {
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

func (s settlement) covers(d *Doubt) bool { return s.Since.Equal(d.Since) && !d.Last.After(s.Last) }

// stuck says which doubt a group cannot answer, and why.
type stuck struct {
	settlement
	AskedAt time.Time `json:"asked_at,omitzero"`
	Why     string    `json:"why"`
}

func (s stuck) covers(d *Doubt) bool { return s.settlement.covers(d) && !d.AskedAt.After(s.AskedAt) }

// Share says that several groups of invalidators keep a Redis each from one log, and which group this process is of;
// "": of none. It is called before anything else. From then on a dismissal of a doubt that concerns all groups settles
// it for this group only, if there is one, and it is not listed here any more.
func (b *Book) Share(facts SharedFacts, group string) {
	b.shared = &sharing{
		facts: facts, group: group, settled: map[string]map[string]settlement{}, stuck: map[string]map[string]stuck{},
	}
}

// Enroll makes the group of this process known, durably: from then on no doubt ends before it has settled it.
func (b *Book) Enroll(ctx context.Context) error {
	name := groupFact + b.shared.group
	if is, err := b.shared.facts.Fact(ctx, name); err != nil || is != nil {
		return err
	}
	return b.shared.facts.SetFact(ctx, name, []byte("{}"))
}

// readShared returns what groups have kept; nil where nothing is shared.
func (b *Book) readShared(ctx context.Context) (*sharing, error) {
	if b.shared == nil {
		return nil, nil
	}
	s := &sharing{settled: map[string]map[string]settlement{}, stuck: map[string]map[string]stuck{}}
	groups := map[string]bool{}
	for _, prefix := range []string{groupFact, redisFact} {
		all, err := b.shared.facts.FactsUnder(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for name := range all {
			groups[strings.TrimPrefix(name, prefix)] = true
		}
	}
	s.groups = slices.Sorted(maps.Keys(groups))
	if err := readEach(ctx, b.shared.facts, settledFact, s.settled); err != nil {
		return nil, err
	}
	return s, readEach(ctx, b.shared.facts, stuckFact, s.stuck)
}

// readEach reads the facts of one kind into what they are by doubt and group. One that cannot be read says nothing.
func readEach[T any](ctx context.Context, facts SharedFacts, prefix string, into map[string]map[string]T) error {
	all, err := facts.FactsUnder(ctx, prefix)
	for name, text := range all {
		id, group, ok := strings.Cut(strings.TrimPrefix(name, prefix), "/")
		var is T
		if ok && json.Unmarshal(text, &is) == nil {
			add(into, id, group, is)
		}
	}
	return err
}

func add[T any](to map[string]map[string]T, id, group string, is T) {
	if to[id] == nil {
		to[id] = map[string]T{}
	}
	to[id][group] = is
}

// isSettled reports whether a group has settled a doubt as it stands now.
func (s *sharing) isSettled(d *Doubt, group string) bool {
	is, ok := s.settled[d.ID][group]
	return ok && is.covers(d)
}

// open returns the groups that have not settled a doubt.
func (s *sharing) open(d *Doubt) []string {
	return slices.DeleteFunc(slices.Clone(s.groups), func(group string) bool { return s.isSettled(d, group) })
}

// hidden reports whether a doubt is other groups' only by now.
func (s *sharing) hidden(d *Doubt) bool {
	return s != nil && s.group != "" && d.Group == "" && s.isSettled(d, s.group)
}

// describe says of a doubt, where keys are not deleted, which groups it waits for, and which of them cannot answer it.
func (s *sharing) describe(d *Doubt) {
	if s == nil || s.group != "" || d.Group != "" || d.Answer != "" {
		return
	}
	open := s.open(d)
	if len(open) == 0 {
		return
	}
	var why []string
	for _, group := range open {
		if is, ok := s.stuck[d.ID][group]; ok && is.covers(d) {
			why = append(why, "group "+group+" cannot answer it: "+is.Why)
		}
	}
	if d.Stuck = len(why) > 0; d.Stuck {
		d.Answer = strings.Join(why, "; ")
		return
	}
	d.Answer = "the invalidators answer it, each group for its own redis; not settled yet: group " +
		strings.Join(open, ", group ")
}

// TellStuck tells the processes of the group, and readers, that a doubt is stuck here, if it is ([Book.Stuck]).
func (b *Book) TellStuck(ctx context.Context, id string) error {
	done, err := b.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	b.mu.Lock()
	e := b.doubts[id]
	if e == nil || !e.Stuck {
		b.mu.Unlock()
		return nil
	}
	is := stuck{settlement{e.Since, e.Last}, e.AskedAt, e.Answer}
	b.mu.Unlock()
	text, err := json.Marshal(is)
	if err == nil {
		err = b.shared.facts.SetFact(ctx, stuckFact+id+"/"+b.shared.group, text)
	}
	if err != nil {
		return fmt.Errorf("doubt %s: %w", id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	add(b.shared.stuck, id, b.shared.group, is)
	return nil
}

// Echo says of a doubt that it is stuck, if the process of the group that answers has told so; false: it has not.
func (b *Book) Echo(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.doubts[id]
	if e == nil {
		return false
	}
	is, told := b.shared.stuck[id][b.shared.group]
	if told = told && is.covers(&e.Doubt); told {
		e.Answer, e.Stuck = is.Why, true
	}
	return told
}

// settle settles a doubt for the group of this process. The caller has the turn.
func (b *Book) settle(ctx context.Context, d *Doubt) error {
	is := settlement{d.Since, d.Last}
	text, err := json.Marshal(is)
	if err == nil {
		err = b.shared.facts.SetFact(ctx, settledFact+d.ID+"/"+b.shared.group, text)
	}
	if err != nil {
		return fmt.Errorf("settle doubt %s: %w", d.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	add(b.shared.settled, d.ID, b.shared.group, is)
	b.count()
	return nil
}

// forgetSettled removes what groups have kept of a doubt that is gone. What is left of it says nothing of another.
func (b *Book) forgetSettled(ctx context.Context, id string) error {
	if b.shared == nil {
		return nil
	}
	var errs []error
	for _, prefix := range []string{settledFact, stuckFact} {
		all, err := b.shared.facts.FactsUnder(ctx, prefix+id+"/")
		errs = append(errs, err)
		for name := range all {
			errs = append(errs, b.shared.facts.DropFact(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// Release drops the doubts about a source that every known group has settled, and those about no source. Only the
// process that records doubts about the source may call it: another one may not know yet that a doubt has come again.
// It may be another one by now, if it was stopped meanwhile, so it reads first what others have kept.
func (b *Book) Release(ctx context.Context, source string) error {
	if len(b.released(source)) == 0 {
		return nil
	}
	if err := b.Refresh(ctx); err != nil {
		return err
	}
	var errs []error
	for _, d := range b.released(source) {
		err := b.remove(ctx, d.ID, d.Last, true)
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrCameAgain) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// released returns the doubts that [Book.Release] drops, as far as is known here.
func (b *Book) released(source string) (done []Doubt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.doubts {
		mine := e.Group == "" && (e.Source == source || e.Source == "")
		if mine && len(b.shared.groups) > 0 && len(b.shared.open(&e.Doubt)) == 0 {
			done = append(done, e.Doubt)
		}
	}
	return done
}

// LastPlace returns the last place in a source's binlog that a doubt is about, of all groups' doubts.
func (b *Book) LastPlace(source string) (at event.Version) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.doubts {
		if e.Source == source && e.At.Compare(at) > 0 {
			at = e.At
		}
	}
	return at
}
