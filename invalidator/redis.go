package invalidator

import (
	"context"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/invalidator/write"
)

// The sizes of what is sent to Redis. A command blocks Redis while it runs, so it is kept to some 100 µs; several of
// them share a round trip, and several round trips are under way at a time.
const (
	commandKeys   = 500
	tripCommands  = 4
	tripKeys      = commandKeys * tripCommands
	tripsInFlight = 4
	// A command of long keys has fewer: so many bytes of them at most, but for a longer one.
	commandBytes = 64 << 10
	// A round trip of calls, each of which does more: so many calls and bytes at most, but for an item of more.
	tripCalls = 500
	tripBytes = 1 << 20
	// A round trip of the gentle lane, of which one is under way: what takes Redis some 0.2 ms, 10 calls of the guard or
	// 100 deletes. At a pace there are so many round trips of calls in a second.
	gentleKeys  = 100
	gentleCalls = 10
	gentleBytes = 64 << 10
	gentleTrips = 1000
	// gentleAhead is how many keys a partition on it fetches ahead. What waits for long is too old to be written.
	gentleAhead = 1000
)

// Redis is one Redis node. It retries nothing itself: the engine must see every lost connection, and decides again what
// is sent ([write.Item.Judge]). An error that is errUnused or errLeft says nothing of Redis. Its methods may be called
// by several goroutines at once.
type Redis interface {
	// Unlink sends the commands in one round trip and gives each its outcome: Found and Err. An Err that is no
	// answer of Redis means that the command may or may not have taken effect. Neither the commands nor their keys
	// are kept.
	Unlink(ctx context.Context, commands []*Command)
	// Do sends the calls in one round trip, in their order down one connection, and gives each its outcome: Reply and
	// Err, as for Unlink. A script that Redis does not have is loaded, and all calls are sent again.
	Do(ctx context.Context, calls []*write.Call)
	// Ping asks Redis whether it is there.
	Ping(ctx context.Context) error
	// Time asks Redis for the time of its clock.
	Time(ctx context.Context) (time.Time, error)
	// Dials returns how many connections have been made.
	Dials() int64
	// String names the node for the operator: its address.
	String() string
}

// Command is one UNLINK of up to as many keys as it was made for. It is reused: filling it allocates nothing.
type Command struct {
	// Found is how many of the keys existed, if Err is nil.
	Found int64
	// Err is this command's own error.
	Err error
	// Asking sends ASKING before it: the slot of its key is being moved to the node.
	Asking bool

	keys  []string
	args  []any         // the command's name, then pointers to all of keys' capacity
	reply *redis.IntCmd // to args for as many keys as it was last sent with
	sent  int
}

// newCommand returns a command for up to n keys.
func newCommand(n int) *Command {
	c := &Command{keys: make([]string, 0, n), args: make([]any, 0, n+1)}
	c.args = append(c.args, "unlink")
	for i := range n {
		c.args = append(c.args, &c.keys[:n][i])
	}
	return c
}

// Len returns the number of keys.
func (c *Command) Len() int { return len(c.keys) }

// Key returns the i-th key.
func (c *Command) Key(i int) string { return c.keys[i] }

// Args returns the command as it is sent: a string, then a *string for each key. It is valid until the command is
// filled again.
func (c *Command) Args() []any { return c.args[:1+len(c.keys)] }

// queue returns the command for go-redis to send, and to put its reply in.
func (c *Command) queue() *redis.IntCmd {
	if c.reply == nil || c.sent != len(c.keys) {
		c.reply, c.sent = redis.NewIntCmd(context.Background(), c.Args()...), len(c.keys) // only Clone needs a context
	}
	c.reply.SetVal(0)
	c.reply.SetErr(nil)
	return c.reply
}

func (c *Command) full() bool { return len(c.keys) == cap(c.keys) }

func (c *Command) reset() {
	clear(c.keys)
	c.keys, c.Found, c.Err, c.Asking = c.keys[:0], 0, nil, false
}

// keyText makes keys out of a prefix and a rest, in memory that is used again for each round trip.
type keyText struct {
	prefix string
	buf    []byte
}

func (t *keyText) reset() { t.buf = t.buf[:0] }

// key returns prefix + rest. It stays valid until reset, for when the buffer grows the old one is left behind.
func (t *keyText) key(rest string) string {
	if t.prefix == "" {
		return rest
	}
	from := len(t.buf)
	t.buf = append(append(t.buf, t.prefix...), rest...)
	return unsafe.String(&t.buf[from], len(t.buf)-from)
}

func (c *Command) add(key string) { c.keys = append(c.keys, key) }
