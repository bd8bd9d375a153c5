package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/freshet/freshet/config/spec"
)

// Config is the whole configuration: what the file and the environment say, and the defaults where they are silent.
// Relative paths are relative to the working directory.
type Config struct {
	// File is the file it was read from, as it was named.
	File string

	Source Source
	Redis  Redis
	// OnGap says what happens when the source no longer has the binlog that comes next, or Kafka has lost records.
	// Default halt.
	OnGap GapPolicy
	// OnFirstStart says what becomes of keys that were cached before a first start. Default keep.
	OnFirstStart FirstStartPolicy
	// OnCascade says what follows from rows that foreign keys change without row events. Default invalidate.
	OnCascade CascadePolicy
	// ScopeRate is how many keys a second are forgotten to answer doubts, at most. Default 2000.
	ScopeRate   int
	EventLog    EventLog
	Invalidator Invalidator
	Retry       Retry
	Admin       Admin
	Log         Log
	// Mappings are in the order of the file. Empty only without a source.
	Mappings []spec.Mapping

	// origins says where each value came from that is not a default, by the path of its key.
	origins map[string]spec.Pos
}

// HasSource reports whether there is a source: with Kafka, the file of an invalidator has none, nor mappings, unless it
// runs queries.
func (c *Config) HasSource() bool { return len(c.Source.Addresses) > 0 }

// HasRedis reports whether there is a Redis to keep fresh: with Kafka, the file of a reader may have none.
func (c *Config) HasRedis() bool { return len(c.Redis.Addresses) > 0 }

// Source is the MySQL or MariaDB server whose binlog is read.
type Source struct {
	// Name tells several sources apart. Letters, digits, dot, underscore and hyphen, at most 64. Default "default".
	Name string
	// Addresses are host:port, tried in order. At least one.
	Addresses []string
	// User is the account to log in with. Never empty.
	User string
	// Password is the account's: password, or what is in PasswordFile or printed by PasswordCommand at each login.
	Password                      Secret
	PasswordFile, PasswordCommand string
	// Flavor is the family of the server. Default auto.
	Flavor Flavor
	// ServerID is the id to register with as a replica; 0, the default: derived from host and process.
	ServerID uint32
	// Start is where a first start begins. Default now.
	Start Start
	// FillFrom are the servers, host:port, that the application reads when it fills its cache. Empty, the default:
	// the source itself.
	FillFrom []string
	// FillTimeout is how long a server of FillFrom may be silent or lag behind. Default 30s.
	FillTimeout time.Duration
	// FillLag is how long to wait where executed positions cannot be asked; 0, the default (`none`): they are asked.
	FillLag time.Duration
	// Heartbeat is how often the source sends a sign of life and is asked what it has executed. Default 1s.
	Heartbeat time.Duration
	// TLS is how the connection is encrypted. Default disabled.
	TLS TLS
}

// Flavor is the family of the source server.
type Flavor string

// The flavors. FlavorAuto asks the server.
const (
	FlavorAuto    Flavor = "auto"
	FlavorMySQL   Flavor = "mysql"
	FlavorMariaDB Flavor = "mariadb"
)

// Redis is where the keys are.
type Redis struct {
	// Mode is how the servers work together. Default single.
	Mode RedisMode
	// Addresses are host:port: the server, the sentinels, or seeds of the cluster. At least one.
	Addresses []string
	// MasterName is what the sentinels call the master; sentinel mode only.
	MasterName string
	// Username is the ACL user; empty, the default: Redis' default user.
	Username string
	// Password is the user's: password, or what is in PasswordFile or printed by PasswordCommand at each login.
	Password                      Secret
	PasswordFile, PasswordCommand string
	// SentinelUsername is the ACL user of the sentinels; empty, the default: their default user. Sentinel mode only.
	SentinelUsername string
	// SentinelPassword is the sentinels' own: sentinel_password, or from SentinelPasswordFile or SentinelPasswordCommand;
	// sentinel mode only.
	SentinelPassword                              Secret
	SentinelPasswordFile, SentinelPasswordCommand string
	// DB is the number of the database. Default 0.
	DB int
	// KeyPrefix goes before every key. Default empty.
	KeyPrefix string
	// Timeout is how long a command may take. Default 1s.
	Timeout time.Duration
	// WaitReplicas is how many replicas must have a write; 0, the default: none is waited for.
	WaitReplicas int
	// FailoverWindow is what is redone at least when Redis came back with older data; 0, the default (`auto`): what that
	// data lacks, as its stamp says.
	FailoverWindow time.Duration
	// TLS is how the connection is encrypted; preferred is not for Redis. Default disabled.
	TLS TLS
}

// RedisMode is how the Redis servers work together.
type RedisMode string

// The modes.
const (
	RedisSingle   RedisMode = "single"
	RedisSentinel RedisMode = "sentinel"
	RedisCluster  RedisMode = "cluster"
)

// GapPolicy is what happens when the source no longer has the binlog that comes next.
type GapPolicy string

// The policies: to halt with exit code 3, or to invalidate every mapping and go on.
const (
	GapHalt       GapPolicy = "halt"
	GapInvalidate GapPolicy = "invalidate"
)

// FirstStartPolicy is what becomes of keys of the mappings that were cached before a first start.
type FirstStartPolicy string

// The policies: to keep them, or to have them all forgotten.
const (
	FirstStartKeep       FirstStartPolicy = "keep"
	FirstStartInvalidate FirstStartPolicy = "invalidate"
)

// CascadePolicy is what follows from rows that foreign keys change without row events.
type CascadePolicy string

// The policies: to forget all keys of their tables, or nothing.
const (
	CascadeInvalidate CascadePolicy = "invalidate"
	CascadeIgnore     CascadePolicy = "ignore"
)

// EventLog is how invalidations wait between the reader and the invalidator.
type EventLog struct {
	// Kind is the event log. Default embedded.
	Kind EventLogKind
	// Dir holds checkpoint, parked retries and dead letters. Default ./freshet-data.
	Dir string
	// Kafka counts only when Kind is EventLogKafka.
	Kafka Kafka
}

// EventLogKind names an event log.
type EventLogKind string

// The event logs.
const (
	EventLogEmbedded EventLogKind = "embedded"
	EventLogKafka    EventLogKind = "kafka"
)

// Kafka is the event log in Kafka.
type Kafka struct {
	// Brokers are host:port. At least one.
	Brokers []string
	// Topic carries the invalidations. Default freshet.invalidations.
	Topic string
	// Partitions and ReplicationFactor are used when freshet creates the topics. Default 12, and 0: the broker's.
	Partitions, ReplicationFactor int
	// CreateTopics says whether freshet creates missing topics. Default true.
	CreateTopics bool
	// Group is the consumer group of the invalidators of one Redis. Default freshet.
	Group string
	// Compression is none, lz4, zstd or snappy. Default lz4.
	Compression string
	SASL        SASL
	// TLS is how the connections are encrypted; preferred is not for Kafka. Default disabled.
	TLS TLS
}

// SASL is how freshet logs in to Kafka.
type SASL struct {
	// Mechanism is none, plain, scram-sha-256, scram-sha-512 or oauthbearer. Default none.
	Mechanism string
	// Username is not for oauthbearer: the token says whose it is.
	Username string
	// Password is password, or what is in PasswordFile or printed by PasswordCommand at each login.
	Password                      Secret
	PasswordFile, PasswordCommand string
	// Token is token, or what is in TokenFile or printed by TokenCommand at each login; for oauthbearer only.
	Token                   Secret
	TokenFile, TokenCommand string
}

// Invalidator is the engine that deletes keys.
type Invalidator struct {
	// SecondDelete is D, the longest that a reader takes from reading the database to its write taking effect in the
	// cache; 0 (`none`): one delete only. Default 2s. [Mapping.SecondDelete] has it where a mapping is silent.
	SecondDelete time.Duration
	// MaxInFlight bounds the keys read and not yet deleted once. Default 200,000.
	MaxInFlight int
	// MaxPending bounds the keys whose final delete is not yet due. Default 4,000,000.
	MaxPending int
	// MaxMemory is a soft bound over all queues, in bytes. Default 32 MiB.
	MaxMemory int64
	// RateLimit is keys a second over all mappings; 0, the default (`none`): no limit.
	RateLimit int
}

// Retry is what happens to one key in trouble.
type Retry struct {
	// MaxAttempts is after how many attempts it becomes a dead letter. Default 8.
	MaxAttempts int
	// ParkAfter is how many of them are made in place, before it is parked. Default 3; at most MaxAttempts.
	ParkAfter int
	// ParkDelays are how long it is parked each time, the last one repeating. Default 10s, 1m, 10m.
	ParkDelays []time.Duration
	// MinBackoff and MaxBackoff bound the pause between attempts in place. Default 100ms and 30s.
	MinBackoff, MaxBackoff time.Duration
}

// Admin is the HTTP side.
type Admin struct {
	// Listen is host:port of page, /status, changes, metrics and health; empty (`none`): nothing listens. Port 0
	// takes a free one. Default 127.0.0.1:8686.
	Listen string
	// MetricsListen is host:port of metrics and health alone; empty, the default (`none`): not apart.
	MetricsListen string
	// Token is the bearer token for changes, from token or from the file TokenFile. Not empty when Listen is not on
	// loopback.
	Token     Secret
	TokenFile string
	// TLS is how both listeners are encrypted. Default disabled.
	TLS ServerTLS
}

// Log is what freshet writes to stderr.
type Log struct {
	// Level is the least level that is written. Default info.
	Level slog.Level
	// Format is how a line looks. Default auto.
	Format LogFormat
}

// LogFormat is how a line of the log looks.
type LogFormat string

// The formats. LogAuto is text on a terminal and JSON elsewhere.
const (
	LogAuto LogFormat = "auto"
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Start is where a first start begins.
type Start struct {
	Kind StartKind
	// GTIDs is the set that counts as executed, with StartGTID. Its form was checked, and against source.flavor.
	GTIDs string
	// File and Pos are the place in the source's binlog, with StartFile. Pos is at least 4.
	File string
	Pos  uint64
}

// StartKind is the way in which a start is said.
type StartKind string

// The ways: what is visible now, the oldest binlog that there is, after a GTID set, at a place in a file.
const (
	StartNow      StartKind = "now"
	StartEarliest StartKind = "earliest"
	StartGTID     StartKind = "gtid"
	StartFile     StartKind = "file"
)

// String returns the start as it is written in the file.
func (s Start) String() string {
	switch s.Kind {
	case StartGTID:
		return "gtid:" + s.GTIDs
	case StartFile:
		return fmt.Sprintf("%s:%d", s.File, s.Pos)
	}
	return string(s.Kind)
}
