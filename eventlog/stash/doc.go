// Package stash keeps the keys of XA transactions that wait for their outcome, and the values to write under them.
//
// Its place on the path: next to the checkpoint of both event logs, each of which is a [Storage]: a file in one
// process, a compacted topic with Kafka. The reader stores what the rows of XA PREPARE made stale, and asks for it at
// XA COMMIT.
//
// XA PREPARE brings the rows, XA COMMIT makes them visible, and between the two there may be days, many saved positions
// and a restart. So what the rows made stale is written down, chunk by chunk, before the saved position can pass the
// PREPARE, and is kept until the saved position has passed the COMMIT: it is removed no earlier than the write that
// saves that position. Removed any earlier, a crash would read the COMMIT again and find nothing to invalidate.
//
// What is guaranteed, if the Storage keeps its promise:
//
//   - What [Writer.Append] has stored is recalled by the first outcome after it, also after a crash; whole, in its
//     order.
//   - A transaction that is read again replaces what was stored of it, with its first chunk.
//   - All transactions together stay within two bounds: keys and bytes. In memory there is only an index of them.
//
// Concurrency: a [Stash] may be used by several goroutines at once; a [Writer] belongs to one.
package stash
