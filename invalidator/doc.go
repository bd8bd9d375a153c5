// Package invalidator deletes keys in Redis: it takes batches of invalidations from a partition of the event log,
// deletes each key once at once and, where that can have been too early, a second time, and commits to the log how
// far everything is finished.
//
// On the path of a row change it is the last stage. It knows keys, Redis and what is finished; it does not know
// tables, binlogs, or which log it has.
package invalidator
