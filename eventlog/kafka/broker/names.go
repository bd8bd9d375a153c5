package broker

import "time"

// Names are the topics and consumer groups that belong to one topic of invalidations.
type Names struct{ Topic string }

// Marks is the topic of visibility marks: one partition, compacted, keyed by source.
func (n Names) Marks() string { return n.Topic + ".marks" }

// Doubts is the topic of what may have left stale keys, and of facts that outlive a restart: one partition, compacted.
func (n Names) Doubts() string { return n.Topic + ".doubts" }

// Checkpoint is the topic of a source's checkpoints: one partition, compacted.
func (n Names) Checkpoint(source string) string { return n.Topic + ".checkpoint." + source }

// ReaderGroup is the consumer group in which the readers of a source elect their leader.
func (n Names) ReaderGroup(source string) string { return n.Topic + ".reader." + source }

// Retry is the topic of a group's keys that are parked for a delay: one partition.
func (n Names) Retry(group string, delay time.Duration) string {
	return n.Topic + "." + group + ".retry." + short(delay)
}

// DeadLetters is the topic of the keys that a group has given up: one partition, compacted.
func (n Names) DeadLetters(group string) string { return n.Topic + "." + group + ".dlq" }

// short writes a duration as people do: 10s, 1m, 1h30m.
func short(d time.Duration) string {
	s := d.String()
	if len(s) > 2 && s[len(s)-2:] == "0s" && s[len(s)-3] == 'm' {
		s = s[:len(s)-2]
	}
	if len(s) > 2 && s[len(s)-2:] == "0m" && s[len(s)-3] == 'h' {
		s = s[:len(s)-2]
	}
	return s
}
