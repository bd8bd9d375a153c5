package doubt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Ended is a doubt that is there no more. Its Answer is how its answer ended, or how far that was.
type Ended struct {
	Doubt
	// Ended is when, by the clock of this machine. How is one of the constants below.
	Ended time.Time `json:"ended"`
	How   string    `json:"how"`
}

// How a doubt ends.
const (
	HowAnswered  = "answered"
	HowDismissed = "dismissed"
)

const (
	// mostEnded is how many doubts are remembered that have ended, and mostShown how many of them [Book.Ended] returns:
	// one answer can end many doubts at once, and somebody may wait for each of them.
	mostEnded = 200
	mostShown = 10
	// endedFact and the doubt's ID, a slash and the group is the name of a fact: how the doubt ended there.
	endedFact = "ended/"
)

// Dismiss removes a doubt for good, or with [Book.Share] for the group of this process: an operator has seen to it. It
// returns [ErrUnknown] if there is none with this ID, and [ErrCameAgain] if its Last is after seen, the Last that the
// operator was shown; a zero seen means whatever there is.
func (b *Book) Dismiss(ctx context.Context, id string, seen time.Time) error {
	return b.end(ctx, id, seen, func(*Ended) {})
}

// Answered is Dismiss for a doubt that was answered. answer says in a sentence how.
func (b *Book) Answered(ctx context.Context, id string, seen time.Time, answer string) error {
	return b.end(ctx, id, seen, func(e *Ended) { e.How, e.Answer = HowAnswered, answer })
}

func (b *Book) end(ctx context.Context, id string, seen time.Time, how func(e *Ended)) error {
	if b == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	all := b.shared == nil || b.shared.group == ""
	if b.shared != nil && all { // the reader that leads may just have recorded it again
		if err := b.Refresh(ctx); err != nil {
			return err
		}
	}
	is := Ended{How: HowDismissed}
	b.mu.Lock()
	if e := b.doubts[id]; e != nil {
		is.Doubt = e.Doubt
	}
	b.mu.Unlock()
	if !seen.IsZero() && is.Last.After(seen) { // it has come again, and will be there still
		is.Last = seen
	}
	is.Ended, is.Definitions, is.Where, is.Stuck = time.Now().UTC().Round(0), nil, "", false
	how(&is)
	if is.ID != "" { // before it is gone, for those who look at it in other processes
		if err := b.keepEnded(ctx, &is); err != nil {
			return err
		}
	}
	if err := b.remove(ctx, id, seen, all); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended[max(0, len(b.ended)+1-mostEnded):], is)
	return nil
}

// Ended returns the last doubts that this process has seen to, the newest first: up to 10 since it was started.
func (b *Book) Ended() []Ended {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Clone(b.ended[max(0, len(b.ended)-mostShown):])
	slices.Reverse(out)
	return out
}

// Ending returns how the doubt with this ID ended last, for the group of this process; for a process without a group,
// for any, and if one of them has dismissed it, that. It returns [ErrUnknown] if that is not known: what
// [Book.Ended] returns is known, and with [Book.Share] also what other processes of the group have seen to. It fails if
// the doubt has come again since, in whatever process.
func (b *Book) Ending(ctx context.Context, id string) (Ended, error) {
	unknown := fmt.Errorf("%w: how %q ended is not known", ErrUnknown, id)
	if b == nil {
		return Ended{}, unknown
	}
	if b.shared != nil {
		if err := b.Refresh(ctx); err != nil {
			return Ended{}, err
		}
	}
	all, err := b.keptEndings(ctx, endedFact+id+"/")
	if err != nil {
		return Ended{}, err
	}
	b.mu.Lock()
	all = append(all, b.ended...)
	b.mu.Unlock()
	all = slices.DeleteFunc(all, func(e Ended) bool { return e.ID != id })
	if len(all) == 0 {
		return Ended{}, unknown
	}
	e := slices.MaxFunc(all, func(x, y Ended) int {
		return cmp.Or(x.Last.Compare(y.Last), strings.Compare(x.How, y.How), x.Ended.Compare(y.Ended))
	})
	if slices.ContainsFunc(b.List(), func(d Doubt) bool { return d.ID == id && d.Last.After(e.Last) }) {
		return Ended{}, fmt.Errorf("doubt %s has not ended: it has come again", id)
	}
	return e, nil
}

// keepEnded keeps how a doubt ends, where other processes look after the same doubts.
func (b *Book) keepEnded(ctx context.Context, e *Ended) error {
	if b.shared == nil {
		return nil
	}
	kept := *e
	kept.Doubt = Doubt{ID: e.ID, Cause: e.Cause, Since: e.Since, Last: e.Last, Count: e.Count, Answer: e.Answer}
	text, err := json.Marshal(kept)
	if err == nil {
		err = b.shared.facts.SetFact(ctx, b.endedName(e.ID), text)
	}
	if err != nil {
		return fmt.Errorf("keep how doubt %s ended: %w", e.ID, err)
	}
	return b.dropOldEndings(ctx)
}

// dropOldEndings drops the oldest of what this group has kept, if it is more than is remembered.
func (b *Book) dropOldEndings(ctx context.Context) error {
	facts, err := b.shared.facts.FactsUnder(ctx, endedFact)
	maps.DeleteFunc(facts, func(name string, _ []byte) bool { return !strings.HasSuffix(name, "/"+b.shared.group) })
	if len(facts) <= mostEnded {
		return err
	}
	at := map[string]time.Time{}
	for name, text := range facts {
		var e Ended
		_ = json.Unmarshal(text, &e) // what cannot be read is the oldest
		at[name] = e.Ended
	}
	names := slices.SortedFunc(maps.Keys(at), func(x, y string) int { return at[x].Compare(at[y]) })
	errs := []error{err}
	for _, name := range names[:len(names)-mostEnded] {
		errs = append(errs, b.shared.facts.DropFact(ctx, name))
	}
	return errors.Join(errs...)
}

func (b *Book) endedName(id string) string { return endedFact + id + "/" + b.shared.group }

// keptEndings returns what the group of this process has kept under names that begin with prefix, and what was
// dismissed for all groups; for a process without a group, what all have kept.
func (b *Book) keptEndings(ctx context.Context, prefix string) (all []Ended, err error) {
	if b.shared == nil {
		return nil, nil
	}
	facts, err := b.shared.facts.FactsUnder(ctx, prefix)
	for name, text := range facts {
		var e Ended
		_, group, _ := strings.Cut(strings.TrimPrefix(name, endedFact), "/")
		mine := group == "" || b.shared.group == "" || group == b.shared.group
		if mine && json.Unmarshal(text, &e) == nil {
			all = append(all, e)
		}
	}
	return all, err
}
