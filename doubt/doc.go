// Package doubt keeps records of events that may have left a stale key although all work is finished: a TRUNCATE that
// named no rows, a Redis that came back with older data, a server that knew less than the one before it.
//
// A doubt is an alarm that does not pass by itself. It is durable before the event that caused it is passed over, it
// survives restarts, and while there is one the state is never `fresh`. It ends when freshet has answered it, or when
// an operator dismisses it by its id.
//
// With Kafka several groups of invalidators keep a Redis each from one topic. What is in doubt about a source is so for
// each of them. Such a doubt is one record, and each group keeps, as a fact, up to when it has settled it. Once all
// that are known have, the process that records doubts about the source drops it ([Book.Release]).
//
// The stages record doubts; where they are kept is the event log's business (a [Keeper]): the store of the embedded
// log, or a compacted topic next to the one with the invalidations, which all processes follow (a [Follower]). The same
// place keeps a few small facts ([Facts]) that must outlive a restart.
//
// A [Book] is safe for concurrent use. Its lock is never held while it waits for the keeper, so that the status can be
// asked at any time. What is written to the keeper, and what is read of all of it, takes turns: so that an answer that
// is older than a write never undoes it, and a dismissal never takes with it what came after.
package doubt
