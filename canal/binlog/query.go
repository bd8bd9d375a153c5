package binlog

import "encoding/binary"

// Codes of the status variables of a QUERY that may come before the last one that is looked at. They end with the first
// one that is not known here, whose length is not known either.
// Source: MySQL's statement_events.h (Query_event::Query_event_status_vars); the same numbers on MariaDB.
const (
	varFlags2     = 0
	varSQLMode    = 1
	varCatalogOld = 2
	varAutoInc    = 3
	varCharset    = 4
	varTimeZone   = 5
	varCatalog    = 6
	varTimeNames  = 7
	varCollation  = 8
	varTableMaps  = 9
	varWritten    = 10
	varInvoker    = 11
	// MariaDB's own.
	varMicroseconds = 128
	varXID          = 129
	varPhase        = 130
)

// The bits of varPhase that say that nothing is done yet, or that it was undone.
// Source: MariaDB's log_event.h (Gtid_log_event::FL_START_ALTER_E1, FL_ROLLBACK_ALTER_E1).
const (
	phaseStart    = 1 << 1
	phaseRollback = 1 << 3
)

// ParseQuery reads the body of a QUERY, of an EXECUTE_LOAD_QUERY, or of MariaDB's QUERY_COMPRESSED. The query's slices
// alias the body, or a buffer of the decoder.
func (d *Decoder) ParseQuery(h Header, body []byte) (Query, error) {
	c := cursor{b: body}
	q := Query{ThreadID: c.u32()}
	c.skip(4) // the time that it took
	schema := int(c.u8())
	q.ErrorCode = c.u16()
	vars := int(c.u16())
	if h.Type == TypeExecuteLoadQuery {
		c.skip(13) // the file, and where in the statement its name stands
	}
	q.readVars(c.bytes(vars))
	q.Schema = c.bytes(schema)
	c.skip(1) // a zero
	q.SQL = c.rest()
	if c.bad {
		return Query{}, damaged(h.Type, "truncated")
	}
	if h.Type == TypeMariaQueryCompressed {
		var err error
		if q.SQL, err = d.inflate.block(h.Type, q.SQL); err != nil {
			return Query{}, err
		}
	}
	return q, nil
}

// QuerySQL returns the statement of the body of a plain QUERY and nothing else of it; nil if the body is damaged.
func QuerySQL(body []byte) []byte {
	const fixed = 4 + 4 + 1 + 2 + 2 // thread, time, length of the schema, error, length of the variables
	if len(body) < fixed {
		return nil
	}
	at := fixed + int(binary.LittleEndian.Uint16(body[11:])) + int(body[8]) + 1
	if at > len(body) {
		return nil
	}
	return body[at:]
}

func (q *Query) readVars(b []byte) {
	c := cursor{b: b}
	for len(c.b) > 0 && !c.bad {
		switch c.u8() {
		case varFlags2:
			c.skip(4)
		case varSQLMode:
			q.SQLMode = c.u64()
		case varCatalogOld:
			c.skip(int(c.u8()) + 1)
		case varCatalog, varTimeZone:
			c.skip(int(c.u8()))
		case varAutoInc:
			c.skip(4)
		case varCharset:
			if s := c.bytes(6); s != nil {
				q.Charset = binary.LittleEndian.Uint16(s)
				q.ServerCharset = binary.LittleEndian.Uint16(s[4:]) // after collation_connection
			}
		case varTimeNames, varCollation:
			c.skip(2)
		case varTableMaps, varXID:
			c.skip(8)
		case varWritten:
			c.skip(4)
		case varInvoker: // user and host
			c.skip(int(c.u8()))
			c.skip(int(c.u8()))
		case varMicroseconds:
			c.skip(3)
		case varPhase:
			q.NotDone = c.u8()&(phaseStart|phaseRollback) != 0
			return
		default:
			return
		}
	}
}
