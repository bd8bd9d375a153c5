// Package ddl reads the statements that a binlog holds as text: what begins and ends transactions, what changes the
// definition of tables, and what changes rows without leaving row events.
//
// It is next to the path of row changes, not on it: package canal gives it every QUERY event, takes from the [Statement]
// where transactions end and which tables lost rows unseen, and hands it on to package canal/schema, which follows
// the tables' columns.
//
// # Guarantees
//
// [Parse] is tolerant and never guesses. It reads as much of a statement as it needs; what it cannot read it calls
// unclear ([Statement].Unclear for a whole statement, [Action].Unclear for one table), and the reader of the result
// must then expect any change. It accepts the dialects of MySQL and MariaDB, and more than either: a statement in a
// binlog has been executed, so it is not checked again.
//
// Any input at all yields an answer in time proportional to its length, without recursion. BEGIN, COMMIT and
// ROLLBACK as the servers write them cost no allocation.
//
// # What the text does not tell
//
// A statement that was logged as a statement may have changed more than it names: through triggers, foreign keys and
// functions. Rows changed so are not in the binlog, and not in the result.
//
// # Concurrency
//
// The package has no state; a Statement shares nothing with the text that it was read from.
package ddl
