package proxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Ack is what became of one command that had a given key.
type Ack struct {
	Command string    // upper-case, as UNLINK
	Sent    time.Time // just before the command was passed to the server
	Acked   time.Time // just before its reply was passed to the client; zero if it was not
	Err     string    // the server's error, or ""
}

// Command is a command that writes, about to be passed to the server.
type Command struct {
	N    int    // its number among such commands, from 1, over all connections
	Name string // upper-case
	Keys []string
}

// Action says what to do with a command.
type Action uint8

const (
	// Forward lets command and reply pass.
	Forward Action = iota
	// DropReply passes the command, swallows its reply and resets the connection: the command
	// took effect and the client does not know. Replies before it still pass.
	DropReply
	// DropCommand resets the connection before the command is passed.
	DropCommand
)

// RESP is a proxy in front of a Redis server that keeps a log of the commands with keys. A
// command counts as a write unless it is known to only read. Within MULTI a command is
// acknowledged by the reply to EXEC. A connection that subscribes, monitors or turns replies
// off passes unread from there on.
type RESP struct {
	*Proxy

	mu    sync.Mutex // guards what follows, and the acks of all commands
	keys  map[string][]*logged
	n     int
	hook  func(Command) Action
	total Totals
}

// Totals counts what has passed.
type Totals struct {
	Writes int // commands that write, passed to the server
	Acked  int // keys of such commands whose reply passed to the client without an error
	Failed int // keys of such commands whose reply was an error
}

// logged is one command in the log.
type logged struct {
	ack    Ack
	keys   int
	writes bool
}

// NewRESP starts a logging proxy in front of the Redis server at target (host:port).
func NewRESP(target string) (*RESP, error) {
	p := &RESP{keys: make(map[string][]*logged)}
	var err error
	p.Proxy, err = newProxy(target, false, func() (stream, stream) {
		c := &respConn{proxy: p}
		return (*respToServer)(c), (*respToClient)(c)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartRESP starts a logging proxy that ends with the test.
func StartRESP(t testing.TB, target string) *RESP {
	t.Helper()
	return forTest(t, NewRESP, target)
}

// OnCommand has hook asked about every command that writes, before it is passed on. The hook
// may block, which holds up its connection. nil lets all pass.
func (p *RESP) OnCommand(hook func(Command) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Acks returns what became of the commands with this key, in the order they were sent.
func (p *RESP) Acks(key string) []Ack {
	p.mu.Lock()
	defer p.mu.Unlock()
	var acks []Ack
	for _, c := range p.keys[key] {
		acks = append(acks, c.ack)
	}
	return acks
}

// Keys returns the keys of all commands in the log, sorted.
func (p *RESP) Keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := make([]string, 0, len(p.keys))
	for k := range p.keys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Totals returns how much has passed since the start or the last Forget.
func (p *RESP) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Forget empties the log and resets numbers and totals. The reply
// of a command that is under way still counts.
func (p *RESP) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.keys)
	p.n, p.total = 0, Totals{}
}

// admit logs a command and asks the hook about it.
func (p *RESP) admit(name string, words [][]byte, now time.Time) (*logged, Action) {
	keys, writes := commandKeys(name, words)
	if len(keys) == 0 {
		return nil, Forward
	}
	p.mu.Lock()
	n, hook := p.n, p.hook
	if writes {
		p.n++
		n = p.n
	}
	p.mu.Unlock()
	action := Forward
	if writes && hook != nil {
		action = hook(Command{N: n, Name: name, Keys: keys})
		now = time.Now() // it may have blocked
	}
	if action == DropCommand {
		return nil, action
	}
	c := &logged{ack: Ack{Command: name, Sent: now}, keys: len(keys), writes: writes}
	p.mu.Lock()
	defer p.mu.Unlock()
	if writes {
		p.total.Writes++
	}
	for _, k := range keys {
		p.keys[k] = append(p.keys[k], c)
	}
	return c, action
}

// settle notes replies that are about to be passed to the client.
func (p *RESP) settle(done []settled, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range done {
		if d.command != nil {
			d.command.ack.Acked, d.command.ack.Err = now, d.err
			p.count(d, 1)
		}
	}
}

// unsettle takes settle back: the client was gone.
func (p *RESP) unsettle(done []settled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range done {
		if d.command != nil {
			d.command.ack.Acked, d.command.ack.Err = time.Time{}, ""
			p.count(d, -1)
		}
	}
}

// count adds the keys of a settled command to the totals, or takes them back. It needs p.mu.
func (p *RESP) count(d settled, sign int) {
	switch {
	case !d.command.writes:
	case d.err == "":
		p.total.Acked += sign * d.command.keys
	default:
		p.total.Failed += sign * d.command.keys
	}
}

// settled is a command whose reply is known.
type settled struct {
	command *logged // nil if it has no keys
	err     string
}

// pending is a command that waits for its reply.
type pending struct {
	name    string
	command *logged // nil if it has no keys
	drop    bool    // swallow the reply and reset
}

// respConn is one connection through the proxy.
type respConn struct {
	proxy *RESP

	mu      sync.Mutex // guards what follows: one direction adds, the other takes
	pending []pending
	opaque  bool // the connection is not read any more

	requests  []byte // of the direction to the server: an incomplete command
	words     [][]byte
	responses []byte    // of the direction to the client: an incomplete reply
	queued    []*logged // of the direction to the client: commands between MULTI and EXEC
}

func (c *respConn) isOpaque() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opaque
}

// respToServer is the direction to the server of a connection.
type respToServer respConn

// pass forwards whole commands, having noted them first.
func (c *respToServer) pass(_ context.Context, b []byte, out gated) error {
	conn := (*respConn)(c)
	if conn.isOpaque() {
		_, err := out.Write(b)
		return err
	}
	c.requests = append(c.requests, b...)
	end, stop := 0, error(nil)
	now := time.Now()
	for stop == nil {
		words, n, err := parseCommand(c.requests[end:], c.words)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		c.words = words
		if len(words) > 0 && conn.submit(words, now) == DropCommand {
			stop = errDropped
			break
		}
		end += n
		if conn.isOpaque() {
			end = len(c.requests)
			break
		}
	}
	if _, err := out.Write(c.requests[:end]); err != nil {
		return err
	}
	c.requests = append(c.requests[:0], c.requests[end:]...)
	return stop
}

// submit notes one command as waiting for its reply.
func (c *respConn) submit(words [][]byte, now time.Time) Action {
	name := strings.ToUpper(string(words[0]))
	command, action := c.proxy.admit(name, words, now)
	if action == DropCommand {
		return action
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opaque = isOpaque(name, words)
	c.pending = append(c.pending, pending{name: name, command: command, drop: action == DropReply})
	return action
}
