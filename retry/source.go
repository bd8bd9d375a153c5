package retry

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// ClassifySource says what an error of MySQL or MariaDB means: [Away] (try again forever, also on another
// address), [Refused] (an operator must act), or [Lost] (the position is gone). It knows the errors of go-mysql.
//
// Everything that is not an answer of the server is [Away], except a certificate that does not verify. An answer
// that is not known is [Refused], unless its SQLSTATE is of the classes 08 (connection) or 40 (rollback).
func ClassifySource(err error) Class {
	if err == nil {
		return None
	}
	e, ok := ServerError(err)
	if !ok {
		var cert *tls.CertificateVerificationError
		if errors.As(err, &cert) {
			return Refused
		}
		return Away
	}
	switch {
	case e.Code == erFatalReadingBinlog, e.Code == erServerFatalReadingBinlog:
		return classifyDump(e.Message)
	case slices.Contains(awayCodes(), e.Code):
		return Away
	case slices.Contains(lostCodes(), e.Code):
		return Lost
	case e.Code == erNotSupportedAuthMode:
		return Refused
	case strings.HasPrefix(e.State, "08"), strings.HasPrefix(e.State, "40"):
		return Away
	}
	return Refused
}

// ServerError returns the server's own error within err, if it is one.
func ServerError(err error) (*mysql.MyError, bool) {
	var e *mysql.MyError
	return e, errors.As(err, &e)
}

// IsTableDenied reports whether the server says that we may not read a table, or not all of its columns. It says so
// whether the table is there or not.
func IsTableDenied(err error) bool {
	e, is := ServerError(err)
	return is && (e.Code == 1142 || e.Code == 1143) // ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
}

// IsNoTable reports whether the server says that a table does not exist.
func IsNoTable(err error) bool {
	e, is := ServerError(err)
	// ER_BAD_DB_ERROR, ER_UNKNOWN_TABLE, ER_NO_SUCH_TABLE, ER_VIEW_INVALID, ER_NO_SUCH_TABLE_IN_ENGINE
	return is && slices.Contains([]uint16{1049, 1109, 1146, 1356, 1932}, e.Code)
}

// IsLockWait reports whether the server says that a lock was waited for as long as the session waits: somebody alters
// the table, or has locked it.
func IsLockWait(err error) bool {
	e, is := ServerError(err)
	return is && e.Code == 1205 // ER_LOCK_WAIT_TIMEOUT
}

// IsTimeLimit reports whether the server says that a statement has taken longer than it may.
func IsTimeLimit(err error) bool {
	e, is := ServerError(err)
	return is && (e.Code == 1969 || e.Code == 3024) // ER_STATEMENT_TIMEOUT, ER_QUERY_TIMEOUT
}

// EndsSession reports whether the server ends the session with this error of its own: it shuts down, somebody has
// killed the session, or it was idle for too long.
func EndsSession(e *mysql.MyError) bool {
	switch e.Code {
	case 1053, 1077, 1079, 1927, 3169, 4031:
		return true
	}
	return false
}

// erFatalReadingBinlog is ER_SOURCE_FATAL_ERROR_READING_BINLOG (MariaDB: ER_MASTER_FATAL_ERROR_READING_BINLOG):
// the one number for nearly everything that a dump can fail with. Only its text tells which.
const erFatalReadingBinlog = 1236

// erServerFatalReadingBinlog is ER_SERVER_SOURCE_FATAL_ERROR_READING_BINLOG, the same for the server's own log.
const erServerFatalReadingBinlog = 13114

// erNotSupportedAuthMode is of SQLSTATE 08004, but what the server wants of us does not change by itself.
const erNotSupportedAuthMode = 1251

// awayCodes returns the errors that pass by themselves, or with the server's coming back.
// Source: MySQL "Server Error Message Reference", MariaDB "Error Codes".
func awayCodes() []uint16 {
	return []uint16{
		1021, 1114, // disk full, table full
		1037, 1038, 1041, // out of memory, out of sort memory, out of resources
		1040,             // ER_CON_COUNT_ERROR: too many connections
		1043,             // ER_HANDSHAKE_ERROR
		1047,             // ER_UNKNOWN_COM_ERROR: also a Galera node that is not in the primary component
		1053,             // ER_SERVER_SHUTDOWN
		1077, 1078, 1079, // normal shutdown, got signal, shutdown complete
		1080,                                           // ER_FORCING_CLOSE
		1135,                                           // ER_CANT_CREATE_THREAD
		1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, // aborted connections, network reads and writes
		1161, 1184, 1189, 1190,
		1203,       // ER_TOO_MANY_USER_CONNECTIONS
		1205, 1213, // lock wait timeout, deadlock
		1226,             // ER_USER_LIMIT_REACHED
		1243,             // ER_UNKNOWN_STMT_HANDLER: of a session that is gone
		1317,             // ER_QUERY_INTERRUPTED: also a dump that was killed
		1412, 1615, 1689, // the table has changed, prepare again, a lock was given up
		1461,       // ER_MAX_PREPARED_STMT_COUNT_REACHED
		1927,       // MariaDB ER_CONNECTION_KILLED
		1969, 3024, // a statement's time limit
		3032, // ER_SERVER_OFFLINE_MODE
		3168, // ER_SERVER_ISNT_AVAILABLE
		3169, // ER_SESSION_WAS_KILLED
		4031, // ER_CLIENT_INTERACTION_TIMEOUT
	}
}

// lostCodes returns the errors with a number of their own that say that a position is gone.
func lostCodes() []uint16 {
	return []uint16{
		1373,             // ER_UNKNOWN_TARGET_BINLOG
		1789,             // ER_SOURCE_HAS_PURGED_REQUIRED_GTIDS
		1945, 1951, 1955, // MariaDB: GTID position not found in any binlog, start from a hole, not found (2)
	}
}

// classifyDump reads the text of error 1236. What is neither known to pass nor known to be a matter of settings
// counts as a lost position: to halt aloud is right for damage of any kind.
//
// The texts are those of MySQL 5.7 to 9.7 (Binlog_sender) and MariaDB 10.4 to 11.8 (sql_repl.cc).
func classifyDump(text string) Class {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	switch {
	case has("ut of memory", "memory allocation failed", "I/O error reading log event"):
		return Away
	case has(
		"same server_uuid/server_id", // another reader has our server id: one of the two is cut off
		"AUTO_POSITION mode",         // asked by GTID, but the source has GTID_MODE = OFF
		"Misconfigured",              // server id 0
		"is not open",                // no binary log
		"max_allowed_packet",
		"checksum that", // the reader has not said that it understands checksums
	):
		return Refused
	}
	return Lost
}
