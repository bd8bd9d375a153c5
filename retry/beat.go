package retry

import (
	"context"
	"time"
)

// begun is when this process began. Its beats are whole seconds after that, and not those of the clock: processes that
// began at other moments do not ask a server at the same time.
var begun = time.Now()

// ToBeat returns how long to wait before what is done every so often, in whole seconds: that long, or up to a second
// less if the last time was between two beats. So all that waits does its work at the same moments. A process at rest
// costs what waking it up costs, whatever is done then, and it is woken once instead of for each of them. Any other
// time is returned as it is.
func ToBeat(every time.Duration) time.Duration {
	if every < time.Second || every%time.Second != 0 {
		return every
	}
	since := time.Since(begun) % time.Second
	if since < 0 { // the clock of a test
		since += time.Second
	}
	return every - since
}

// Beat waits for [ToBeat] of every. It returns the context's error if that ends first.
func Beat(ctx context.Context, every time.Duration) error { return Sleep(ctx, ToBeat(every)) }
