package letters

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/retry/retrytest"
)

// The model: for each key, whether it lacks a delete, and since which change. A delete that began before that change
// does not count. Replies get lost on their way from the brokers, processes die with what they have not committed, and
// partitions move: a key that lacks a delete is in a topic.
type model struct {
	*rig
	rand  *rand.Rand
	procs []*process
	clock uint64
	lacks map[string]uint64 // key → its last change without a delete since
}

// flaky loses some of the replies: what was asked for has taken effect.
type flaky struct {
	net.Conn
	lose *atomic.Int32 // of a thousand
}

var errReplyLost = errors.New("the reply is lost")

func (f flaky) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if err == nil && rand.Int32N(1000) < f.lose.Load() {
		return 0, errors.Join(errReplyLost, f.Conn.Close())
	}
	return n, err
}

func (m *model) pick() *process { return m.procs[m.rand.IntN(len(m.procs))] }

// insistOn calls a method of the store until it succeeds, as the engine does.
func (m *model) insistOn(call func() error) {
	for range 50 {
		if call() == nil {
			return
		}
	}
	m.Fatal("it never succeeds")
}

func (m *model) park() {
	var entries []retry.Entry
	for range 1 + m.rand.IntN(3) {
		m.clock++
		e := retrytest.Entry(m.rand.IntN(8))
		e.Version, e.Last = retrytest.At(m.clock), time.Now()
		e.Due = time.Now().Add(m.o.Delays[m.rand.IntN(3)])
		if m.rand.IntN(5) == 0 {
			e.Due = time.Time{}
		}
		m.lacks[e.Key] = m.clock
		entries = append(entries, e)
	}
	p := m.pick()
	m.insistOn(func() error { return p.Park(m.Context(), entries) })
}

// attempt tries what is due now somewhere; meanwhile keys may be parked again, and partitions move.
func (m *model) attempt() {
	p := m.pick()
	under, err := p.Due(m.Context(), ever(), 1+m.rand.IntN(10))
	must(m, err)
	began := m.clock
	for range m.rand.IntN(3) {
		[]func(){m.park, m.move, m.replay}[m.rand.IntN(3)]()
	}
	var done []uint64
	var again []retry.Entry
	for _, e := range under {
		e.Attempts++
		switch m.rand.IntN(4) {
		case 0:
			e.Due = time.Now().Add(m.o.Delays[m.rand.IntN(3)])
			again = append(again, e)
		case 1:
			e.Due = time.Time{}
			again = append(again, e)
		default:
			done = append(done, e.ID)
			if m.lacks[e.Key] <= began {
				delete(m.lacks, e.Key)
			}
		}
	}
	m.insistOn(func() error { return p.Settle(m.Context(), done, again) })
}

// move gives a partition to another process, or lets a process die with what it has not committed for a while.
func (m *model) move() {
	from := m.pick()
	topics := from.Topics()
	topic := topics[m.rand.IntN(len(topics))]
	before := m.offset(topic)
	if stop, has := from.stop[topic]; has {
		if m.rand.IntN(2) == 0 {
			m.mu.Lock()
			m.committed[topic] = max(before-int64(m.rand.IntN(3)), 0)
			m.mu.Unlock()
		}
		must(m, stop())
		delete(from.stop, topic)
		m.pick().claim(topic)
	}
}

func (m *model) replay() {
	p := m.pick()
	m.insistOn(func() error {
		_, err := p.Replay(m.Context(), retry.Filter{Key: retrytest.Entry(m.rand.IntN(8)).Key}, time.Now())
		return err
	})
}

// check fails the test if a key that lacks a delete is in no topic.
func (m *model) check() {
	in := map[string]bool{}
	for _, p := range m.procs {
		for _, e := range p.due(ever()) {
			in[e.Key] = true
		}
		p.sound(m)
	}
	for _, e := range m.procs[0].all(m, retry.Filter{}) {
		in[e.Key] = true
	}
	for key := range m.lacks {
		if !in[key] {
			m.Fatalf("%s lacks a delete and is lost", key)
		}
	}
}

func TestNoKeyInTroubleIsLostWhateverFails(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := newRig(t, Options{Window: 20})
	var lose atomic.Int32
	c, err := broker.New(broker.Options{
		Brokers: r.kafka.Brokers(), Timeout: 2 * time.Second,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return flaky{conn, &lose}, err
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	r.client = c
	m := &model{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), lacks: map[string]uint64{}}
	topics := r.store().Topics()
	m.procs = []*process{r.start(topics[0], topics[1]), r.start(topics[2])}
	for range 5 {
		lose.Store(60)
		for range 12 {
			[]func(){m.park, m.attempt, m.attempt, m.move, m.replay}[m.rand.IntN(5)]()
		}
		lose.Store(0)
		m.check()
		// What is left is settled, so that the next round begins with little in the windows.
		for _, p := range m.procs {
			for got := p.due(ever()); len(got) > 0; got = p.due(ever()) {
				must(t, p.Settle(t.Context(), ids(got), nil))
				for _, e := range got {
					delete(m.lacks, e.Key)
				}
			}
		}
		_, err := m.procs[0].Purge(t.Context(), retry.Filter{})
		must(t, err)
		clear(m.lacks)
	}
}
