// Package letters keeps keys in trouble in Kafka: those that are parked until their next attempt, and dead letters.
//
// Its place on the path: next to the invalidator, which parks in a [Store] what Redis refuses, and asks it what is due.
//
//	engine --Park--> <topic>.<group>.retry.<delay>   one partition for each delay, so that its head is the next due
//	       <--Due--- window <--Serve--               a bounded part of each partition that this process was given
//	       --Settle--> the next delay's topic, or <topic>.<group>.dlq; then the group's committed offset moves on
//	freshet dlq --list, replay, purge--> <topic>.<group>.dlq    one partition, compacted; a letter ends by a tombstone
//
// Records are JSON documents with a format number and no value of a row: a retry deletes, or reads again.
//
// What is guaranteed:
//
//   - A key that was parked is tried, moved on or buried before its record is finished. What is tried again is produced
//     with acks=all first, and only then is the old record finished; the committed offset moves over finished records
//     without a hole. Doubt (a lost acknowledgement, a crash, a partition that moves) leads to a record twice, and so
//     to one delete too many. That harms nobody: "this key lacks a delete" is as true said twice, and deletes are
//     idempotent.
//   - Keys that were lost by the brokers are noticed where Kafka can show it: they are a doubt, durable before what is
//     left is offered. What an unclean leader election cuts off and later records grow over is not noticed here: keep
//     unclean.leader.election.enable off for these topics.
//   - A record that cannot be read is a dead letter, whole, and stops nothing.
//   - Memory is bounded: by [Options].Window and [Options].WindowBytes for each partition, by pages for lists, and to a
//     few megabytes for the count of dead letters. Finished records are removed from the retry topics every
//     [Options].TrimEvery. What is not finished is bounded by the brokers' disk alone, so Park is never refused with
//     [retry.ErrFull]. A hot key that cannot be deleted is made one entry of again whenever several of it
//     are due in one partition.
//   - A dead letter stays until somebody replays or purges it, also when a later delete of the same key succeeds. The
//     letter would have to be looked for after every success of any key, and what it says is of use all the same:
//     something was wrong with this key for long. Replaying it costs one delete.
//
// Due is reckoned by the clock of the process that parked, and read by that of the process that tries: a difference
// makes attempts earlier or later, and nothing else. Parked keys are parked no earlier than D after their mark, so no
// attempt can be too early for that.
//
// Concurrency: a Store may be used by several goroutines at once. One lock guards the windows and is held for memory
// only. [Store.Serve] and [Store.Run] are their callers' goroutines; the package starts none. The methods on dead
// letters work without either, on a Store of their own, while no freshet runs.
package letters
