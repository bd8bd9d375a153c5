package group

import (
	"context"
	"sync"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// ghosts are members that this process was and is no more, until the brokers know.
type ghosts struct {
	m      *Member
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newGhosts(m *Member) *ghosts {
	g := &ghosts{m: m}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// sendAway leaves the group as a former member. It goes on trying while the brokers are away, however long that takes:
// a coordinator that starts gives the members that it finds written down a whole session again.
func (g *ghosts) sendAway(id string) {
	g.wg.Go(func() {
		for !g.gone(id) && retry.Sleep(g.ctx, backoff/2) == nil {
		}
	})
}

// gone reports whether the brokers do not know the member any more, or will not let us send it away.
func (g *ghosts) gone(id string) bool {
	ctx, cancel := context.WithTimeout(g.ctx, g.m.o.Session/5)
	defer cancel()
	class := broker.Classify(g.m.client.LeaveGroup(ctx, g.m.o.ID, id))
	// The library cuts requests short when it lets go of connections: that is no answer.
	return class != broker.Transient && (class != broker.Ended || g.ctx.Err() != nil)
}

// stop gives up, and waits for the goroutines.
func (g *ghosts) stop() {
	g.cancel()
	g.wg.Wait()
}
