package leader

import (
	"sync"
	"testing"

	"github.com/freshet/freshet/eventlog/checkpoint/checkpointtest"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

type lives struct {
	*rig
	proxy *proxy.Kafka
	o     Options
}

func newLives(t *testing.T, o Options) *lives {
	t.Helper()
	l := &lives{rig: newRig(t), o: o}
	l.client, l.proxy = l.proxied()
	return l
}

func (l *lives) Open() checkpointtest.Checkpoint { return l.openWith(l.o) }

func (l *lives) LoseReply() {
	var once sync.Once
	l.proxy.OnRequest(func(r proxy.Request) (a proxy.Action) {
		if r.API == proxy.Produce {
			once.Do(func() { a = proxy.DropReply })
		}
		return a
	})
}

func TestTheTopicKeepsACheckpointAsItShould(t *testing.T) {
	checkpointtest.Run(t, func(t *testing.T, o checkpointtest.Options) checkpointtest.Storage {
		return newLives(t, Options{MaxStashKeys: o.MaxStashKeys, MaxStashBytes: o.MaxStashBytes})
	})
}

func TestTheSuiteLosesReplies(t *testing.T) {
	l := newLives(t, Options{})
	c := l.Open()
	l.LoseReply()
	if err := c.(*Checkpoint).Checkpoint.Begin(place(4)); err == nil {
		t.Error("the reply was not lost")
	}
	if p := l.Open().Position(); p.Pos != 4 {
		t.Errorf("the write did not take effect: the position is %s", p.String())
	}
}
