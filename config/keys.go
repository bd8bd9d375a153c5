package config

import (
	"log/slog"
	"strings"
	"time"

	"github.com/freshet/freshet/config/spec"
)

// key is one key of the file outside of the mappings.
type key struct {
	// path is its place, such as source.tls.mode.
	path string
	// def is its default as text; exactly one text unless the key is a list.
	def []string
	// required: it must be given, and def only keeps a Config whole that has problems.
	required bool
	// name is the type as the documentation has it.
	name       string
	list, bare bool
	// secret is where a secret is held; nil for other keys.
	secret func(*Config) *Secret
	// set reads texts into the Config: any number of them for a list, else one. The faults are side by side with the
	// texts, nil where there is none; a text with a fault leaves the Config as it was.
	set func(c *Config, texts []string) []*fault
	// get is its inverse; secrets are masked.
	get func(c *Config) []string
}

// env is the name of the key's environment variable.
func (k *key) env() string {
	return "FRESHET_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// field is a key with one value, held at a place of the Config.
func field[T any](path, def string, k kind[T], at func(*Config) *T) key {
	return key{
		path: path, def: []string{def},
		name: k.name, bare: k.bare,
		set: func(c *Config, texts []string) []*fault {
			v, f := k.parse(texts[0])
			if f == nil {
				*at(c) = v
			}
			return []*fault{f}
		},
		get: func(c *Config) []string { return []string{k.format(*at(c))} },
	}
}

// secretField is a key with a secret.
func secretField(path string, at func(*Config) *Secret) key {
	k := field(path, "", secrets(), at)
	k.secret = at
	return k
}

// loginKeys are the keys of a secret to log in with: its text, a file that holds it, a command that prints it.
func loginKeys(at string, s func(*Config) *Secret, file, command func(*Config) *string) []key {
	return []key{
		secretField(at, s),
		field(at+"_file", "", path(), file),
		field(at+"_command", "", anyText(), command),
	}
}

// items is a key with a list of values.
func items[T any](path string, k kind[T], at func(*Config) *[]T, def ...string) key {
	return key{
		path: path, def: def,
		name: "list of " + k.name, list: true, bare: k.bare,
		set: func(c *Config, texts []string) []*fault {
			faults, seen := make([]*fault, len(texts)), map[string]bool{}
			var vs []T
			for i, text := range texts {
				v, f := k.parse(text)
				if f == nil && k.distinct && seen[text] {
					f = &fault{spec.Quote(text) + " is given twice", "remove one"}
				}
				if f != nil {
					faults[i] = f
					continue
				}
				seen[text] = true
				vs = append(vs, v)
			}
			*at(c) = vs
			return faults
		},
		get: func(c *Config) []string {
			texts := []string{}
			for _, v := range *at(c) {
				texts = append(texts, k.format(v))
			}
			return texts
		},
	}
}

// required makes a key one that must be given.
func required(k key) key {
	k.required = true
	return k
}

// keys returns every key of the file outside of the mappings, in the order of the documentation.
func keys() []key {
	var ks []key
	for _, section := range [][]key{
		sourceKeys(), redisKeys(),
		{gapKey(), firstStartKey(), cascadeKey(), rateKey()},
		eventLogKeys(), kafkaKeys(), invalidatorKeys(), retryKeys(), adminKeys(),
		logKeys(),
	} {
		ks = append(ks, section...)
	}
	return ks
}

const day = 24 * time.Hour

func sourceKeys() []key {
	ks := []key{
		field("source.name", "default", names(64), func(c *Config) *string { return &c.Source.Name }),
		required(items("source.addresses", addresses(3306), func(c *Config) *[]string { return &c.Source.Addresses })),
		required(field("source.user", "", anyText(), func(c *Config) *string { return &c.Source.User })),
	}
	ks = append(ks, loginKeys("source.password", func(c *Config) *Secret { return &c.Source.Password },
		func(c *Config) *string { return &c.Source.PasswordFile },
		func(c *Config) *string { return &c.Source.PasswordCommand })...)
	ks = append(ks, []key{
		field("source.flavor", "auto", oneOfThe(FlavorAuto, FlavorMySQL, FlavorMariaDB),
			func(c *Config) *Flavor { return &c.Source.Flavor }),
		field("source.server_id", "0", integers[uint32](0, 1<<32-1), func(c *Config) *uint32 { return &c.Source.ServerID }),
		field("source.start", "now", starts(), func(c *Config) *Start { return &c.Source.Start }),
		items("source.fill_from", addresses(3306), func(c *Config) *[]string { return &c.Source.FillFrom }),
		field("source.fill_timeout", "30s", durations(time.Second, day),
			func(c *Config) *time.Duration { return &c.Source.FillTimeout }),
		field("source.fill_lag", "none", orWord(durations(time.Millisecond, day), "none"),
			func(c *Config) *time.Duration { return &c.Source.FillLag }),
		field("source.heartbeat", "1s", durations(10*time.Millisecond, time.Minute),
			func(c *Config) *time.Duration { return &c.Source.Heartbeat }),
	}...)
	return append(ks, tlsKeys("source.tls", func(c *Config) *TLS { return &c.Source.TLS }, TLSDisabled, TLSPreferred,
		TLSRequired, TLSVerify)...)
}

func redisKeys() []key {
	ks := []key{
		field("redis.mode", "single", oneOfThe(RedisSingle, RedisSentinel, RedisCluster),
			func(c *Config) *RedisMode { return &c.Redis.Mode }),
		required(items("redis.addresses", addresses(6379), func(c *Config) *[]string { return &c.Redis.Addresses })),
		field("redis.master_name", "", anyText(), func(c *Config) *string { return &c.Redis.MasterName }),
		field("redis.username", "", anyText(), func(c *Config) *string { return &c.Redis.Username }),
	}
	ks = append(ks, loginKeys("redis.password", func(c *Config) *Secret { return &c.Redis.Password },
		func(c *Config) *string { return &c.Redis.PasswordFile },
		func(c *Config) *string { return &c.Redis.PasswordCommand })...)
	ks = append(ks,
		field("redis.sentinel_username", "", anyText(), func(c *Config) *string { return &c.Redis.SentinelUsername }))
	ks = append(ks, loginKeys("redis.sentinel_password", func(c *Config) *Secret { return &c.Redis.SentinelPassword },
		func(c *Config) *string { return &c.Redis.SentinelPasswordFile },
		func(c *Config) *string { return &c.Redis.SentinelPasswordCommand })...)
	ks = append(ks, []key{
		field("redis.db", "0", integers[int](0, 1<<31-1), func(c *Config) *int { return &c.Redis.DB }),
		field("redis.key_prefix", "", anyText(), func(c *Config) *string { return &c.Redis.KeyPrefix }),
		field("redis.timeout", "1s", durations(10*time.Millisecond, time.Minute),
			func(c *Config) *time.Duration { return &c.Redis.Timeout }),
		field("redis.wait_replicas", "0", integers[int](0, 1000), func(c *Config) *int { return &c.Redis.WaitReplicas }),
		field("redis.failover_window", "auto", orWord(durations(time.Millisecond, 30*day), "auto"),
			func(c *Config) *time.Duration { return &c.Redis.FailoverWindow }),
	}...)
	return append(ks, tlsKeys("redis.tls", func(c *Config) *TLS { return &c.Redis.TLS }, TLSDisabled, TLSRequired,
		TLSVerify)...)
}

func gapKey() key {
	return field("on_gap", "halt", oneOfThe(GapHalt, GapInvalidate), func(c *Config) *GapPolicy { return &c.OnGap })
}

func firstStartKey() key {
	return field("on_first_start", "keep", oneOfThe(FirstStartKeep, FirstStartInvalidate),
		func(c *Config) *FirstStartPolicy { return &c.OnFirstStart })
}

func cascadeKey() key {
	return field("on_cascade", "invalidate", oneOfThe(CascadeInvalidate, CascadeIgnore),
		func(c *Config) *CascadePolicy { return &c.OnCascade })
}

func rateKey() key {
	return field("scope_rate", "2000", integers[int](1, 1e9), func(c *Config) *int { return &c.ScopeRate })
}

func eventLogKeys() []key {
	return []key{
		field("eventlog.kind", "embedded", oneOfThe(EventLogEmbedded, EventLogKafka),
			func(c *Config) *EventLogKind { return &c.EventLog.Kind }),
		field("eventlog.dir", "./freshet-data", path(), func(c *Config) *string { return &c.EventLog.Dir }),
	}
}

func kafkaKeys() []key {
	ks := []key{
		items("eventlog.kafka.brokers", addresses(9092), func(c *Config) *[]string { return &c.EventLog.Kafka.Brokers }),
		field("eventlog.kafka.topic", "freshet.invalidations", names(128),
			func(c *Config) *string { return &c.EventLog.Kafka.Topic }),
		field("eventlog.kafka.partitions", "12", integers[int](1, 10000),
			func(c *Config) *int { return &c.EventLog.Kafka.Partitions }),
		field("eventlog.kafka.replication_factor", "0", integers[int](0, 100),
			func(c *Config) *int { return &c.EventLog.Kafka.ReplicationFactor }),
		field("eventlog.kafka.create_topics", "true", booleans(),
			func(c *Config) *bool { return &c.EventLog.Kafka.CreateTopics }),
		field("eventlog.kafka.group", "freshet", names(64), func(c *Config) *string { return &c.EventLog.Kafka.Group }),
		field("eventlog.kafka.compression", "lz4", oneOfThe("none", "lz4", "zstd", "snappy"),
			func(c *Config) *string { return &c.EventLog.Kafka.Compression }),
		field("eventlog.kafka.sasl.mechanism", "none",
			oneOfThe("none", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"),
			func(c *Config) *string { return &c.EventLog.Kafka.SASL.Mechanism }),
		field("eventlog.kafka.sasl.username", "", anyText(),
			func(c *Config) *string { return &c.EventLog.Kafka.SASL.Username }),
	}
	ks = append(ks, loginKeys("eventlog.kafka.sasl.password",
		func(c *Config) *Secret { return &c.EventLog.Kafka.SASL.Password },
		func(c *Config) *string { return &c.EventLog.Kafka.SASL.PasswordFile },
		func(c *Config) *string { return &c.EventLog.Kafka.SASL.PasswordCommand })...)
	ks = append(ks, loginKeys("eventlog.kafka.sasl.token",
		func(c *Config) *Secret { return &c.EventLog.Kafka.SASL.Token },
		func(c *Config) *string { return &c.EventLog.Kafka.SASL.TokenFile },
		func(c *Config) *string { return &c.EventLog.Kafka.SASL.TokenCommand })...)
	return append(ks, tlsKeys("eventlog.kafka.tls", func(c *Config) *TLS { return &c.EventLog.Kafka.TLS }, TLSDisabled,
		TLSRequired, TLSVerify)...)
}

func invalidatorKeys() []key {
	return []key{
		field("invalidator.second_delete", "2s", secondDelete(),
			func(c *Config) *time.Duration { return &c.Invalidator.SecondDelete }),
		field("invalidator.max_in_flight", "200000", integers[int](1, 1e9),
			func(c *Config) *int { return &c.Invalidator.MaxInFlight }),
		field("invalidator.max_pending", "4000000", integers[int](1, 1e9),
			func(c *Config) *int { return &c.Invalidator.MaxPending }),
		field("invalidator.max_memory", "32MiB", sizes(1<<20, 1<<40),
			func(c *Config) *int64 { return &c.Invalidator.MaxMemory }),
		field("invalidator.rate_limit", "none", rateLimit(), func(c *Config) *int { return &c.Invalidator.RateLimit }),
	}
}

// secondDelete is D, of the invalidator and of a mapping.
func secondDelete() kind[time.Duration] { return orWord(durations(time.Millisecond, day), "none") }

// rateLimit is in keys a second.
func rateLimit() kind[int] { return orWord(integers[int](1, 1e9), "none") }

func retryKeys() []key {
	return []key{
		field("retry.max_attempts", "8", integers[int](1, 1000), func(c *Config) *int { return &c.Retry.MaxAttempts }),
		field("retry.park_after", "3", integers[int](1, 1000), func(c *Config) *int { return &c.Retry.ParkAfter }),
		items("retry.park_delays", durations(time.Millisecond, 30*day),
			func(c *Config) *[]time.Duration { return &c.Retry.ParkDelays }, "10s", "1m", "10m"),
		field("retry.min_backoff", "100ms", durations(time.Millisecond, time.Hour),
			func(c *Config) *time.Duration { return &c.Retry.MinBackoff }),
		field("retry.max_backoff", "30s", durations(time.Millisecond, time.Hour),
			func(c *Config) *time.Duration { return &c.Retry.MaxBackoff }),
	}
}

func adminKeys() []key {
	return []key{
		field("admin.listen", "127.0.0.1:8686", listenAddresses(), func(c *Config) *string { return &c.Admin.Listen }),
		field("admin.metrics_listen", "none", listenAddresses(), func(c *Config) *string { return &c.Admin.MetricsListen }),
		secretField("admin.token", func(c *Config) *Secret { return &c.Admin.Token }),
		field("admin.token_file", "", path(), func(c *Config) *string { return &c.Admin.TokenFile }),
		field("admin.tls.mode", "disabled", oneOfThe(TLSDisabled, TLSRequired),
			func(c *Config) *TLSMode { return &c.Admin.TLS.Mode }),
		field("admin.tls.cert_file", "", path(), func(c *Config) *string { return &c.Admin.TLS.CertFile }),
		field("admin.tls.key_file", "", path(), func(c *Config) *string { return &c.Admin.TLS.KeyFile }),
		field("admin.tls.client_ca_file", "", path(), func(c *Config) *string { return &c.Admin.TLS.ClientCAFile }),
	}
}

func logKeys() []key {
	return []key{
		field("log.level", "info", levels(), func(c *Config) *slog.Level { return &c.Log.Level }),
		field("log.format", "auto", oneOfThe(LogAuto, LogText, LogJSON), func(c *Config) *LogFormat { return &c.Log.Format }),
	}
}

// tlsKeys are the keys of a TLS section at a path.
func tlsKeys(section string, at func(*Config) *TLS, modes ...TLSMode) []key {
	return []key{
		field(section+".mode", "disabled", oneOfThe(modes...), func(c *Config) *TLSMode { return &at(c).Mode }),
		field(section+".ca_file", "", path(), func(c *Config) *string { return &at(c).CAFile }),
		field(section+".cert_file", "", path(), func(c *Config) *string { return &at(c).CertFile }),
		field(section+".key_file", "", path(), func(c *Config) *string { return &at(c).KeyFile }),
		field(section+".server_name", "", anyText(), func(c *Config) *string { return &at(c).ServerName }),
	}
}
