package invalidator

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// sticky is a connection that deletes keep between round trips, so that the pool and the state of the socket are not
// looked at for each. One goroutine at a time uses it.
type sticky struct {
	*redis.Conn
	used time.Time
}

// sticky returns a connection that nobody uses.
func (s *Single) sticky() *sticky {
	select {
	case c := <-s.kept:
		if time.Since(c.used) < trusted {
			return c
		}
		_ = c.Close() // back to the pool, which looks at it before it hands it out
	default:
	}
	return &sticky{Conn: s.client.Conn()}
}

// release keeps the connection for the next round trip if this one was good. After any error it goes back to the pool,
// which knows those that cannot be used again.
func (s *Single) release(c *sticky, good bool) {
	if good {
		c.used = time.Now()
		select {
		case s.kept <- c:
			return
		default:
		}
	}
	_ = c.Close()
}

// Unlink implements [Redis].
func (s *Single) Unlink(ctx context.Context, commands []*Command) {
	conn := s.sticky()
	// A single command, as in quiet times: a pipeline would cost more.
	if len(commands) == 1 && s.options.WaitReplicas == 0 && !commands[0].Asking {
		c := commands[0]
		_ = conn.Process(ctx, c.queue())
		c.Found, c.Err = c.reply.Result()
		s.release(conn, c.Err == nil)
		return
	}
	pipe := conn.Pipeline()
	queued := make([]redis.Cmder, 0, len(commands)+4)
	for _, c := range commands {
		if c.Asking {
			queued = append(queued, redis.NewStatusCmd(ctx, "asking"))
		}
		queued = append(queued, c.queue())
	}
	_ = pipe.BatchProcess(ctx, queued...) // only queues
	waited := s.waitIn(ctx, pipe, commands[0].Key(0), commands[0].Asking)
	_, err := pipe.Exec(ctx)
	failed := false
	for _, c := range commands {
		c.Found, c.Err = c.reply.Result()
		failed = failed || c.Err != nil
	}
	if err != nil && !failed && !waited.made(err) {
		// Redis refused the connection (NOAUTH, WRONGPASS, LOADING while it was set up): go-redis tells that by
		// the pipeline's error alone, and leaves the commands, which were never sent, as if they had passed.
		for _, c := range commands {
			c.Err = err
		}
	}
	s.release(conn, err == nil && !failed)
	s.despite(ctx, waited)
	for _, c := range commands {
		if c.Err == nil {
			c.Err = s.unreplicated(waited)
		}
	}
}
