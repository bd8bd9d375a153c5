package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// Direction is one way through a proxy, or both.
type Direction uint8

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy is a TCP proxy in front of one server.
type Proxy struct {
	target  atomic.Pointer[string]
	held    *port.Reservation
	inspect func() (toServer, toClient stream) // one pair for each connection

	// clientEnds closes the connection to the server as soon as the client has closed its own:
	// what the server still sends is for nobody.
	clientEnds bool

	delay    atomic.Int64 // nanoseconds
	toServer gate
	toClient gate

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the accept loops and the links

	mu       sync.Mutex // guards what follows
	listener net.Listener
	links    map[*link]struct{}
}

// New starts a proxy in front of the server at target (host:port). The server need not run
// yet. Close ends the proxy.
func New(target string) (*Proxy, error) {
	return newProxy(target, false, func() (stream, stream) { return plain{}, plain{} })
}

// Start starts a proxy that ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	return forTest(t, New, target)
}

// closer is a proxy of any kind.
type closer interface{ Close() }

// forTest starts a proxy of any kind and closes it with the test.
func forTest[P closer](t testing.TB, start func(string) (P, error), target string) P {
	t.Helper()
	p, err := start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func newProxy(target string, clientEnds bool, inspect func() (toServer, toClient stream)) (*Proxy, error) {
	p := &Proxy{clientEnds: clientEnds, inspect: inspect, links: make(map[*link]struct{})}
	p.Aim(target)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for left := 10; ; left-- {
		held, err := port.Reserve()
		if err != nil {
			return nil, err
		}
		p.held = held
		if err = p.Resume(); err == nil {
			return p, nil
		}
		held.Release()
		if left == 0 || !errors.Is(err, syscall.EADDRINUSE) { // else somebody took it who asks nobody
			p.cancel()
			return nil, err
		}
	}
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.held.Addr }

// Cut closes all connections and refuses new ones until Resume.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
	for l := range p.links {
		l.close()
	}
}

// stopListening needs p.mu.
func (p *Proxy) stopListening() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// Reset breaks all connections with a TCP reset. New ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Stall lets no byte move any more in the given direction, nor news of a closed connection,
// until Resume: both ends see a connection that is open and silent. New connections are
// accepted and are silent too. A piece that is being written just now may still arrive.
func (p *Proxy) Stall(d Direction) {
	if d&ToServer != 0 {
		p.toServer.shut()
	}
	if d&ToClient != 0 {
		p.toClient.shut()
	}
}

// Resume ends Cut and Stall. It fails only if the port was lost to somebody else.
func (p *Proxy) Resume() error {
	p.toServer.open()
	p.toClient.open()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ctx.Err() != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.held.Addr)
	if err != nil {
		return fmt.Errorf("testbed: proxy: %w", err)
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// Delay holds up each piece of data by d in each direction, as a long line would: what
// follows is not slowed down by what is before it. Zero ends it.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Aim has new connections lead to another server, as when a name or a virtual address moves. Those that there are stay.
func (p *Proxy) Aim(target string) { p.target.Store(&target) }

// Conns returns how many client connections are open.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close ends the proxy and its connections and waits for its goroutines.
func (p *Proxy) Close() {
	p.cancel()
	p.Cut()
	p.wg.Wait()
	p.held.Release()
}

// accept owns one listener, until Cut or Close closes it.
func (p *Proxy) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		l := newLink(p, c.(*net.TCPConn))
		p.mu.Lock()
		if p.listener != listener { // cut between accepting and here
			p.mu.Unlock()
			l.reset()
			l.cancel()
			continue
		}
		p.links[l] = struct{}{}
		p.wg.Go(func() {
			l.run()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
		p.mu.Unlock()
	}
}

// gate is open at first. Writers wait while it is shut.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open; closed by open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// wait returns when the gate is open, or with the context's error.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if closed == nil {
			return ctx.Err()
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
