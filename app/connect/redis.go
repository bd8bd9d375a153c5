package connect

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/scope"
)

// Redis makes the connections to the one Redis server that there is without a cluster. None is opened yet. Each is
// handed to connected, if there is one, before it is used.
func Redis(c *config.Config, connected func(ctx context.Context, c *redis.Conn) error) (*invalidator.Single, error) {
	o := invalidator.SingleOptions{
		Username: c.Redis.Username, Password: c.Redis.Password.Source(), DB: c.Redis.DB,
		Timeout: c.Redis.Timeout, TLS: c.Redis.TLS.Client("redis.tls"), Connected: connected,
		WaitReplicas: c.Redis.WaitReplicas, KeyPrefix: c.Redis.KeyPrefix,
	}
	if c.Redis.Mode == config.RedisSentinel {
		o.Sentinels = Sentinels(c)
	} else {
		o.Address = c.Redis.Addresses[0]
	}
	return invalidator.NewSingle(o)
}

// Cluster makes the connections to the nodes of a Redis Cluster. None is opened yet.
func Cluster(c *config.Config) (*invalidator.Nodes, error) {
	return invalidator.NewNodes(invalidator.ClusterOptions{Seeds: c.Redis.Addresses, Node: invalidator.SingleOptions{
		Username: c.Redis.Username, Password: c.Redis.Password.Source(), DB: c.Redis.DB, Timeout: c.Redis.Timeout,
		TLS: c.Redis.TLS.Client("redis.tls"), WaitReplicas: c.Redis.WaitReplicas,
		KeyPrefix: c.Redis.KeyPrefix,
	}})
}

// Sentinels are those of the configuration, with its redis.tls.
func Sentinels(c *config.Config) *invalidator.Sentinels {
	return &invalidator.Sentinels{
		Name: c.Redis.MasterName, Addresses: c.Redis.Addresses, Timeout: c.Redis.Timeout,
		TLS:      c.Redis.TLS.Client("redis.tls"),
		Username: c.Redis.SentinelUsername, Password: c.Redis.SentinelPassword.Source(),
	}
}

// Searched makes the connections through which keys are looked for: in the one server, or in all masters of a cluster.
// The caller closes them.
func Searched(c *config.Config) (redis scope.Redis, closes func() error, err error) {
	if c.Redis.Mode == config.RedisCluster {
		nodes, err := Cluster(c)
		if err != nil {
			return nil, nil, err
		}
		return &scope.Cluster{Masters: nodes.Masters}, nodes.Close, nil
	}
	server, err := Redis(c, nil)
	if err != nil {
		return nil, nil, err
	}
	return scope.Single{Client: server.Client()}, server.Close, nil
}

// RedisName names Redis in messages, and in doubts about it: the address, the name by which sentinels know the master,
// or the seeds of the cluster.
func RedisName(c *config.Config) string {
	switch c.Redis.Mode {
	case config.RedisSentinel:
		return c.Redis.MasterName
	case config.RedisCluster:
		return "cluster " + strings.Join(c.Redis.Addresses, ",")
	}
	return c.Redis.Addresses[0]
}
