package connect

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator"
)

// Redis makes the connections to Redis. None is opened yet. Each is handed to connected, if there is one, before it is
// used.
func Redis(c *config.Config, connected func(ctx context.Context, c *redis.Conn)) (*invalidator.Single, error) {
	o, err := single(c)
	if err != nil {
		return nil, err
	}
	o.Connected = connected
	return invalidator.NewSingle(o)
}

// RedisOptions return how to reach Redis for some questions, each asked once.
func RedisOptions(c *config.Config) (*redis.Options, error) {
	o, err := single(c)
	if err != nil {
		return nil, err
	}
	return o.Client(), nil
}

func single(c *config.Config) (invalidator.SingleOptions, error) {
	tls, err := c.Redis.TLS.Client()
	if err != nil {
		return invalidator.SingleOptions{}, fmt.Errorf("redis.tls: %w", err)
	}
	return invalidator.SingleOptions{
		Address: c.Redis.Addresses[0], Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), DB: c.Redis.DB,
		Timeout: c.Redis.Timeout, TLS: tls,
	}, nil
}
