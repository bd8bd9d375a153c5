// Package schema knows what the columns of a table were when a stretch of the binlog was written.
//
// Row events number their columns. Their names come with them only under binlog_row_metadata=FULL. With MySQL's default
// (MINIMAL) and MariaDB's (NO_LOG) they must be known from elsewhere. The server's present definition is wrong for rows
// that were written before an ALTER. The package is next to the path of row changes, not on it: package canal asks the
// [Tracker] for the definition under each new TABLE_MAP, and hands it every statement of the binlog.
//
// # How it knows
//
// A definition has one of two sources. Either it follows from statements in the binlog: a CREATE TABLE, and
// every ALTER, RENAME and DROP since, applied one by one. Or it is what information_schema says now, carried back to
// the position of the stream: the tracker looks through the binlog between the two, and if nothing in it touched the
// table's columns, the two are the same. Statements that only added or renamed columns can be undone exactly, and are;
// after any other statement the definition is not known.
//
// # Guarantees
//
// The package never guesses. A statement that it cannot follow in full puts the table in doubt ([ErrDoubt]), as does
// a TABLE_MAP that contradicts what is known; [Tracker.Resolve] asks the server, and if that does not settle it, the
// error wraps [ErrUnknownSchema] and says why. The table stays unknown, without another question, until a statement,
// other columns or a new connection give a reason to ask again; or, where we may not read it, or it is locked
// ([Tracker.Unread]), until it can be read ([Tracker.Allowed]).
//
// A statement that is in no binlog (sql_log_bin=0, or one on another server of several) cannot be followed.
// [Tracker.Verify] finds its effect: the known definition, after the statements that are still to come, must be what
// the server says now. It runs on each connection, and for a table whose TABLE_MAP has another id than before
// ([Tracker.Mapped], [Tracker.VerifyMapped]): any ALTER changes the id.
//
// The tracker's knowledge is a value ([Tracker.Encode], [Decode]), which is saved with the position, so that a restart
// at a checkpoint knows the columns as of that checkpoint.
//
// Memory: the definitions of the tables that are wanted, and of at most [MaxOthers] others, which may still become
// wanted: gh-ost and pt-online-schema-change build a table under another name and rename it.
//
// With binlog_row_metadata=FULL the names and nearly everything else come from the events. Some properties are never in
// the binlog: ZEROFILL and its width, the decimals of FLOAT(M,D), which binary columns are UUIDs. The tracker follows
// these, and looks for them, for tables whose columns may have them. Named columns need no order, so such a property
// may be known for some columns and not for others, which statements have touched in between; those are marked
// ([binlog.Attributes].Unknown).
//
// # Concurrency
//
// A Tracker belongs to one goroutine: the canal's loop. The package starts no goroutine.
package schema
