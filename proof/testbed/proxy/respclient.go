package proxy

import (
	"context"
	"errors"
	"time"
)

// errDropped breaks a connection on purpose.
var errDropped = errors.New("testbed: dropped by the test")

// respToClient is the direction to the client of a connection.
type respToClient respConn

// pass notes whole replies as acknowledged and forwards them.
func (c *respToClient) pass(_ context.Context, b []byte, out gated) error {
	conn := (*respConn)(c)
	c.responses = append(c.responses, b...)
	var done []settled
	end, drop := 0, false
	for !drop {
		next, ok := conn.next()
		if !ok { // nothing is awaited: opaque, or a push out of turn
			if conn.isOpaque() {
				end = len(c.responses)
				break
			}
			next = pending{}
		}
		r, n, err := parseReply(c.responses[end:], next.name == "EXEC")
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if r.push {
			end += n
			continue
		}
		conn.answered()
		if drop = next.drop; drop {
			break
		}
		end += n
		done = conn.resolve(done, next, r)
	}
	// Noted first, so that a client which has its reply finds it in the log.
	if err := out.wait(); err != nil {
		return err
	}
	conn.proxy.settle(done, time.Now())
	if _, err := out.Write(c.responses[:end]); err != nil {
		conn.proxy.unsettle(done)
		return err
	}
	c.responses = append(c.responses[:0], c.responses[end:]...)
	if drop {
		return errDropped
	}
	return nil
}

// next returns the command that the next reply belongs to.
func (c *respConn) next() (pending, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return pending{}, false
	}
	return c.pending[0], true
}

// answered takes the oldest command off.
func (c *respConn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 {
		c.pending = c.pending[1:]
	}
}

// resolve adds to done the commands that reply r settles; one without keys is nil. Between MULTI and EXEC it is the
// reply to EXEC that settles them.
func (c *respConn) resolve(done []settled, p pending, r reply) []settled {
	switch {
	case p.name == "EXEC":
		for i, q := range c.queued {
			done = append(done, settled{q, execError(r, i)})
		}
		c.queued = nil
	case p.name == "DISCARD":
		for _, q := range c.queued {
			done = append(done, settled{q, "DISCARD"})
		}
		c.queued = nil
	case r.kind == '+' && r.text == "QUEUED":
		c.queued = append(c.queued, p.command) // also without keys: EXEC answers for each
	case p.command != nil:
		done = append(done, settled{p.command, r.err()})
	}
	return done
}

// execError is what EXEC's reply says of the i-th command.
func execError(r reply, i int) string {
	switch {
	case r.err() != "":
		return r.err()
	case r.null:
		return "EXEC aborted"
	case i < len(r.elems):
		return r.elems[i]
	}
	return ""
}
