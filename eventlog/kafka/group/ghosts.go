package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
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

// sendAway leaves the group as a former member, trying for as long as its session can last.
func (g *ghosts) sendAway(id string) {
	g.wg.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, g.m.o.Session)
		defer cancel()
		for !g.leave(ctx, id) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff / 2):
			}
		}
	})
}

// leave reports whether the brokers do not know the member any more.
func (g *ghosts) leave(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, g.m.o.Session/5)
	defer cancel()
	res, err := g.m.client.Kafka().LeaveGroup(ctx, &kafka.LeaveGroupRequest{
		GroupID: g.m.o.ID, Members: []kafka.LeaveGroupRequestMember{{ID: id}},
	})
	if err == nil {
		err = res.Error
	}
	if err == nil && len(res.Members) == 1 {
		err = res.Members[0].Error
	}
	return err == nil || errors.Is(err, kafka.UnknownMemberId)
}

// stop gives up, and waits for the goroutines.
func (g *ghosts) stop() {
	g.cancel()
	g.wg.Wait()
}
