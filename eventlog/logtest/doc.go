// Package logtest is the conformance suite of [eventlog.Input] and [eventlog.Output]: what the reader and the
// invalidator rely on, whichever log they have. Every implementation calls [Run] from a test.
//
// The suite plays the reader's and the invalidator's part, and the checkpoint's: it keeps the last end that Durable
// delivered, and after a crash reads its source again from there, as canal does. It judges what is delivered as
// single invalidations, so a log is free to split batches over partitions and to deliver again what was not
// committed; that nothing is missing and that each key's order holds is what counts.
//
// The suite starts goroutines and waits for all of them; nothing in it sleeps. A log that hangs fails after [Patience].
package logtest
