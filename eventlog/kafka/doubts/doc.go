// Package doubts keeps doubts and facts in a compacted topic of one partition, for all processes of one topic of
// invalidations. It implements [doubt.Follower] and [doubt.Facts].
//
// The key of a record is "doubt/ID" or "fact/NAME", its value a doubt as JSON or the fact's bytes; a record without a
// value removes. A write is durable when all in-sync replicas have it. Writing the same twice, or by several processes
// at once, does no harm: the last record of a key counts.
//
// Each process follows the topic from its beginning, with one request that the broker holds back until there is
// something new. What it has written itself it knows at once, by the offset that the brokers gave it: a record with a
// lower offset that is read later does not undo it. If the topic is deleted, or created again, the processes that knew
// what was in it writes it again: a doubt ends by a dismissal only.
package doubts
