// Package producer is the reader's side of the event log in Kafka: it puts the batches of one source into records,
// and the records into the partitions of the topic of invalidations.
//
// Its place on the path: canal and router make batches in commit order, [Producer.Append] takes them, the brokers
// acknowledge the records, and [Producer.Durable] says how far the source need not be read again. Apart from that,
// [Producer.Mark] carries visibility marks to a topic of their own.
//
//	reader --Append--> spread by hash of key --> partition 0: queue --+--> lane of broker 1: encode, produce --+
//	                                         --> partition 1: queue --+                                        |
//	                                         --> partition 2: queue -----> lane of broker 2: ...               |
//	                                                                      ledger <---------acknowledged--------+
//	checkpoint <--Durable---------------------------------------------------+
//	canal --Mark--> newest mark --> marks topic
//
// # What is guaranteed
//
//   - The invalidations of a key are in one partition, in commit order. The partition is [Partition] of the key and of
//     the number of partitions; when partitions are added, the new number is used once everything under the old one is
//     acknowledged.
//   - An end is durable when every record of every batch up to it was acknowledged by all in-sync replicas. A batch
//     that Append refused leaves no trace.
//   - Memory is bounded by [Options].MaxBuffered, and one record for each partition. Parts of a transaction go out
//     while it is still open, so its size does not matter.
//   - Nothing is given up. An attempt that failed is repeated until the brokers take it or Run's context ends: an
//     outage of Kafka stops the reader, which is harmless as long as the binlog is kept. Only what no attempt can repair
//     makes Run fail: [ErrTopicChanged], [ErrTooLarge].
//   - A value that is too large for a record stops nothing: what the cache holds is forgotten instead of written,
//     which is counted and said. Only a key can be too large.
//   - A topic that loses what it had acknowledged is noticed: its offsets go back, or its partitions become fewer. One
//     that was made again while no reader ran raises an alarm at the start.
//   - Marks never wait for batches, nor batches for marks. Only at the very end does Durable's close wait for a
//     mark, since the invalidators cannot finish without one.
//
// # Records
//
// A record holds what has gathered for its partition while the one before was on its way: a single invalidation when
// nothing goes on, some 128 KiB when much does, and more only for the sake of a large value. One record for each
// partition is on its way at a time: that much for each round trip is more than a source can give.
//
// A produce request carries the records of all partitions that a broker leads and that have something by then: what a
// request costs the broker is paid once. When little waits, it goes out at once, alongside what is under way; when much
// does, it gathers until one of the two requests under way to that broker is answered. A request is answered when the
// replicas of all its partitions have it, so a partition that failed is tried in requests of its own, or with those
// that failed with it, until it succeeds.
//
// Each carries its source, term, seq (1, 2, 3, ... in this partition and term) and prev (the highest version that the
// source is known to have in the partition before it), from which a consumer sees repeats, leftovers of earlier
// terms, and records that the brokers lost. The age in it is a lower bound: that of its youngest batch when it was
// encoded. It is unknown as soon as one batch's is.
//
// # Why there is no idempotent producer
//
// Kafka can number the records of a producer and drop repeats (KIP-98); the library in use cannot. It is not needed.
// What can happen is this:
//
//	reader                      connection A      broker             consumer
//	record seq 5 -------------> stalls
//	times out; outcome unknown
//	the same record, seq 5 -----(connection B)--> offset 100         seq 5: done
//	record seq 6 -------------------------------> offset 101         seq 6: done
//	                            goes on --------> offset 102, seq 5  5 <= 6: a repeat
//
// Or the first attempt is appended at once and only its acknowledgement is lost: then seq 5 is there twice in a row. In
// no case is anything missing, for seq 6 is not sent before an attempt with seq 5 was acknowledged, and an
// acknowledged record has its place before it. In every case the repeat has a seq that was there before, or, after a
// change of leaders, a term that is not the highest; so the chain does not break over it. What it says is done a
// second time: a key is deleted once more, which harms nobody. It carries its old version, so a mark that is out
// already covers it, and actions that write values are refused by the version guard.
//
// An idempotent producer would in fact be weaker here: it knows nothing of what the process before it had on its way,
// while terms do.
//
// # Concurrency
//
//	Append, one caller at a time   hashes keys, pushes a piece of the batch to each partition that it touches
//	lanes.send, 13 for each broker takes partitions, whose record, seq and head it owns until it gives them back;
//	                               encodes, produces
//	runMarks                       produces the newest mark
//	watch                          asks who leads the partitions, opens those that are added
//
// All but Append run under [Producer.Run]. Three kinds of lock: that of a partition's queue, taken once for a batch and
// a few times for a record; that of the lanes, which says which partitions are taken, twice for a request; and the
// ledger's, which knows what is acknowledged and what may be told, a few times for each batch and record. None is held
// while anything is waited for. A partition's is taken inside that of the lanes, no other inside another. There is no
// lock, channel send or allocation for a key.
package producer
