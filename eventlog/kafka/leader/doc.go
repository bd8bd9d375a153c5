// Package leader elects one leader among the readers of a source, and keeps the source's checkpoint in a topic.
//
// Its place on the path: around the reader. [Leader.Run] calls the reader when this process is to lead, with the
// [Checkpoint] to go on from; the reader saves to it what the brokers have acknowledged.
//
//	consumer group --seat--> Leader.Run --lead(ctx, checkpoint)--> reader
//	                            |                                    |
//	                            +--take a term--> checkpoint topic <-+ save, stash
//
// Two things make a leader. The readers' consumer group says who should lead: the process that is given the one
// partition of the checkpoint topic. That is quick and friendly but proves nothing, since a member that was stopped or
// cut off does not know that it was thrown out. A term in the checkpoint topic, taken by compare and append (see
// term.go), says who does lead: at most one process ever takes each term, and the highest counts.
//
// A rebalance does not stop a healthy leader. It leads on from one generation to the next, as long as that gives it the
// partition again, which the sticky balancer does. It stops when a generation gives the partition to somebody else,
// when none has been reached for as long as a session, and when it sees a higher term; then it stands by again.
//
// # An old leader does no harm
//
// A leader that was stopped, or is cut off from the group but not from the brokers, may go on for a while next to its
// successor. What it still produces:
//
//   - Invalidations. They name true changes, and a delete too many is only a delete. Each carries the old term, so
//     the process that checks the chain of versions in a partition leaves them out; per-key order is known by versions.
//   - Marks. A mark covers its own and earlier terms only, so one of the old leader never confirms what its
//     successor has read; and what it says of earlier terms is as true as before.
//   - Positions. After the successor's claim in the topic, with a lower term, they are never read again. In front of
//     it they are part of what the successor has gone on from.
//   - Tombstones. It removes only what lies behind a position of its own that is in front of every higher claim, and
//     what it wrote itself or found before its own claim: nothing that a successor needs.
//   - Keys of prepared transactions, under a name with its term. At the worst they are recalled next to the successor's.
//
// It notices at its next write, by the offset that this is given, or at its next look, once a second.
//
// # What is guaranteed
//
//   - At most one process takes each term, and terms rise: also above those that marks name.
//   - A write that returned nil is acknowledged by all in-sync replicas, and was not preceded by a higher term.
//   - A position is never behind what it was when its leader began, unless set by hand. Its epoch is never below one
//     that the source's marks have named.
//   - An empty or damaged checkpoint topic is never taken for a first start, if the source ever made a mark: nobody
//     leads until somebody has decided ([LostError]).
//   - All that is kept in memory is an index of prepared transactions; their keys are read chunk by chunk.
//
// Concurrency: [Leader.Run] owns all goroutines: the group's, one that watches the seat, one that watches the topic,
// and the one that runs lead is its caller's. A [Checkpoint] may be used by several goroutines at once; its writes are
// made one after the other.
package leader
