// Package rebuild runs the queries from which keys are rebuilt. It is next to the path of a row change: the invalidator
// knows when a change is visible, and asks for the value of a key by the query's fingerprint and its parameters; what
// comes back has the fields of a rebuild from the row, in the same form.
//
// # Guarantees
//
//   - What is returned is one consistent read of committed data, begun after [Runner.Query] was called. Nothing older,
//     nothing half: a result that is cut, too large, of more rows than expected, or has two columns of one name is an
//     error.
//   - It is read on a server that has executed the transactions that the value is asked for, where they have GTIDs:
//     sessions of the server before a failover, and of a replica that lags behind, are closed. Without GTIDs, and for keys
//     that were parked, a session is used for a minute at most.
//   - Nothing is written and no row is locked: sessions are read-only, and statements run in transactions of their own.
//   - A value looks as it would from the row: columns are described as event.Column does and written by package document;
//     sessions have time_zone '+00:00' and utf8mb4.
//   - A query ends: the server gets its timeout, and a second later the connection is closed.
//   - Memory is bounded: results are written as they are read, and refused beyond a limit; connections and queries under
//     way are as many as the pool has.
//   - Errors name the mapping and what to do, never a parameter or a row: of what the server says when a query runs, only
//     the number is told, since its sentences quote values.
//
// # Errors
//
// Every error is an [*Error], or the context's. Permanent says that no retry helps: what is wrong with the query, or with
// what it finds. All else comes and goes: a connection that was lost or could not be made, timeouts, deadlocks.
//
// # Concurrency
//
// A [Runner] may be used by several goroutines. Each query takes a place in the pool, and a connection for itself while
// it runs. [Runner.Run] closes connections that were idle for long; [Runner.Close] ends what runs, and waits for it.
package rebuild
