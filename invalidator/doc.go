// Package invalidator deletes keys in Redis, or writes them again: it takes batches of invalidations from a partition
// of the event log, does to each key what its mapping says at once and, where that can have been too early, a second
// time, and commits to the log how far everything is finished.
//
// On the path of a row change it is the last stage. It knows keys, Redis and what is finished; it knows neither
// tables nor binlogs, nor which log it has.
//
// # The rule
//
// A reader that fills the cache may have read the database before a change was visible to it, and write the old
// value after the change's key was deleted. D, the second delete of a mapping, is the longest that such a reader
// takes from reading to its write taking effect. So a key is finished by a delete that was sent
//
//   - no earlier than D after it became known here that everybody could read the change: from a mark that covers its
//     source, term and version, or from the age that the batch came with; and
//   - no earlier than D after the end of the last silence of Redis, that is a time of more than D/4 in which it may
//     have been doing nothing, for while it hangs the readers' writes wait in its sockets, next to our deletes; and
//   - whose own reply took no longer than D/4.
//
// A Redis that is later than that for a full round trip gets smaller ones, until it is in time ([trips]).
//
// That is [counts], the whole of it, and it is asked about every delete that Redis acknowledges. The first delete goes
// out at once, for freshness. If it fulfils the rule (old news: a backlog, a mark that came long ago) it is the
// last. Otherwise another one is sent as soon as it would fulfil the rule, and another if it then does not. So first,
// final, repeated and parked deletes are all the same thing, and there is one place to get right. Where D is
// 0 (second_delete: none) no reader is slow, and no silence matters: what was deleted before its change was known to be
// visible is deleted once more as soon as it is, and what was known to be visible is deleted once.
//
// Silences are measured by [watch] from when answered commands were sent, so that it misses none; when nobody else
// asks Redis, its prober does, so that it takes no idle time for one. The time before the first answer is a silence,
// since nobody knows what Redis did then. Everything is on the monotonic clock of this process; no clock is compared
// with another machine's.
//
// The property test plays the rule on simulated time, with the engine as it is, among readers that use up their D,
// servers that lag, hangs, lost replies, crashes, replays, duplicates, evictions and rate limits, over keys that are
// deleted, rebuilt from their rows and rebuilt by query, and a local cache that is told of them. It finds nothing. With
// each of the mutants in testdata/mutants, which take away a part of the rule or of what follows, it finds a key that
// stays stale.
//
// # Other actions
//
// The rule holds for every action: the final one is the same again. Units of keys are of three classes. Deletes are
// above. Writes are all other actions of which the row says all (values that are rebuilt from it, fields, members,
// counters, shorter lifetimes), and deletes that somebody is told of: package write makes calls of them, in which
// values are guarded by version, so that they need no order here. Where Redis refuses one, the key is forgotten in
// the next round trip, which raises its guard, and unlinked if that is refused as well; then it is a key in trouble,
// unless nothing but memory was lacking. What it publishes or adds to a stream is sent in another round trip, after the
// acknowledgement and before the key counts as done: at least once. Only a key that was parked is later deleted
// without anybody being told.
//
// Whether a value may still be written, and until when, is settled each time that it is sent ([write.Item.Judge]).
// Redis checks that time by its own clock, which is asked for every ten seconds ([redisTime]). Old news forgets: a
// change that has been known to be visible for longer than [write.Window], all that an older leader left, and all that
// was read before its reader had ever, or for long, handed over all that the source held ([marks.unseen]): the first
// mark after a start or a rewind covers changes of any age. A backlog of old values must not replace what the
// application has read since, and a guard that was evicted, or is of another epoch, cannot tell. Nor is what is known
// here of times worth anything if the process was stopped meanwhile, or Redis' clock stepped ([health.slept]). Where a
// reply of a first action was lost or late, the final one confirms no guard that the first has begun ([firstAction]): a
// newer change may have been finished before. A leftover leaves what the guard knows to be of a newer change: that one
// has a final action of its own. What was parked is forgotten under the version of its change, for an older change's
// action may be repeated after it; a parked counter is raised.
//
// Queries wait for their change to be known as visible, since what they read before might be the old value; then they
// go to [queryPool]. One run serves all that wait for the same key when it begins, and counts as an action that was
// sent then. A query that fails has its key forgotten before it is tried again. What waits for queries counts as
// pending from the start, is bounded in bytes and in time, and is forgotten beyond that (query_wait.go), for slow
// queries of one mapping must not hold up the keys of any other. What is served gently waits in a line of its own
// (query_line.go), and is fetched no faster than it is queried.
//
// Keys of a mapping with a rate limit of its own wait for their first action in [pacedKeys], where a later
// change takes the place of an older one.
//
// # Finished
//
// A key is finished by such a delete, or by being parked durably in the [retry.Store]. Work finishes out of order; a
// batch's token is committed once it and all batches before it are finished. A crash loses what is pending, and the
// log hands it out again.
//
// Redis away (no connection, no answer, LOADING, READONLY, a missing password, what [retry.ClassifyRedis] calls
// away): the writers keep what they have and try forever, nothing more is fetched, nothing is parked, the watermark
// stays. One key refused (an ACL): the refused command is split to find the key, the others go on, and the key is
// tried in place, then parked; not before its final delete is due, so that it lacks exactly one. Parked keys are
// tried again by the engine's retrier, and become dead letters in the end. A full store stops reading.
//
// # Goroutines
//
//	Engine.Run    retrier: the parked keys            (its own goroutine: the caller's)
//	for each node 4 writers: a round trip each,       share health and watch, under their locks, for each trip
//	                and 1 for gentle work
//	              4 query workers: a query each, and  the same; share the line of runs under its lock
//	                who renews its lock meanwhile
//	              1 that ends long waits for queries  the line of runs, under its lock
//	for each node 1 prober: asks Redis                the same
//	cluster only  1 that follows the topology         swaps it as a whole, wakes the loops
//	Engine.Serve  loop: owns all of a partition       (the caller's)
//	              fetcher: Fetch, duplicates          hands over entries
//	              parker: Park                        is handed units, and hands them back
//	Engine.Mark   the caller's                        appends to marks, under its lock, and pokes the loops
//
// What is handed over is a batch, a unit (the keys of a batch with one D and class) or a job (some 2000 keys of several
// units, 500 or 1 MiB of them if they are writes: one round trip), never a key; who hands over does not touch it again
// until it comes back. Nothing on the path of a delete takes a lock, sends, sets a timer or allocates for each key. Due
// units wait in one queue for each D and class, in the order in which their changes became known to be visible, under
// one timer. What is served gently ([Engine.ServeGently]) has jobs that are much smaller, and one of them is under way
// at a time ([lane]). Only queries are answered key by key, into the inbox of their partition.
//
// Handing out jobs is inverted: a loop first gets a slot, of which there are as many as the writers can have jobs,
// and then fills a job with all that is ready by then. So small units of live traffic merge into full commands when
// Redis is busy, and go out alone when it is not; and no loop ever waits for a writer, nor a writer for a loop.
//
// The caps ([Options]) hold up fetching alone. Marks, acknowledgements and parking pass them by, so whatever empties
// the queues is never held up, and a transaction of more keys than a cap passes as its keys become visible.
//
// # Nodes
//
// [node] is one server that is written to. With a cluster there is one for each master, and [topology] says which slots
// each has. A partition keeps an [outbox] for each node; a unit, a job and a round trip hold keys of one node. A
// key that a node does not serve strays until the topology has been read again (stray.go), and what was split by an
// older topology is split again before it is sent (reroute.go). All that package write sends for a key lies in the
// key's slot, but for streams. ADR 21 says why it is so, and what is not there yet.
package invalidator
