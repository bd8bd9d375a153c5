package connect

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// Topics returns the names of the topics.
func Topics(c *config.Config) broker.Names { return broker.Names{Topic: c.EventLog.Kafka.Topic} }

// Sizing returns how large topics are made.
func Sizing(c *config.Config) broker.Sizing {
	return broker.Sizing{Partitions: c.EventLog.Kafka.Partitions, Replication: c.EventLog.Kafka.ReplicationFactor}
}

// Kafka returns a client for the brokers of a configuration. It does not connect yet.
func Kafka(c *config.Config, r prometheus.Registerer, log *slog.Logger) (*broker.Client, error) {
	k := c.EventLog.Kafka
	secret := k.SASL.Password.Source()
	if k.SASL.Mechanism == "oauthbearer" {
		secret = k.SASL.Token.Source()
	}
	login, err := broker.NewLogin(k.SASL.Mechanism, k.SASL.Username, secret)
	if err != nil {
		return nil, fmt.Errorf("eventlog.kafka.sasl: %w", err)
	}
	return broker.New(broker.Options{
		Brokers: k.Brokers, TLS: k.TLS.Client("eventlog.kafka.tls"), Login: login, Compression: compression(k.Compression),
		Registerer: r, Log: log,
	})
}

// compression says in Kafka's words how records are compressed.
func compression(name string) kafkago.Compression {
	switch name {
	case "lz4":
		return kafkago.Lz4
	case "zstd":
		return kafkago.Zstd
	case "snappy":
		return kafkago.Snappy
	}
	return 0
}
