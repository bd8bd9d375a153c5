package localcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener listens to a channel that freshet publishes to, with the key as message. Redis keeps no message for a client
// that is away, so everything is lost with the connection.
type Listener struct {
	Redis   *redis.Client
	Channel string
	// Handler is told.
	Handler Handler
}

// Run listens until ctx ends. While Redis is away it tries again forever.
func (l *Listener) Run(ctx context.Context, failed func(error)) {
	for ctx.Err() == nil {
		if err := l.listen(ctx); err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("listen to the channel %s: %w", l.Channel, err))
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// listen listens for as long as the connection lasts.
func (l *Listener) listen(ctx context.Context) error {
	sub := l.Redis.Subscribe(ctx, l.Channel)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil { // that it is subscribed
		return err
	}
	// What was loaded before may be older than the first message.
	l.Handler.Lost()
	var asked time.Time // since when an answer is waited for
	for ctx.Err() == nil {
		answer, err := sub.ReceiveTimeout(ctx, wait)
		var silence net.Error
		switch {
		case errors.As(err, &silence) && silence.Timeout() && asked.IsZero():
			// Nothing was published, or the line is dead: an answer to a ping comes after all that was published
			// before it.
			asked = time.Now()
			err = sub.Ping(ctx)
		case errors.As(err, &silence) && silence.Timeout():
			err = errors.New("no answer to a ping")
		}
		if err != nil {
			return err
		}
		switch answer := answer.(type) {
		case *redis.Message:
			l.Handler.Changed(answer.Payload)
		case *redis.Pong:
			l.Handler.Current(asked)
			asked = time.Time{}
		}
	}
	return nil
}
