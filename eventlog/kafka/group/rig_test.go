package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

const patience = 2 * time.Minute

// rig is the topics and the group of one test.
type rig struct {
	t       *testing.T
	cluster *testbed.KafkaCluster
	topics  []string
	group   string
}

func newRig(t *testing.T, cluster *testbed.KafkaCluster, partitions ...int) *rig {
	t.Helper()
	r := &rig{t: t, cluster: cluster, group: cluster.NewTopicName(t)}
	for i, n := range partitions {
		r.topics = append(r.topics, cluster.Topic(t, fmt.Sprintf("%s.%d", r.group, i), n))
	}
	return r
}

// cable is the network of one member: it can be cut, and repaired.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for _, conn := range c.conns {
			conn.Close()
		}
	}
}

// member is a running member whose handles report to the test.
type member struct {
	t      *testing.T
	cable  *cable
	stop   func() error
	starts chan *Assignment // a handle began
	ends   chan *Assignment // a handle's context ended
	counts chan int         // a generation began
}

// join starts a member. work is called when a handle's context has ended, before it returns.
func (r *rig) join(o Options, work func(*Assignment) error) *member {
	r.t.Helper()
	out := &member{
		t: r.t, cable: &cable{}, starts: make(chan *Assignment, 100), ends: make(chan *Assignment, 100),
		counts: make(chan int, 100),
	}
	c, err := broker.New(broker.Options{Brokers: r.cluster.Brokers(), Dial: out.cable.dial})
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, c.Close()) })
	o.ID, o.Topics = r.group, r.topics
	o.Session = 6 * time.Second // the least that brokers allow
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(r.t.Output(), nil))
	}
	o.Generation = func(assigned map[string][]int) {
		n := 0
		for _, partitions := range assigned {
			n += len(partitions)
		}
		out.counts <- n
	}
	m, err := New(c, o)
	must(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- m.Run(ctx, func(ctx context.Context, c *Assignment) error {
			out.starts <- c
			<-ctx.Done()
			out.ends <- c
			if work != nil {
				return work(c)
			}
			return ctx.Err()
		})
	}()
	out.stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() { must(r.t, out.stop()) })
	return out
}

// began waits for n handles to begin.
func (m *member) began(n int) []*Assignment {
	m.t.Helper()
	return take(m.t, m.starts, n, "handles began")
}

// ended waits for the contexts of n handles to end.
func (m *member) ended(n int) []*Assignment {
	m.t.Helper()
	return take(m.t, m.ends, n, "contexts ended")
}

func take[T any](t *testing.T, from chan T, n int, what string) (out []T) {
	t.Helper()
	for timeout := time.After(patience); len(out) < n; {
		select {
		case v := <-from:
			out = append(out, v)
		case <-timeout:
			t.Fatalf("%d %s of %d", len(out), what, n)
		}
	}
	return out
}
