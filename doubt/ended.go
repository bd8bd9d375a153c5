package doubt

import (
	"context"
	"fmt"
	"slices"
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

// mostEnded is how many doubts are remembered that have ended.
const mostEnded = 10

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
	if err := b.remove(ctx, id, seen, all); err != nil {
		return err
	}
	is.Ended, is.Definitions, is.Where, is.Stuck = time.Now().UTC().Round(0), nil, "", false
	how(&is)
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
	out := slices.Clone(b.ended)
	slices.Reverse(out)
	return out
}
