// Package checkpoint is the position from which a source is read again after a restart: the rules for when it moves,
// the saver that makes it durable a few times a second, and its form in JSON.
//
// Its place on the path: after both event logs. A [Checkpoint] follows the ends that the log reports as durable; a
// [Storage] decides where the bytes go: a file in one process, a compacted topic with Kafka.
//
// What is guaranteed, if the Storage keeps its promise:
//
//   - The durable position is never ahead of the current one, and neither is ever ahead of what is finished.
//   - A method that writes returns nil only when its effect is durable. When it fails, the effect may have taken place
//     or not; every write can be repeated, with the same result.
//   - The epoch never falls.
//
// Concurrency: a Checkpoint may be used by several goroutines at once; its writes are made one after the other.
package checkpoint
