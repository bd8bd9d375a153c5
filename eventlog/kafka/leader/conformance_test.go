package leader

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/checkpoint/checkpointtest"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// lossy are connections on which the reply to one produce request can get lost after it took effect.
type lossy struct{ armed atomic.Bool }

func (l *lossy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: c, l: l}, nil
}

type lossyConn struct {
	net.Conn
	l *lossy

	mu   sync.Mutex
	rest int // bytes of the request under way that are still to be written
	lose bool
}

// Write notices the beginning of a produce request: its size, then the number 0.
// Source: https://kafka.apache.org/protocol#protocol_messages.
func (c *lossyConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	for at := 0; at < len(b); {
		if c.rest == 0 {
			c.rest = 4 + int(binary.BigEndian.Uint32(b[at:]))
			if binary.BigEndian.Uint16(b[at+4:]) == 0 && c.l.armed.CompareAndSwap(true, false) {
				c.lose = true
			}
		}
		n := min(c.rest, len(b)-at)
		at, c.rest = at+n, c.rest-n
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Read waits for the reply before it is lost, so that the request has taken effect.
func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lose && n > 0 {
		_ = c.Conn.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// life is a checkpoint as the conformance suite wants it.
type life struct{ *Checkpoint }

func (l life) Stash(xid string, first event.Version) func([]checkpoint.Stashed) error {
	return l.Checkpoint.Stash(xid, first).Append
}

type lives struct {
	*rig
	lossy
	o Options
}

func (l *lives) Open() checkpointtest.Checkpoint { return life{l.openWith(l.o)} }

func (l *lives) LoseReply() { l.armed.Store(true) }

func TestTheTopicKeepsACheckpointAsItShould(t *testing.T) {
	checkpointtest.Run(t, func(t *testing.T, o checkpointtest.Options) checkpointtest.Storage {
		l := &lives{rig: newRig(t), o: Options{MaxStashKeys: o.MaxStashKeys}}
		l.client = l.connect(broker.Options{Dial: l.dial})
		return l
	})
}

func TestTheReplyOfTheDialerIsLost(t *testing.T) {
	l := &lives{rig: newRig(t)}
	l.client = l.connect(broker.Options{Dial: l.dial})
	c := l.Open()
	l.LoseReply()
	if err := c.(life).Checkpoint.Checkpoint.Begin(place(4)); err == nil {
		t.Error("the reply was not lost")
	}
	if p := l.Open().Position(); p.Pos != 4 {
		t.Errorf("the write did not take effect: the position is %s", p.String())
	}
}
