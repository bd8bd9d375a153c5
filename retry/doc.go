// Package retry decides what happens after a failure: which class an error belongs to, how long to wait before
// the next attempt, when a key is parked and when it becomes a dead letter.
//
// Its place on the path: the invalidator asks [ClassifyRedis] about every error of Redis, and canal asks
// [ClassifySource] about every error of MySQL or MariaDB. What is wrong with the whole server is waited out by a
// [Loop], which says so once; a key that is in trouble by itself goes through the steps of a [Policy]: some attempts in
// place, then parked in a [Store] for longer and longer, at last a dead letter. The package does no I/O and does not
// know which stage calls it; stores are implemented elsewhere.
//
// What is done once a second, or once in some seconds, keeps the beats of the process ([Beat]).
//
// What it guarantees: no error is without a class. One that is not known is classed so that nothing is lost: an
// unknown error of a connection as the server's, an unknown answer of Redis as the one key's, which is bounded by
// the store, and an unknown answer of the source as one that an operator must see.
//
// The functions, [Policy] and [Reporter] may be used concurrently; a [Loop] and a [Backoff] belong to one goroutine at
// a time.
package retry
