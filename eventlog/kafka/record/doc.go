// Package record is the form that invalidations and marks have in Kafka: JSON documents that any Kafka UI shows
// readably and any program can read. docs/events.md says what each field promises, docs/events.schema.json is their
// JSON Schema.
//
// Its place on the path: the producer adds a partition's share of each batch to an [Encoder] and produces what
// [Encoder.Finish] returns; the consumer turns it into a batch again with a [Parser]. A record holds invalidations of
// one source and term in commit order, of several transactions or of a part of one. It names its predecessor's last
// version, so that a record that the brokers lost is noticed.
//
// The Kafka record that holds a document has the source's name as its key, on the topic of invalidations for the
// reader of a UI, on the topic of marks because that one is compacted by key. Headers are neither written nor read:
// a tool that copies a topic may lose them.
//
// Guarantees: a round trip keeps every byte of a key and of its action's data, also if it is not UTF-8, and the order
// of the invalidations. Durations are rounded up to milliseconds. An invalidation that fits into no record becomes one
// that forgets ([Encoder.TryAdd]); it is never dropped. Parse accepts any JSON text of the schema, whatever its white
// space, order of fields and escapes; it passes over unknown fields, unless they might be an action or part of one. It
// refuses an action that it cannot carry out ([ErrUnknownFormat]), and never drops it. It never panics, and its
// allocations are bounded by the length of the document (some 30 bytes for each byte of it, in the worst case).
//
// Both directions are written by hand, without reflection: a transaction costs each of them a few hundred nanoseconds,
// a plain delete some tens, and neither costs an allocation; an item costs some hundreds, by its size. The usual parts
// of an Encoder's output are read in one step. Fields that a change has in common with the one before are left out:
// each byte of a record is encoded, compressed, unpacked by the brokers to look at it, unpacked again and read, on
// cores that have other work to do.
//
// An Encoder or a Parser belongs to one goroutine at a time; it keeps its buffers and what it saw last (the second of
// a commit time, the server of a GTID, the name of a table) from one record to the next. The package does no I/O.
package record
