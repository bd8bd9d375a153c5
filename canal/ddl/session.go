package ddl

import "github.com/freshet/freshet/canal/charset"

// Session is what a QUERY event says of the session that a statement ran in. [Parse] keeps no part of it.
type Session struct {
	// Schema is the default schema; empty when there was none.
	Schema []byte
	// SQLMode is the sql_mode that the statement was parsed with.
	SQLMode uint64
	// Charset is the statement's character set (character_set_client); nil: utf8mb4.
	Charset *charset.Charset
	// ServerCharset is the character set of collation_server, which CREATE DATABASE takes when it names none; "" when
	// the event does not say.
	ServerCharset string
	// MariaDB says that a MariaDB server ran it.
	MariaDB bool
	// Temporary says that the statement depended on temporary tables of its session (LOG_EVENT_THREAD_SPECIFIC_F in
	// the event's header): the tables that it names may be such, which hide tables of the same name.
	Temporary bool
	// Failed says that the statement ended with an error on the source, having done a part of its work.
	Failed bool
}

// Bits of sql_mode that change how a statement is read, or what it does to values.
// Source: MySQL's query_event documentation (Q_SQL_MODE_CODE), system_variables.h; MariaDB's sql_class.h.
const (
	modeRealAsFloat        = 1 << 0
	modeAnsiQuotes         = 1 << 2
	modeOracle             = 1 << 9
	modeMSSQL              = 1 << 10
	modeMaxDB              = 1 << 12
	modeNoBackslashEscapes = 1 << 20
	modeStrictTransTables  = 1 << 21
	modeStrictAllTables    = 1 << 22
)

func (s *Session) has(mode uint64) bool { return s.SQLMode&mode != 0 }

// foreignTypes says that type names mean something else than usual: sql_mode ORACLE and MAXDB of MariaDB, where DATE
// is a DATETIME and BLOB a LONGBLOB.
func (s *Session) foreignTypes() bool { return s.MariaDB && s.has(modeOracle|modeMaxDB) }

// wide returns the length of the character at the beginning of b in character sets where a quote or a backslash may
// be the later byte of a character; 1 in all others, whose later bytes can not be mistaken.
// Source: the MySQL Reference Manual, "The Character Set Introducer" and the code pages themselves.
func (s *Session) wide(b []byte) int {
	if s.Charset == nil || b[0] < 0x80 || len(b) < 2 {
		return 1
	}
	lead, trail := b[0], b[1]
	switch s.Charset.Name() {
	case "gbk":
		if lead >= 0x81 && lead <= 0xfe && trail >= 0x40 && trail != 0x7f && trail != 0xff {
			return 2
		}
	case "gb18030":
		if lead == 0x80 || lead == 0xff {
			return 1
		}
		if trail >= '0' && trail <= '9' && len(b) >= 4 {
			return 4
		}
		if trail >= 0x40 && trail != 0x7f && trail != 0xff {
			return 2
		}
	case "big5":
		if lead >= 0xa1 && lead <= 0xf9 && (trail >= 0x40 && trail <= 0x7e || trail >= 0xa1 && trail <= 0xfe) {
			return 2
		}
	case "sjis", "cp932":
		if (lead >= 0x81 && lead <= 0x9f || lead >= 0xe0 && lead <= 0xfc) && trail >= 0x40 && trail != 0x7f && trail <= 0xfc {
			return 2
		}
	}
	return 1
}

// text returns b, which is in the statement's character set, as utf8mb4.
func (s *Session) text(b []byte) string {
	if s.Charset == nil || ascii(b) {
		return string(b)
	}
	return string(s.Charset.Append(nil, b))
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
