// Package ddl reads the statements that a binlog holds as text: those that begin and end transactions, those that
// change the definition of tables, and those that change rows without row events.
//
// It is next to the path of row changes, not on it: package canal gives it every QUERY event, takes from the
// [Statement] where transactions end and which tables lost rows unseen, and hands it on to package canal/schema, which
// follows the tables' columns.
//
// # Guarantees
//
// [Parse] is tolerant and never guesses. It reads as much of a statement as it needs. It marks what it cannot read as
// unclear ([Statement].Unclear for a whole statement, [Action].Unclear for one table), and the caller
// must then expect any change. It accepts the dialects of MySQL and MariaDB, and more than either: a statement in a
// binlog has been executed, so it is not checked again.
//
// Every input gives an answer in time proportional to its length, without recursion. BEGIN, COMMIT and
// ROLLBACK as the servers write them cost no allocation.
//
// # What the text does not say
//
// A statement that was logged as a statement may have changed more than it names: through triggers, foreign keys and
// functions. Rows that were changed in these ways are not in the binlog, and not in the result.
//
// # Concurrency
//
// The package has no state; a Statement shares nothing with the text that it was read from.
package ddl
