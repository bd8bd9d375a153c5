package binlog

import "github.com/freshet/freshet/event"

// Rotate says where the stream goes on: at the end of a file, and, artificial, at the beginning of a stream.
type Rotate struct {
	// File is the next file's name, Pos the position in it (4 for its beginning).
	File string
	Pos  uint64
}

// GTID begins a transaction.
type GTID struct {
	// GTID is the zero GTID where the source has none (ANONYMOUS_GTID).
	GTID event.GTID
	// Committed is when the transaction was committed on the server that is read, Original when on the server
	// where it was first committed: microseconds since 1970, 0 where the server does not say (before MySQL 8.0.1,
	// MariaDB).
	Committed, Original uint64
	// Standalone says that the next event, a QUERY, is the whole transaction: no COMMIT or XID event follows.
	// MariaDB only; there it is the sign of DDL.
	Standalone bool
	// DDL says that the transaction is DDL. MariaDB only.
	DDL bool
	// Prepared says that the transaction is an XA transaction that ends prepared, not committed; Completed that it
	// is the XA COMMIT or XA ROLLBACK of one that was prepared before. MariaDB only, which then gives the XID;
	// MySQL tells by the events that follow.
	Prepared, Completed bool
	// XID identifies the XA transaction as XA statements write it: X'6162',X'',1. "" for all others.
	XID string
}

// Query is a statement that was logged as text: DDL, BEGIN and COMMIT, statements in STATEMENT format.
// Its slices alias the event.
type Query struct {
	// Schema is the default schema; empty when there was none.
	Schema []byte
	// SQL is the statement, in the character set Charset.
	SQL []byte
	// SQLMode is the sql_mode that it was parsed with, and whether the event says. See the SQLMode constants.
	SQLMode uint64
	// Charset is the collation id of character_set_client; 0 when the event does not say.
	Charset uint16
	// ServerCharset is the collation id of collation_server, the default of a CREATE DATABASE; 0 when the event does
	// not say.
	ServerCharset uint16
	// ErrorCode is the error that the statement ended with on the source; 0: none.
	ErrorCode uint16
	// NotDone says that an ALTER TABLE only begins here, or has failed: with binlog_alter_two_phase, MariaDB logs it
	// when it begins, and once more when it is done or has failed.
	NotDone  bool
	ThreadID uint32
}

// Bits of [Query].SQLMode that change how a statement is read. They are the same on MySQL and MariaDB.
// Source: MySQL's query_event documentation (Q_SQL_MODE_CODE) and sql_mode bits in system_variables.h.
const (
	SQLModeAnsiQuotes         uint64 = 1 << 2
	SQLModeNoBackslashEscapes uint64 = 1 << 20
)

// XAPrepare ends the rows of an XA transaction on MySQL (XA_PREPARE_LOG_EVENT), and on MariaDB.
type XAPrepare struct {
	// OnePhase says that the transaction is committed, by XA COMMIT … ONE PHASE; else it is only prepared.
	OnePhase bool
	// XID is as XA statements write it: X'6162',X'',1.
	XID string
}

// Heartbeat is sent when there was nothing to send for a heartbeat period: everything before it has been sent.
type Heartbeat struct {
	// File and Pos are where the sender stands. Pos is modulo 4 GiB when Wide is false (a v1 heartbeat).
	File []byte
	Pos  uint64
	Wide bool
}

// Incident says that the source lost events: what follows is not the whole truth.
type Incident struct {
	Number  uint16
	Message string
}
