// Package schema knows what the columns of a table were when a stretch of the binlog was written.
//
// Row events number their columns. Their names come with them only under binlog_row_metadata=FULL; with MySQL's
// default (MINIMAL) and MariaDB's (NO_LOG) they must be known from elsewhere, and what the server says now is not what
// held when the rows were written, if the table was altered since. The package is next to the path of row changes, not on it:
// package canal asks the [Tracker] for the definition under each new TABLE_MAP, and tells it every statement of the
// binlog.
//
// # How it knows
//
// A definition has one of two sources. Either it follows from statements that stand in the binlog: a CREATE TABLE, and
// every ALTER, RENAME and DROP since, applied one by one. Or it is what information_schema says now, carried back to
// the place of the stream: the binlog between the two is looked through, and if nothing in it touched the table's
// columns the two are the same. What only added or renamed columns can be undone exactly, and is; after anything
// else the definition is not known.
//
// # Guarantees
//
// The package never guesses. A statement that it cannot follow in full puts the table in doubt ([ErrDoubt]), as does
// a TABLE_MAP that contradicts what is known; [Tracker.Resolve] asks the server, and when that does not settle it the
// error wraps [ErrUnknownSchema] and says why. It stays so, without another question, until a statement, other columns
// or a new connection give reason to ask again.
//
// A statement that stands in no binlog (sql_log_bin=0, or one on another server of several) cannot be followed.
// [Tracker.Verify] finds what it has altered: what is known, with the statements that are still to come, must be what the
// server says now. It is asked on each connection, and of a table whose TABLE_MAP has another id than before
// ([Tracker.Mapped], [Tracker.VerifyMapped]): any ALTER gives it one.
//
// What is known is a value ([Tracker.Encode], [Decode]), which is saved with the position, so that a restart at a
// checkpoint knows the columns as of that checkpoint.
//
// Memory: the definitions of the tables that are wanted, and of at most [MaxOthers] others which may still become
// wanted ones, as gh-ost and pt-online-schema-change do it: they build a table under another name and rename it.
//
// With binlog_row_metadata=FULL the names come from the events, and with them nearly all. What never stands in the binlog
// is followed and looked for all the same, for tables whose columns may have it: ZEROFILL and its width, the decimals of
// FLOAT(M,D), which binaries are UUIDs. As names need no order, it may be known of some columns and not of others, which
// statements have touched in between; those are marked ([binlog.Attributes].Unknown).
//
// # Concurrency
//
// A Tracker belongs to one goroutine: the canal's loop. The package starts no goroutine.
package schema
