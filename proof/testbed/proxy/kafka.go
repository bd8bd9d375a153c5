package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
)

// API is the kind of a Kafka request, its api_key in the protocol guide.
type API int16

// The requests that an event log makes.
const (
	Produce         API = 0
	Fetch           API = 1
	ListOffsets     API = 2
	Metadata        API = 3
	OffsetCommit    API = 8
	OffsetFetch     API = 9
	FindCoordinator API = 10
	JoinGroup       API = 11
	Heartbeat       API = 12
	LeaveGroup      API = 13
	SyncGroup       API = 14
	CreateTopics    API = 19
)

// Request is a request of a Kafka client, about to be passed to the broker.
type Request struct {
	API API
	N   int // its number among the requests of its kind, from 1, over all connections
	// Begins is what the request begins with, up to 1 KiB, with the topic's name as text. Of a small record that is not
	// compressed it has the key and the value as well.
	Begins string
}

// requestHead is how much of a request is held back until the hook has seen it: api_key, api_version, correlation_id,
// and what follows.
const requestHead = 1 << 10

// Kafka is a proxy in front of a Kafka broker that tells the requests of its clients apart. A
// connection with TLS passes unread.
type Kafka struct {
	*Proxy

	mu   sync.Mutex // guards what follows
	seen map[API]int
	hook func(Request) Action
}

// NewKafka starts a proxy in front of the broker at target (host:port). A client goes to the
// address that the broker advertises, so that must be the proxy's.
func NewKafka(target string) (*Kafka, error) {
	p := &Kafka{seen: make(map[API]int)}
	var err error
	p.Proxy, err = newProxy(target, false, func() (stream, stream) {
		c := &kafkaConn{proxy: p, lose: make(map[int32]struct{})}
		return &kafkaToServer{kafkaConn: c}, &kafkaToClient{kafkaConn: c}
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartKafka starts a proxy that ends with the test.
func StartKafka(t testing.TB, target string) *Kafka {
	t.Helper()
	return forTest(t, NewKafka, target)
}

// OnRequest has hook asked about every request, before it is passed on: [DropReply] loses the
// reply to a request that took effect, and [DropCommand] the request; the connection is reset
// either way. The hook may block, which holds up its connection. nil lets all pass.
func (p *Kafka) OnRequest(hook func(Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Requests returns how many requests of a kind have come.
func (p *Kafka) Requests(api API) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[api]
}

// ask counts a request and asks the hook about it, outside the lock: it may block.
func (p *Kafka) ask(request []byte) Action {
	r := Request{API: API(binary.BigEndian.Uint16(request))}
	p.mu.Lock()
	p.seen[r.API]++
	r.N = p.seen[r.API]
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return Forward
	}
	r.Begins = string(request)
	return hook(r)
}

var (
	errRequestDropped = errors.New("the request is dropped")
	errReplyDropped   = errors.New("the reply is dropped")
)

// tlsHandshake is the first byte of a connection with TLS. A request that began so would have
// more than 300 MB.
const tlsHandshake = 0x16

// kafkaConn is what the two directions of one connection share.
type kafkaConn struct {
	proxy *Kafka

	mu     sync.Mutex // guards what follows
	opaque bool       // TLS; decided by the client's first byte, before the broker says anything
	lose   map[int32]struct{}
}

func (c *kafkaConn) isOpaque() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opaque
}

// frames cuts a direction into messages: a length of four bytes and what follows. Only the
// head of a message is held back until it is complete.
type frames struct {
	head []byte
	left int // bytes of the current message that are still to pass
}

// pass writes b to out, and calls begin with the length and the first n bytes after it of each
// message before it passes; with fewer bytes if the message is shorter.
func (f *frames) pass(b []byte, out gated, n int, begin func(head []byte) error) error {
	for len(b) > 0 {
		if f.left > 0 {
			k := min(f.left, len(b))
			if _, err := out.Write(b[:k]); err != nil {
				return err
			}
			f.left -= k
			b = b[k:]
			continue
		}
		want := 4
		if len(f.head) >= 4 {
			want += min(n, f.size())
		}
		k := min(want-len(f.head), len(b))
		f.head = append(f.head, b[:k]...)
		b = b[k:]
		if len(f.head) < 4 || len(f.head) < 4+min(n, f.size()) {
			continue
		}
		if err := begin(f.head); err != nil {
			return err
		}
		if _, err := out.Write(f.head); err != nil {
			return err
		}
		f.left = f.size() + 4 - len(f.head)
		f.head = f.head[:0]
	}
	return nil
}

// size is the length of the message whose head has begun.
func (f *frames) size() int { return int(binary.BigEndian.Uint32(f.head)) }

// kafkaToServer reads requests: length, api_key, api_version, correlation_id, and the rest.
type kafkaToServer struct {
	*kafkaConn

	frames frames
	begun  bool
}

func (s *kafkaToServer) pass(ctx context.Context, b []byte, out gated) error {
	if !s.begun && len(b) > 0 {
		s.begun = true
		s.mu.Lock()
		s.opaque = b[0] == tlsHandshake
		s.mu.Unlock()
	}
	if s.isOpaque() {
		return plain{}.pass(ctx, b, out)
	}
	return s.frames.pass(b, out, requestHead, func(head []byte) error {
		if len(head) < 12 {
			return nil // too short for a request: a token of an old way to log in
		}
		switch s.proxy.ask(head[4:]) {
		case DropCommand:
			return errRequestDropped
		case DropReply:
			s.mu.Lock()
			s.lose[int32(binary.BigEndian.Uint32(head[8:]))] = struct{}{}
			s.mu.Unlock()
		}
		return nil
	})
}

// kafkaToClient reads responses: length, correlation_id, and the rest.
type kafkaToClient struct {
	*kafkaConn

	frames frames
}

func (s *kafkaToClient) pass(ctx context.Context, b []byte, out gated) error {
	if s.isOpaque() {
		return plain{}.pass(ctx, b, out)
	}
	return s.frames.pass(b, out, 4, func(head []byte) error {
		if len(head) < 8 {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, lose := s.lose[int32(binary.BigEndian.Uint32(head[4:]))]; lose {
			return errReplyDropped
		}
		return nil
	})
}
