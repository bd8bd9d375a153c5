package broker

import (
	"strconv"
	"strings"
	"time"
)

// Role is what a topic is for.
type Role uint8

// The roles of freshet's topics.
const (
	// RoleMain is the topic of invalidations.
	RoleMain Role = iota + 1
	// RoleMarks is the topic of visibility marks.
	RoleMarks
	// RoleCheckpoint is the topic of a source's checkpoints.
	RoleCheckpoint
	// RoleRetry is a topic of keys that are parked for a delay.
	RoleRetry
	// RoleDeadLetters is the topic of keys that were given up.
	RoleDeadLetters
	// RoleDoubts is the topic of what may have left stale keys.
	RoleDoubts
)

// Setting is one of a topic's settings, in Kafka's words.
type Setting struct{ Name, Value string }

// Topic is a topic that freshet needs, and how it creates it.
type Topic struct {
	Name string
	Role Role
	// Partitions of the topic.
	Partitions int
	// Replication is how many brokers have a copy; 0: the brokers' default.replication.factor.
	Replication int
	// Config are the settings, in a fixed order.
	Config []Setting
	// Access are the rights that it takes to use it: Read, Write, Delete.
	Access []string
	// Delay is for how long keys are parked, in [RoleRetry].
	Delay time.Duration
}

// Sizing is what an operator chooses.
type Sizing struct {
	// Partitions of the topic of invalidations; the other topics have one. Default 12.
	Partitions int
	// Replication is how many brokers have a copy of each topic; 0: the brokers' default.replication.factor.
	Replication int
}

// MinMessageBytes is what max.message.bytes of the topic of invalidations must be at least, and is set to: a record
// of many keys is split at 512 KiB, but one huge key passes too.
const MinMessageBytes = 2 << 20

// Retention is for how long the topic of invalidations keeps what was read: the longest that the invalidators of a
// group may be away.
const Retention = 7 * 24 * time.Hour

// ReaderTopics returns what the readers of a source need.
func ReaderTopics(n Names, source string, s Sizing) []Topic {
	return []Topic{
		// A leader reads the marks too: they tell a first start from a checkpoint that was lost.
		mainTopic(n, s, "Write"), marksTopic(n, s, both()...), DoubtsTopic(n, s),
		compacted(Topic{Name: n.Checkpoint(source), Role: RoleCheckpoint, Access: both()}, s,
			// A reader that reads the topic from its beginning must meet every claim of a term that was made while it
			// reads: what is younger than this is never compacted away.
			Setting{"min.compaction.lag.ms", "60000"},
			// Prepared transactions keep the keys that they touch here.
			Setting{"max.message.bytes", strconv.Itoa(MinMessageBytes)}),
	}
}

// InvalidatorTopics returns what the invalidators of a group need. Equal delays are one topic.
func InvalidatorTopics(n Names, group string, delays []time.Duration, s Sizing) []Topic {
	topics := []Topic{mainTopic(n, s, "Read"), marksTopic(n, s, "Read"), DoubtsTopic(n, s)}
	seen := map[time.Duration]bool{}
	for _, d := range delays {
		if seen[d] {
			continue
		}
		seen[d] = true
		topics = append(topics, Topic{
			Name: n.Retry(group, d), Role: RoleRetry, Partitions: 1, Replication: s.Replication, Delay: d,
			// Records that are done with are deleted by freshet itself, since no retention does.
			Access: append(both(), "Delete"),
			Config: append(durable(s),
				Setting{"cleanup.policy", "delete"},
				// A parked key waits for as long as it takes, for instance until its Redis is back: it is never too
				// old.
				Setting{"retention.ms", "-1"}, Setting{"retention.bytes", "-1"}, letterSize()),
		})
	}
	return append(topics, compacted(Topic{Name: n.DeadLetters(group), Role: RoleDeadLetters, Access: both()}, s,
		letterSize()))
}

// letterSize has room for any key that came in a record of [MinMessageBytes]: one that is not UTF-8 is written as
// base64.
func letterSize() Setting { return Setting{"max.message.bytes", strconv.Itoa(2 * MinMessageBytes)} }

// mainTopic is where the invalidations are.
func mainTopic(n Names, s Sizing, access string) Topic {
	if s.Partitions == 0 {
		s.Partitions = 12
	}
	return Topic{
		Name: n.Topic, Role: RoleMain, Partitions: s.Partitions, Replication: s.Replication,
		Access: []string{access},
		Config: append(durable(s),
			// Each record is an event of its own: compaction would take the older of two with one key for a copy.
			Setting{"cleanup.policy", "delete"},
			Setting{"retention.ms", strconv.FormatInt(Retention.Milliseconds(), 10)},
			// By age only, whatever the brokers' default: a burst must not push out what was not read yet.
			Setting{"retention.bytes", "-1"},
			Setting{"max.message.bytes", strconv.Itoa(MinMessageBytes)}),
	}
}

// marksTopic is where the visibility marks are.
func marksTopic(n Names, s Sizing, access ...string) Topic {
	return compacted(Topic{Name: n.Marks(), Role: RoleMarks, Access: access}, s)
}

// DoubtsTopic is where doubts and facts are: all readers and invalidators use it.
func DoubtsTopic(n Names, s Sizing) Topic {
	return compacted(Topic{Name: n.Doubts(), Role: RoleDoubts, Access: both()}, s)
}

// both is access to what is read and written by the same process.
func both() []string { return []string{"Read", "Write"} }

// compacted completes a topic of one partition of which the newest record of each key counts.
func compacted(t Topic, s Sizing, more ...Setting) Topic {
	t.Partitions, t.Replication = 1, s.Replication
	t.Config = append(append(durable(s),
		Setting{"cleanup.policy", "compact"},
		// Who starts reads such a topic from its beginning, so it is kept short: a segment is closed soon, since the
		// open one is never compacted, and compacted as soon as a tenth of it is outdated.
		Setting{"segment.ms", "600000"}, Setting{"segment.bytes", strconv.Itoa(8 << 20)},
		Setting{"min.cleanable.dirty.ratio", "0.1"}), more...)
	return t
}

// durable are the settings by which what the brokers have acknowledged stays.
func durable(s Sizing) []Setting {
	settings := []Setting{
		// A replica that lacks acknowledged records must not lead: better nobody does for a while.
		{"unclean.leader.election.enable", "false"},
		// Age is measured by the brokers' clock. By a reader's, one whose clock is behind would have its records removed at
		// once, and one whose clock is ahead would be refused.
		{"message.timestamp.type", "LogAppendTime"},
	}
	if s.Replication >= 3 {
		// Acknowledged is what a second broker has as well. With two copies this would stop producing whenever one of
		// the brokers restarts, and with the brokers' default their own min.insync.replicas is the better judge.
		settings = append(settings, Setting{"min.insync.replicas", "2"})
	}
	return settings
}

// setting returns a setting's value, "" if the topic leaves it to the brokers.
func (t *Topic) setting(name string) string {
	for _, s := range t.Config {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// CreateCommand returns the command that creates a topic as freshet would.
func (c *Client) CreateCommand(t Topic) string {
	var b strings.Builder
	b.WriteString(c.tool("kafka-topics.sh") + " --create --topic " + shellQuote(t.Name) + " --partitions " +
		strconv.Itoa(t.Partitions))
	if t.Replication > 0 {
		b.WriteString(" --replication-factor " + strconv.Itoa(t.Replication))
	}
	for _, s := range t.Config {
		b.WriteString(" --config " + s.Name + "=" + s.Value)
	}
	return b.String()
}

// alterCommand returns the command that changes settings of a topic.
func (c *Client) alterCommand(topic string, settings string) string {
	return c.tool("kafka-configs.sh") + " --alter --entity-type topics --entity-name " + shellQuote(topic) +
		" --add-config " + settings
}

// tool returns how one of Kafka's tools is called for this cluster.
func (c *Client) tool(name string) string {
	s := name + " --bootstrap-server " + shellQuote(c.o.Brokers[0])
	if c.o.TLS != nil || c.o.Login != nil {
		s += " --command-config client.properties"
	}
	return s
}
