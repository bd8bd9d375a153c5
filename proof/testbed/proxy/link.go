package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkBytes  = 64 << 10
	queueChunks = 16 // read ahead at most this many chunks in each direction
)

// stream handles what passes in one direction of one connection, in order: it writes to out
// what shall pass. An error breaks the connection with a reset.
type stream interface {
	pass(ctx context.Context, b []byte, out gated) error
}

// plain lets everything pass.
type plain struct{}

func (plain) pass(_ context.Context, b []byte, out gated) error {
	_, err := out.Write(b)
	return err
}

// link is one proxied connection.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends when the link is closed
	cancel context.CancelFunc

	mu     sync.Mutex // guards what follows
	server *net.TCPConn
	closed bool
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l
}

// run moves bytes until the link is closed or both ends have finished.
func (l *link) run() {
	defer l.cancel()
	var d net.Dialer
	c, err := d.DialContext(l.ctx, "tcp", *l.proxy.target.Load())
	if err != nil {
		l.reset()
		return
	}
	server := c.(*net.TCPConn)
	if !l.connected(server) {
		return
	}
	toServer, toClient := l.proxy.inspect()
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(server, l.client, &l.proxy.toServer, toServer) })
	wg.Go(func() { l.pump(l.client, server, &l.proxy.toClient, toClient) })
	wg.Wait()
	l.close()
}

// connected notes the connection to the server; false if the link was closed meanwhile.
func (l *link) connected(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		server.Close()
		return false
	}
	l.server = server
	return true
}

// close ends the link. The two ends see the connection closed.
func (l *link) close() { l.end(false) }

// reset ends the link. The two ends see a TCP reset.
func (l *link) reset() { l.end(true) }

func (l *link) end(abrupt bool) {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c == nil {
			continue
		}
		if abrupt {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
}

// chunk is a piece of data on its way.
type chunk struct {
	buf *[chunkBytes]byte
	n   int
	due time.Time // zero: at once
}

var buffers = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// pump moves one direction. The reader runs ahead of the writer, so that a delay adds to the
// latency and not to the time between two pieces.
func (l *link) pump(dst, src *net.TCPConn, g *gate, s stream) {
	queue := make(chan chunk, queueChunks)
	var wg sync.WaitGroup
	wg.Go(func() { l.write(dst, queue, g, s) })
	if err := l.read(src, queue); err != nil {
		l.reset()
	}
	close(queue) // the writer passes the end on when it gets there
	wg.Wait()
}

// read fills the queue until the source ends (nil) or breaks.
func (l *link) read(src *net.TCPConn, queue chan<- chunk) error {
	for {
		buf := buffers.Get().(*[chunkBytes]byte)
		n, err := src.Read(buf[:])
		if n > 0 {
			c := chunk{buf: buf, n: n}
			if d := l.proxy.delay.Load(); d > 0 {
				c.due = time.Now().Add(time.Duration(d))
			}
			select {
			case queue <- c:
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		} else {
			buffers.Put(buf)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// write empties the queue. At its end it closes the destination for writing, or both ends if
// the protocol has no use for a connection that is closed in one direction.
func (l *link) write(dst *net.TCPConn, queue <-chan chunk, g *gate, s stream) {
	out := gated{l.ctx, g, dst}
	broken := false
	for c := range queue {
		if !broken {
			l.awaitDue(c.due)
			if err := s.pass(l.ctx, c.buf[:c.n], out); err != nil {
				l.reset()
				broken = true // empty the queue for the reader, who will notice
			}
		}
		buffers.Put(c.buf)
	}
	switch {
	case broken || g.wait(l.ctx) != nil:
	case dst == l.server && l.proxy.clientEnds:
		l.close()
	default:
		_ = dst.CloseWrite()
	}
}

func (l *link) awaitDue(due time.Time) {
	if due.IsZero() {
		return
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

// gated writes to a connection while the gate is open.
type gated struct {
	ctx  context.Context
	gate *gate
	conn *net.TCPConn
}

// wait returns when the gate is open.
func (g gated) wait() error { return g.gate.wait(g.ctx) }

func (g gated) Write(b []byte) (int, error) {
	if err := g.wait(); err != nil {
		return 0, err
	}
	return g.conn.Write(b)
}
