// Package embedded is the event log of one process, and the store that outlives it.
//
// On the path, [Log] is between the reader and the invalidator and carries batches in memory, a few at a
// time. It stores nothing: the binlog is the storage. Durable data is in the [Store], a bbolt file in
// eventlog.dir: the checkpoint (how far everything is finished), the keys in trouble (parked and dead letters), and
// the keys of XA transactions that are prepared and not yet committed.
//
//	reader --Append--> Log --Fetch--> invalidator --Park, Settle--> Store
//	                    |  <--Commit--                                ^
//	                    +--Durable--> Checkpoint.Run ---save----------+
//
// What is guaranteed:
//
//   - The checkpoint never passes work that is not finished: a position goes into it only after the token of the
//     batch that holds it, and of every batch before, was committed. After a crash the source is read again from
//     there.
//   - A method that writes returns nil only when its effect is on disk. When it fails, the effect may have taken place
//     or not; every write can be repeated, with the same result. Uncertainty leads to work that is done again, never to
//     lost work.
//   - A file that is damaged, cut short or of a newer format is refused with a sentence; it never counts as a
//     first start. Only a missing file does. Every record carries a checksum.
//   - Everything is bounded: the log in batches, the store in entries and bytes ([retry.ErrFull], [stash.ErrFull]).
//
// Concurrency: all types may be used by several goroutines at once. The store serialises its writes (one disk sync
// each); the log has one lock for its buffer and one for what is not yet committed, held for a few instructions and
// never while waiting. [Checkpoint.Run] is the only goroutine here, and it is its caller's.
package embedded
