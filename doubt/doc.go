// Package doubt keeps what may have left a stale key behind although all work is finished: a TRUNCATE that named no rows,
// a Redis that came back with older data, a server that knew less than the one before it.
//
// A doubt is an alarm that does not pass by itself. It is durable before the event that caused it is passed over, it
// survives restarts, and while there is one the state is never `fresh`. It ends when an operator dismisses it by its id.
//
// The stages record doubts; where they are kept is the event log's business (a [Keeper]): the store of the embedded log,
// or a compacted topic next to the one with the invalidations.
//
// A [Book] is safe for concurrent use. Recording holds no lock while it waits for the keeper.
package doubt
