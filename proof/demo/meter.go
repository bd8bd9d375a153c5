package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter measures from outside: when a write's commit returned, and when Redis said that it deleted the product's
// key (keyspace notifications). It does not ask freshet.
type meter struct {
	rdb  *redis.Client
	sub  *redis.PubSub
	done chan struct{}

	mu      sync.Mutex
	writing map[int]*write // by product
	writes  int
	deletes int
	sets    int // of prices, readers' fills included
	last    int // the product written last
	delays  []time.Duration
}

// write is one write of a product whose key was cached before it. Its delete can arrive before its commit returns.
type write struct {
	committed, deleted time.Time
	under              bool // under way
}

// measured is what one second brought.
type measured struct {
	writes, deletes, sets int
	last                  int // the product written last
	p50, p99              string
}

func newMeter(ctx context.Context, rdb *redis.Client) (*meter, error) {
	m := &meter{rdb: rdb, done: make(chan struct{}), writing: map[int]*write{}}
	if err := m.again(ctx); err != nil {
		return nil, err
	}
	m.sub = rdb.PSubscribe(ctx, "__keyspace@*__:product:*", "__keyspace@*__:category:*", "__keyspace@*__:price:*")
	if _, err := m.sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("redis: subscribe to keyspace notifications: %w", err)
	}
	events := m.sub.Channel(redis.WithChannelSize(10_000))
	go func() {
		defer close(m.done)
		for msg := range events {
			m.happened(msg.Channel, msg.Payload)
		}
	}()
	return m, nil
}

// again asks a Redis that has just started for notifications. What was deleted before that is not waited for.
func (m *meter) again(ctx context.Context) error {
	if err := m.rdb.ConfigSet(ctx, "notify-keyspace-events", "K$g").Err(); err != nil {
		return fmt.Errorf("redis: ask for keyspace notifications: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, w := range m.writing {
		if w.under {
			*w = write{under: true}
		} else {
			delete(m.writing, id)
		}
	}
	return nil
}

func (m *meter) close() error {
	err := m.sub.Close()
	<-m.done
	return err
}

// begin returns a product that nobody else is writing, if it can one whose last delete was seen, so that a delete can
// be told to belong to one commit. While nothing is deleted there are soon none of these left; the delay is then that
// of the first commit whose delete is still missing.
func (m *meter) begin() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for tries := 0; ; tries++ {
		id := 1 + rand.IntN(products)
		switch w := m.writing[id]; {
		case w == nil:
			m.writing[id] = &write{under: true}
			return id
		case tries >= 20 && !w.under:
			w.under = true
			return id
		}
	}
}

// wrote is told that the commit of a write has returned, and whether the product's key was cached before it: the
// delete of a key that is not there cannot be seen.
func (m *meter) wrote(id int, cached bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	m.last = id
	w := m.writing[id]
	w.under = false
	switch {
	case !w.committed.IsZero(): // an earlier write waits, or its delete came meanwhile
		m.settle(id, w)
		return
	case !cached:
		delete(m.writing, id)
		return
	}
	w.committed = time.Now()
	m.settle(id, w)
}

// happened is called with what happened to a key.
func (m *meter) happened(channel, event string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case event == "set" && strings.Contains(channel, "__:price:"):
		m.sets++
		return
	case event != "del" && event != "unlink":
		return
	}
	m.deletes++
	_, text, _ := strings.Cut(channel, "__:product:")
	id, err := strconv.Atoi(text)
	if w := m.writing[id]; err == nil && w != nil && w.deleted.IsZero() {
		w.deleted = time.Now()
		m.settle(id, w)
	}
}

// settle records the delay of a write that is both committed and deleted.
func (m *meter) settle(id int, w *write) {
	if w.committed.IsZero() || w.deleted.IsZero() || w.under {
		return
	}
	m.delays = append(m.delays, max(0, w.deleted.Sub(w.committed)))
	delete(m.writing, id)
}

// second returns what happened since the last call.
func (m *meter) second() measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := measured{
		writes: m.writes, deletes: m.deletes, sets: m.sets, last: m.last, p50: quantile(m.delays, 0.50),
		p99: quantile(m.delays, 0.99),
	}
	m.writes, m.deletes, m.sets, m.delays = 0, 0, 0, m.delays[:0]
	return out
}

func quantile(v []time.Duration, q float64) string {
	if len(v) == 0 {
		return "-"
	}
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))].Round(10 * time.Microsecond).String()
}
