// Package rebuild runs the queries from which keys are rebuilt. It is next to the path of a row change: the invalidator
// knows when a change is visible, and asks for the value of a key by the query's fingerprint and its parameters. The
// result has the fields of a rebuild from the row, in the same form.
//
// # Guarantees
//
//   - The result is one consistent read of committed data, begun after [Runner.Query] was called: nothing older, and
//     nothing incomplete. A result that is cut, too large, has more rows than expected, or two columns of one name is
//     an error.
//   - If transactions have GTIDs, it is read on a server that has executed those for which the value is needed:
//     sessions of the server before a failover, and of a replica that lags behind, are closed. Without GTIDs, and for
//     keys that were parked, a session is used for a minute at most.
//   - On a replica nothing older is read than the source had when the run began, whatever the replica has or does; if
//     that cannot be known, the source is asked.
//   - What is asked for several keys together has the values that it has alone.
//   - Nothing is written and no row is locked: sessions are read-only, and each statement runs in its own transaction.
//   - A value has the same form as from the row: columns are described as event.Column does and written by package
//     document; sessions have time_zone '+00:00' and utf8mb4.
//   - A query ends: the server gets its timeout, and a second later the connection is closed.
//   - Memory is bounded: results are written as they are read, and refused beyond a limit; there are no more
//     connections and running queries than the pool has.
//   - Errors name the mapping and what to do, never a parameter or a row. Of the server's error while a query runs,
//     only the number is reported, because its sentences quote values.
//
// # Errors
//
// Every error is an [*Error], or the context's. Permanent says that no retry helps: the query is wrong, or the rows
// that it finds are. All other errors pass: a connection that was lost or could not be made, timeouts, deadlocks.
//
// # Concurrency
//
// A [Runner] may be used by several goroutines. Each query takes a place in the pool, and a connection for itself while
// it runs. [Runner.Run] closes connections that were idle for long; [Runner.Close] ends running queries, and waits for
// them.
package rebuild
