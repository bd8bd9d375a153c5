// Package scope makes Redis forget every key that given templates can have made: the answer to a doubt about keys that
// no row names, such as those of a table that was truncated.
//
// It stands next to the engine of package invalidator, and is a customer of it: what is found in Redis goes through
// the engine as batches of one more partition, so that a key that Redis refuses is tried again and parked as every
// other, and Redis' being away is noticed in one place. Nothing is ever written.
//
// # Two passes
//
// A pass goes through all keys with SCAN. Redis promises that a full iteration returns every key that was there from
// its beginning to its end (https://redis.io/docs/latest/commands/scan/). The first pass is for freshness. It is not
// enough: a reader may have read the database before everybody could see what happened, and fill the cache after the
// pass has looked there. So one invalidation of its own, the probe, goes through the engine between the passes. It
// carries the place in the binlog and the longest D of the mappings, and it is finished by the engine's one rule: sent
// D after everybody could see the place, and D after the last silence of Redis. Whatever such a reader had in hand has
// taken effect by then, so that the second pass finds it, and one delete is enough for each key it finds.
//
// What the engine itself still writes is no reader's: a value of a change before the place may wait in the log, or for
// its final action. The second pass begins when that is finished as well ([Task].Finished).
//
// A pass that more than one Redis server had a part in proves nothing, since the order of an iteration is the server's
// own. It is done again. So that none goes unnoticed, Redis says with each page which server it is.
// In a cluster a pass goes through one master after the other, and each distribution of the slots counts as another
// server.
//
// An engine that is stopped drops what it was given, and returns without a fault. So a scope is done only if the engine
// has committed all that it was handed.
//
// # Pace
//
// Between two pages of SCAN a pass rests four times as long as Redis took for the page, and longer if the keys found
// would exceed the rate. Memory is a page of keys, whatever Redis holds.
package scope
