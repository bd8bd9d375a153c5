package broker

import (
	"context"
	"time"

	"github.com/freshet/freshet/retry"
)

// Grace is for how long what passes by itself is not reported. A leader, or the coordinator of a group, moves in less.
const Grace = 5 * time.Second

// Reporter returns one that reports each class of error once: at once if waiting alone does not help, and after [Grace]
// if it passes by itself.
func Reporter(failed func(err error), recovered func(lasted time.Duration)) *retry.Reporter {
	return &retry.Reporter{Failed: failed, Recovered: recovered, Kind: kind, Grace: Grace}
}

func kind(err error) (kind string, passes bool) {
	c := Classify(err)
	return c.String(), c == Transient || c == Fenced
}

// Insist calls do until it does not fail with what passes by itself, such as brokers that are away, or ctx ends. It
// reports to waiting the first failure, each other one that says something new, and each minute that it goes on.
func Insist(ctx context.Context, waiting func(error), do func() error) error {
	loop := retry.Loop{
		Backoff: retry.Backoff{Max: time.Second}, Reporter: &retry.Reporter{Failed: waiting},
		Final: func(err error) bool { return Classify(err) != Transient },
	}
	return loop.Do(ctx, do)
}
