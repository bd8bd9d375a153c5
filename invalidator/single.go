package invalidator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/invalidator/write"
)

// SingleOptions say how to reach the one Redis server that is written to.
type SingleOptions struct {
	// Address is host:port. Required, unless there are Sentinels.
	Address string
	// Sentinels, when not nil, say where the server is: the master that they know.
	Sentinels *Sentinels
	// Username and Password log in, if there is a password. It is read at each login, and once more when it is refused.
	Username string
	Password *credential.Source
	DB       int
	// Timeout bounds connecting, and every read and write. Default 1 s.
	Timeout time.Duration
	// KeyPrefix stands before the keys that freshet keeps for itself.
	KeyPrefix string
	// WaitReplicas is how many replicas must have acknowledged what is sent for it to count as acknowledged; 0: none.
	// They have half of Timeout for that, and their time counts as Redis' own: a reply that they hold up is a late one.
	WaitReplicas int
	// QueryWorkers is that of the engine's [Options]: so many connections more are kept. Default 4.
	QueryWorkers int
	// Connected, if it is there, is given each new connection before that is used. Its error ends the connection.
	Connected func(ctx context.Context, c *redis.Conn) error
	// TLS, when not nil, is used for every connection.
	TLS credential.TLS
}

// Single is a [Redis] that is one server, over go-redis. It connects when it is first used.
type Single struct {
	*endpoint
	options SingleOptions
	client  *redis.Client
	kept    chan *sticky // connections for deletes that nobody uses
	// slots says that it is a node of a cluster, or refuses what has keys of several slots all the same.
	slots atomic.Bool
}

// The buffers of a connection: a round trip of full commands goes out in few writes, and its replies are tiny.
const (
	writeBuffer = 128 << 10
	readBuffer  = 4 << 10
)

// NewSingle returns a client of the server. Close it.
func NewSingle(o SingleOptions) (*Single, error) {
	if o.Sentinels != nil {
		if err := o.Sentinels.validate(); err != nil {
			return nil, err
		}
	} else if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, fmt.Errorf("redis: address %q: want host:port: %w", o.Address, err)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.QueryWorkers == 0 {
		o.QueryWorkers = DefaultQueryWorkers
	}
	if o.DB < 0 || o.Timeout < 0 || o.QueryWorkers < 0 || o.WaitReplicas < 0 {
		return nil, errors.New("redis: db, timeout, replicas and query workers must not be negative")
	}
	s := &Single{endpoint: newEndpoint(&o), options: o, kept: make(chan *sticky, tripsInFlight+1)}
	// One pool, for as many as use it at once: the writers, each with a connection kept for deletes and one for all
	// else, the prober, those who rebuild by query, each of these has somebody who renews its lock, and what asks Redis
	// besides the engine.
	c := s.clientOptions()
	c.PoolSize, c.PipelinePoolSize = 2*(tripsInFlight+1)+4+2*o.QueryWorkers, -1
	c.WriteBufferSize, c.ReadBufferSize = writeBuffer, readBuffer
	s.client = redis.NewClient(c)
	return s, nil
}

// clientOptions are what all clients of the server have in common.
func (s *Single) clientOptions() *redis.Options {
	o := &s.options
	return &redis.Options{
		// A connection is handed over logged in.
		Addr: o.Address, DB: o.DB,
		Dialer: s.counted, OnConnect: o.Connected,
		// RESP2: there is nothing to be pushed to us. Servers that lack HELLO do as well.
		Protocol: 2, DisableIdentity: true,
		// The caller sees every failure, and its own deadlines count.
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: s.patience(), ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// lookLives is for how long a connection of [Single.Looking] is used: for the questions of one look.
const lookLives = 500 * time.Millisecond

// Looking returns a client that makes a new connection for each look at the server, so that it finds out when the
// address leads to another one. The caller closes it.
func (s *Single) Looking() *redis.Client {
	c := s.clientOptions()
	c.Dialer, c.OnConnect = s.look, nil
	c.PoolSize, c.ConnMaxLifetime = 1, lookLives
	return redis.NewClient(c)
}

// Client returns the client for questions that the engine does not ask. It is closed with s.
func (s *Single) Client() *redis.Client { return s.client }

// Do implements [Redis].
func (s *Single) Do(ctx context.Context, calls []*write.Call) {
	s.do(ctx, calls)
	if !slices.ContainsFunc(calls, func(c *write.Call) bool { return isNoScript(c.Err) }) {
		return
	}
	// Redis was started again, or has never seen them. All are loaded and all calls sent again, for a call may build
	// upon the one before it. To repeat them does no harm; calls that must not be repeated for nothing use no scripts.
	if err := s.loadScripts(ctx); err != nil {
		for _, c := range calls {
			c.Reply, c.Err = nil, err
		}
		return
	}
	s.do(ctx, calls)
}

func isNoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// do sends the calls in one round trip, several in one where they can share it. Those that Redis refused together are
// sent once more, each alone, for an answer of its own. So is all that stands after them, which would else have been
// done before them.
func (s *Single) do(ctx context.Context, calls []*write.Call) {
	packed := write.Pack(calls, s.slots.Load())
	s.exchange(ctx, packed)
	var again []*write.Call
	for _, p := range packed {
		if len(again) > 0 {
			again = append(again, p.Calls...)
			continue
		}
		err := p.Calls[0].Err
		if len(p.Calls) == 1 || err == nil || isNoScript(err) {
			continue
		}
		var answer redis.Error
		if !errors.As(err, &answer) {
			continue
		}
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			s.slots.Store(true)
		}
		again = p.Calls
	}
	if len(again) > 0 {
		s.exchange(ctx, write.Alone(again))
	}
}

// exchange sends commands in one round trip, and gives each call its answer.
func (s *Single) exchange(ctx context.Context, packed []write.Packed) {
	pipe := s.client.Pipeline()
	replies := make([]redis.Cmd, len(packed))
	for i, p := range packed {
		queueAsking(ctx, pipe, p.Calls[0].Asking)
		replies[i] = *redis.NewCmd(ctx, p.Args...) // together: one piece of memory for all
		_ = pipe.Process(ctx, &replies[i])         // only queues
	}
	keyed := packed[max(0, slices.IndexFunc(packed, func(p write.Packed) bool { return p.Calls[0].Key() != "" }))].Calls[0]
	waited := s.waitIn(ctx, pipe, keyed.Key(), keyed.Asking)
	_, failed := pipe.Exec(ctx)
	answered := false
	for i := range replies {
		answered = answered || replies[i].Err() != nil || replies[i].Val() != nil
	}
	if answered || waited.made(failed) { // as in Unlink
		failed = nil
	}
	s.despite(ctx, waited)
	for i, p := range packed {
		reply, err := replies[i].Result()
		if errors.Is(err, redis.Nil) {
			reply, err = nil, nil
		}
		if failed != nil {
			err = failed
		}
		if err == nil {
			err = s.unreplicated(waited)
		}
		p.Answer(reply, err)
	}
}

// queueAsking has the next command of a pipeline served by the node that its slot is being moved to.
func queueAsking(ctx context.Context, pipe redis.Pipeliner, asking bool) {
	if asking {
		_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking")) // only queues
	}
}

// loadScripts gives Redis all scripts, in one round trip.
func (s *Single) loadScripts(ctx context.Context) error {
	pipe := s.client.Pipeline()
	for _, script := range write.Scripts() {
		pipe.ScriptLoad(ctx, script.Source)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Ping implements [Redis]. A user who may not run PING is answered all the same, and an answer is what it asks for:
// whether keys can be deleted is for deletes to find out.
func (s *Single) Ping(ctx context.Context) error {
	err := s.client.Ping(ctx).Err()
	if redis.IsPermissionError(err) {
		return nil
	}
	return err
}

// Time implements [Redis].
func (s *Single) Time(ctx context.Context) (time.Time, error) { return s.client.Time(ctx).Result() }

// Dials implements [Redis].
func (s *Single) Dials() int64 { return s.dials.Load() }

// Close closes the connections. Nothing may be under way.
func (s *Single) Close() error {
	s.endpoint.close()
	for {
		select {
		case c := <-s.kept:
			_ = c.Close()
		default:
			return s.client.Close()
		}
	}
}
