// Package group is membership in a consumer group: which partitions this process works on, from where, and how far it
// has come.
//
// Its place on the path: between the brokers and the workers of partitions. The invalidators share the partitions of
// the topic and of its retry topics through it; readers elect their leader by sharing a topic of one partition.
//
//	Member.Run --Assignment--> handle(ctx, assignment)     one for each partition that this member was given
//	    ^                     |
//	    +--committed offsets--+ Claim.Commit     gathered, sent twice a second and when the generation ends
//
// A [Member] is given partitions for a generation: the time between two rebalances. When one ends, the contexts of its
// handles end; each finishes what it must and returns, what it has committed by then is sent, and only then does the
// member join again. That takes [Options].Drain at the most, since no heartbeats are sent meanwhile. A handle that
// takes longer is waited for before the next ones start, but its commits come to nothing.
//
// With [Options].Keep the handles go on: the coordinator may wait for a member that is gone until its session is over.
// Those whose partitions the next generation gives to somebody else end then. What is finished meanwhile is committed
// for the generation before, which the coordinator takes until all have joined (coordinator_test.go), or else for the
// next one.
//
// What is guaranteed:
//
//   - handle runs once at a time for a partition in this process. In the group, two members may work on the same
//     partition only while one of them does not know yet that it is not its any more: its commits are refused then.
//     What was not committed is done again by the next owner. That lasts for a session at the most, with Keep for two
//     after the generation has ended.
//   - A handle that goes on into the next generation has had its partition all the time: nobody can have committed
//     further. So it goes on only in the generation that follows the one before, as the same member.
//   - Committed offsets only rise, and only for partitions that the member owns; the brokers enforce neither within a
//     generation.
//   - A partition stays where it is as long as balance allows. See [balancer].
//   - Brokers that are away, a coordinator that moves, a session that ran out: the member joins again, forever.
//
// Concurrency: [Member.Run] owns all goroutines and waits for them: one for each handle, one that commits, and those of
// the library. [Claim.Commit] may be called from any goroutine; it takes one short lock and never waits for a broker.
//
// The library is used at the level of generations; its Reader is not used because it passes over lost offsets,
// commits for partitions that it no longer owns, and lets one slow partition hold up the others.
package group
