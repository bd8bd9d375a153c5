package rebuild

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/canal/login"
	"github.com/freshet/freshet/credential"
)

// pool are the sessions on one server.
type pool struct {
	runner  *Runner
	address string
	tls     credential.TLS
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// patience bounds the making of a connection, up to its settings, and later changes of these; a command for the
	// password has its own time.
	patience time.Duration
	// wait is for how long a replica that lags is waited for, and rests how many times as long a query that takes less
	// than that runs on the source.
	wait, rests time.Duration
	// restsUntil is until when a replica is not asked, in nanoseconds of [time.Time.UnixNano]; 0: it does not rest.
	restsUntil atomic.Int64

	mu   sync.Mutex
	idle []*conn // the one used last is at the end
}

// poolOfSource returns the pool of the source.
func (r *Runner) poolOfSource() *pool {
	return &pool{runner: r, address: r.o.Address, tls: r.o.TLS, dial: r.o.Dial, patience: 5 * time.Second}
}

// with calls f with a connection. The server may have closed one that was idle, or all if it was restarted, or another
// one may have taken its place: then f is called again with a new one, for all that it does is to read.
func (p *pool) with(ctx context.Context, timeout time.Duration, f func(*conn) error) error {
	c := p.takeIdle()
	if c != nil {
		err := p.use(ctx, timeout, c, f)
		if !isLost(err) || ctx.Err() != nil {
			return err
		}
		p.closeIdle(time.Time{})
	}
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return p.use(ctx, timeout, c, f)
}

// use calls f with the connection and puts it back, or closes it if it cannot be used again.
func (p *pool) use(ctx context.Context, timeout time.Duration, c *conn, f func(*conn) error) error {
	run, cancel := context.WithTimeoutCause(ctx, timeout+p.wait+grace, errTimeout)
	defer cancel()
	defer context.AfterFunc(p.runner.life, cancel)()
	stop := context.AfterFunc(run, c.meter.abort)
	err := c.within(p.patience, func() error { return c.limitTo(timeout) })
	if err == nil {
		err = f(c)
	}
	if !stop() {
		// It was closed under f's hands, which saw a lost connection: what matters is why.
		c.close()
		switch {
		case err == nil:
			return nil
		case p.runner.life.Err() != nil:
			return errClosed
		}
		return context.Cause(run)
	}
	if err != nil && !isUsable(err) || time.Since(c.made) >= maxAge {
		c.close()
		return err
	}
	p.putIdle(c)
	return err
}

func (p *pool) takeIdle() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	p.runner.metrics.idle.Dec()
	return c
}

func (p *pool) putIdle(c *conn) {
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
	p.runner.metrics.idle.Inc()
}

// closeIdle closes connections that have been idle since before the given time; the zero time: all.
func (p *pool) closeIdle(before time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && (before.IsZero() || p.idle[n].since.Before(before)) {
		n++
	}
	old := p.idle[:n:n]
	p.idle = append([]*conn(nil), p.idle[n:]...)
	p.runner.metrics.idle.Sub(float64(n))
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// connect opens a session and sets it up.
func (p *pool) connect(ctx context.Context) (*conn, error) {
	c, err := p.open(ctx, p.tls != nil)
	if p.runner.o.TLSOptional && errors.Is(err, login.ErrNoTLS) {
		c, err = p.open(ctx, false)
	}
	if err == nil {
		return c, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case p.runner.life.Err() != nil:
		return nil, errClosed
	}
	return nil, &connectError{p.address, err}
}

func (p *pool) open(ctx context.Context, secure bool) (*conn, error) {
	dctx, cancel := context.WithTimeout(ctx, p.patience+p.runner.o.Password.Patience())
	defer cancel()
	defer context.AfterFunc(p.runner.life, cancel)()
	c := &conn{statements: map[statementKey]*statement{}, made: time.Now()}
	stop := func() bool { return true }
	// The handshake and the settings have no deadlines of their own: closing the connection ends their waits.
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		nc, err := p.dial(dctx, network, address)
		if err != nil {
			return nil, err
		}
		stop() // of the attempt before
		c.meter = &meter{Conn: nc, left: handshakeBytes}
		stop = context.AfterFunc(dctx, c.meter.abort)
		return c.meter, nil
	}
	at := login.Server{Address: p.address, User: p.runner.o.User, Password: p.runner.o.Password, Briefly: true}
	if secure {
		at.TLS = p.tls
	}
	var err error
	if c.client, err = login.Connect(dctx, at, dial); err == nil {
		err = c.settle(p.runner.o.MaxBytes)
	}
	if !stop() && err == nil {
		err = dctx.Err()
	}
	if err == nil {
		return c, nil
	}
	if c.meter != nil {
		c.meter.abort()
	}
	return nil, err
}

// handshakeBytes is more than the server says before the first query.
const handshakeBytes = 1 << 20
