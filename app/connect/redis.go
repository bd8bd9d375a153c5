package connect

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator"
)

// Redis makes the connections to Redis. None is opened yet. What each of them answers to INFO goes to connected.
func Redis(c *config.Config, connected func(info string, err error)) (*invalidator.Single, error) {
	tls, err := c.Redis.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	return invalidator.NewSingle(invalidator.SingleOptions{
		Address: c.Redis.Addresses[0], Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), DB: c.Redis.DB,
		Timeout: c.Redis.Timeout, TLS: tls, Connected: connected,
	})
}

// RedisOptions return how to reach Redis for some questions, each asked once.
func RedisOptions(c *config.Config) (*redis.Options, error) {
	tls, err := c.Redis.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	return &redis.Options{
		Addr: c.Redis.Addresses[0], Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), DB: c.Redis.DB,
		TLSConfig:   tls,
		DialTimeout: c.Redis.Timeout, ReadTimeout: c.Redis.Timeout, MaxRetries: -1, DialerRetries: 1,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}
