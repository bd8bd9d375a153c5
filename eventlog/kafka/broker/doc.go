// Package broker talks to Kafka: it keeps the connections, says what went wrong in sentences, and knows the names
// and settings of freshet's topics. All else of the Kafka event log is built on its [Client].
//
// # What it guarantees
//
// It makes one attempt at a time and does not repeat it by itself: the caller knows whether the attempt may be
// repeated, and what else must wait meanwhile. [Classify] says what an error means for that, its text what an operator
// can do about it; [Client.Explain] does the same for the requests that are made past this package. No error, log or
// metric holds a password or anything of a record.
//
// An attempt that fails because a leader has moved makes the client look where it is now, so that the next attempt
// finds it. A fetch always says where to go on, past whatever holds no record for us (markers of transactions, what
// compaction has emptied), and never hides a damaged batch.
//
// # Over the library
//
// The library (kafka-go) routes requests, keeps connections and joins consumer groups; it has no idempotent
// producer, so that what a lost acknowledgement doubles is known by the records' own numbers. Four things are done
// here, below or next to it:
//
//   - Connections (dial.go, conn.go, sasl.go) come to it encrypted and logged in. A login is bounded in time, tells a
//     wrong password from a wrong port, and is renewed before the brokers end the session (KIP-368), on the same
//     connection, so that neither requests nor the generations of a group fail when it does.
//   - What it knows of the cluster (transport.go) is limited to the topics in use, which keeps large clusters from
//     being asked for everything, and a missing ACL from looking like a missing topic.
//   - Fetches are read by us (fetch.go, batch.go). The library does not say how far a batch reaches, and swallows a
//     wrong checksum after a good batch.
//   - What is produced is packed by us (produce.go, pack.go): in one pass, through memory that is kept, and with lz4 in
//     blocks of 64 KiB. Packed by the library it costs several times as much.
//
// A request may be for several partitions (several.go), as long as one broker leads them: what a request costs the
// broker and us is then paid once. Who calls groups them by [Client.Leaders], so that a broker that hangs holds up
// nobody else's.
//
// It takes one connection to each broker for each request that is under way at the same time, kept for 30 s after the
// last, and one more for looking at the cluster: an invalidator with all 12 partitions of a topic on three brokers
// has one or two to each for fetches, a few for the small topics, and one for its group.
//
// Brokers must be of Kafka 2.3 or later.
//
// # Concurrency
//
// A [Client] may be used by many goroutines at once. Goroutines of its own there are none; the library's, one for each
// connection and one that looks at the cluster, end with [Client.Close], which waits for them. A conn belongs to the
// library, which sends one request after the other on it; its lock guards what Read, Write and deadlines share when
// the library uses them from different goroutines, as it does for consumer groups.
package broker
