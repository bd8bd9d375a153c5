package broker

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// metadataTTL is how long the library trusts what it knows of the cluster; it asks again at a random moment of this
// time. It is also how long it waits for that answer, so it is not made shorter: a move of a leader is noticed by the
// error that it causes, and asked about at once.
const metadataTTL = 2 * time.Second

// refreshPause is how long at least lies between two refreshes that errors ask for.
const refreshPause = 100 * time.Millisecond

// transport is the library's, which asks for the topics in use only. Asked for all, it would load large clusters, and
// brokers leave out of all topics those that the user may not see, so that a missing ACL looked like a missing topic.
//
// The topics of a library's transport are fixed, so a topic that is new makes a new one. That happens at the start
// only; what is under way on the old one comes to its end there.
type transport struct {
	make func(topics []string) *kafka.Transport

	mu        sync.Mutex
	closed    bool
	topics    map[string]struct{}
	current   *kafka.Transport
	refreshed time.Time
}

// RoundTrip sends a request and returns the answer.
func (t *transport) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	current, err := t.use(topicsOf(req)...)
	if err != nil {
		return nil, err
	}
	defer t.used(current)
	return current.RoundTrip(ctx, addr, req)
}

// used closes a library's transport that was replaced, or let go of, while a request was made on it. That may have
// happened just before the request reached it:
//
//	A: use returns T1    B: use replaces T1 by T2 and closes T1's connections    A: T1 opens new ones
//
// Those are nobody's: they would stay, asking for the state of the cluster again and again, and Close would wait for
// them in vain.
func (t *transport) used(by *kafka.Transport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.current != by {
		by.CloseIdleConnections()
	}
}

// use returns a transport that knows these topics.
func (t *transport) use(topics ...string) (*kafka.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	known := true
	for _, name := range topics {
		if _, ok := t.topics[name]; !ok {
			t.topics[name], known = struct{}{}, false
		}
	}
	if t.current == nil || !known {
		if t.current != nil {
			t.current.CloseIdleConnections()
		}
		t.current = t.make(slices.Sorted(maps.Keys(t.topics)))
	}
	return t.current, nil
}

// refresh asks for the state of the cluster again and waits for it, unless that was done a moment ago.
func (t *transport) refresh(ctx context.Context, addr net.Addr) {
	t.mu.Lock()
	current, early := t.current, time.Since(t.refreshed) < refreshPause
	if !early {
		t.refreshed = time.Now()
	}
	t.mu.Unlock()
	if current == nil || early {
		return
	}
	defer t.used(current)
	ctx, cancel := context.WithTimeout(ctx, metadataTTL)
	defer cancel()
	_, _ = current.RoundTrip(ctx, addr, refresh{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshed = time.Now() // it may have taken long: another goroutine that has waited for it need not wait for another
}

// close lets go of all connections that are not in use, and of the others once they are not.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// refresh makes the library refresh what it knows of the cluster. It does so after each creation of topics and has no
// other way to be asked; this is a creation of none, of which nothing is sent.
type refresh struct{}

// ApiKey returns the number of CreateTopics.
func (refresh) ApiKey() protocol.ApiKey { return protocol.CreateTopics }

// Required says that RawExchange is used.
func (refresh) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange sends nothing.
func (refresh) RawExchange(io.ReadWriter) (protocol.Message, error) {
	return &createtopics.Response{}, nil
}

// topicsOf returns the topics whose partitions' leaders a request needs to know.
func topicsOf(req kafka.Request) []string {
	var names []string
	switch r := req.(type) {
	case *fetch:
		names = append(names, r.topic)
	case *trim:
		names = append(names, r.topic)
	case *produce:
		names = append(names, r.topic)
	case *listoffsets.Request:
		for i := range r.Topics {
			names = append(names, r.Topics[i].Topic)
		}
	case *metadata.Request:
		names = r.TopicNames
	case *createtopics.Request:
		for i := range r.Topics {
			names = append(names, r.Topics[i].Name)
		}
	}
	return names
}

// track counts a connection in; false when the client is closed.
func (c *Client) track(k *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.conns[k] = struct{}{}
	return true
}

// untrack counts a connection out.
func (c *Client) untrack(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, k)
	if c.closed && len(c.conns) == 0 {
		c.gone.Do(func() { close(c.allGone) })
	}
}

// Close ends what is under way, closes all connections, and waits until nobody uses them any more. Calls after it, and
// those under way, end with an error of class [Ended]. Consumer groups of [Client.Group] are closed before. It may be
// called more than once.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	if first && len(c.conns) == 0 {
		c.gone.Do(func() { close(c.allGone) })
	}
	open := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	c.end()
	c.transport.close()
	for _, k := range open {
		_ = k.raw.Close() // who reads or writes gets an error, and closes it for good
	}
	select {
	case <-c.allGone:
		return nil
	case <-time.After(c.o.Timeout):
		return errors.New("kafka: close: connections are still in use")
	}
}
