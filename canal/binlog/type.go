package binlog

import (
	"strconv"

	"github.com/freshet/freshet/event"
)

// Type is the type code of an event.
// Source: MySQL's binlog_event.h (Log_event_type); MariaDB's log_event.h.
type Type uint8

// The event types of MySQL (up to 159) and MariaDB (from 160).
const (
	TypeUnknown            Type = 0
	TypeStartV3            Type = 1
	TypeQuery              Type = 2
	TypeStop               Type = 3
	TypeRotate             Type = 4
	TypeIntvar             Type = 5
	TypeLoad               Type = 6
	TypeSlave              Type = 7
	TypeCreateFile         Type = 8
	TypeAppendBlock        Type = 9
	TypeExecLoad           Type = 10
	TypeDeleteFile         Type = 11
	TypeNewLoad            Type = 12
	TypeRand               Type = 13
	TypeUserVar            Type = 14
	TypeFormatDescription  Type = 15
	TypeXID                Type = 16
	TypeBeginLoadQuery     Type = 17
	TypeExecuteLoadQuery   Type = 18
	TypeTableMap           Type = 19
	TypeWriteRowsV0        Type = 20
	TypeUpdateRowsV0       Type = 21
	TypeDeleteRowsV0       Type = 22
	TypeWriteRowsV1        Type = 23
	TypeUpdateRowsV1       Type = 24
	TypeDeleteRowsV1       Type = 25
	TypeIncident           Type = 26
	TypeHeartbeat          Type = 27
	TypeIgnorable          Type = 28
	TypeRowsQuery          Type = 29
	TypeWriteRowsV2        Type = 30
	TypeUpdateRowsV2       Type = 31
	TypeDeleteRowsV2       Type = 32
	TypeGTID               Type = 33
	TypeAnonymousGTID      Type = 34
	TypePreviousGTIDs      Type = 35
	TypeTransactionContext Type = 36
	TypeViewChange         Type = 37
	TypeXAPrepare          Type = 38
	TypePartialUpdateRows  Type = 39
	TypeTransactionPayload Type = 40
	TypeHeartbeatV2        Type = 41
	TypeGTIDTagged         Type = 42

	TypeMariaAnnotateRows           Type = 160
	TypeMariaBinlogCheckpoint       Type = 161
	TypeMariaGTID                   Type = 162
	TypeMariaGTIDList               Type = 163
	TypeMariaStartEncryption        Type = 164
	TypeMariaQueryCompressed        Type = 165
	TypeMariaWriteRowsCompressedV1  Type = 166
	TypeMariaUpdateRowsCompressedV1 Type = 167
	TypeMariaDeleteRowsCompressedV1 Type = 168
	TypeMariaWriteRowsCompressedV2  Type = 169
	TypeMariaUpdateRowsCompressedV2 Type = 170
	TypeMariaDeleteRowsCompressedV2 Type = 171
	TypeMariaPartialRowData         Type = 172
)

// Handling says what a reader must do with events of a type.
type Handling uint8

// The ways to handle a type.
const (
	// Refuse: the type is unknown, or its content could not be followed. An event of it ends the reading, unless
	// the server flagged it as ignorable.
	Refuse Handling = iota
	// Handle: the reader must look at events of this type.
	Handle
	// Skip: events of this type change nothing that a reader of rows must know.
	Skip
)

// Handling returns what a reader must do with events of the type.
func (t Type) Handling() Handling { return types[t].handling }

// String returns the name of the type as MySQL writes it, with its number when that is not known.
func (t Type) String() string {
	if n := types[t].name; n != "" {
		return n
	}
	return "event type " + strconv.Itoa(int(t))
}

// IsInsert reports whether events of the type hold inserted rows.
func (t Type) IsInsert() bool { return types[t].rows.op == event.Insert }

// IsRows reports whether events of the type hold row changes: they go to [Decoder.Rows].
func (t Type) IsRows() bool { return types[t].rows.op != 0 }

func (t Type) rows() rowsKind { return types[t].rows }

// rowsKind is the layout of a rows event.
type rowsKind struct {
	op event.Op // 0: not a rows event
	// extra: the post-header has extra data of variable length (version 2).
	extra bool
	// compressed: the rows are compressed as a whole (MariaDB).
	compressed bool
	// partial: after-images begin with value options, and JSON columns may be diffs.
	partial bool
}

type typeInfo struct {
	name     string
	handling Handling
	rows     rowsKind
}

// types says of each known type what there is to know. It is never written to. What is not here is refused, among it:
// the row events of MySQL 5.1.0 to 5.1.15 (20 to 22), the LOAD events of MySQL 4, and events of MariaDB 12.3 that hold
// a fragment of a rows event larger than 1 GiB (172).
var types = [256]typeInfo{
	TypeStartV3:            {name: "START_EVENT_V3"},
	TypeQuery:              {name: "QUERY", handling: Handle},
	TypeStop:               {name: "STOP", handling: Skip}, // ends the file of a server that was shut down
	TypeRotate:             {name: "ROTATE", handling: Handle},
	TypeIntvar:             {name: "INTVAR", handling: Skip},
	TypeLoad:               {name: "LOAD"},
	TypeSlave:              {name: "SLAVE"},
	TypeCreateFile:         {name: "CREATE_FILE"},
	TypeAppendBlock:        {name: "APPEND_BLOCK", handling: Skip},
	TypeExecLoad:           {name: "EXEC_LOAD"},
	TypeDeleteFile:         {name: "DELETE_FILE", handling: Skip},
	TypeNewLoad:            {name: "NEW_LOAD"},
	TypeRand:               {name: "RAND", handling: Skip},
	TypeUserVar:            {name: "USER_VAR", handling: Skip},
	TypeFormatDescription:  {name: "FORMAT_DESCRIPTION", handling: Handle},
	TypeXID:                {name: "XID", handling: Handle},
	TypeBeginLoadQuery:     {name: "BEGIN_LOAD_QUERY", handling: Skip},
	TypeExecuteLoadQuery:   {name: "EXECUTE_LOAD_QUERY", handling: Handle},
	TypeTableMap:           {name: "TABLE_MAP", handling: Handle},
	TypeWriteRowsV0:        {name: "PRE_GA_WRITE_ROWS"},
	TypeUpdateRowsV0:       {name: "PRE_GA_UPDATE_ROWS"},
	TypeDeleteRowsV0:       {name: "PRE_GA_DELETE_ROWS"},
	TypeWriteRowsV1:        {name: "WRITE_ROWS_V1", handling: Handle, rows: rowsKind{op: event.Insert}},
	TypeUpdateRowsV1:       {name: "UPDATE_ROWS_V1", handling: Handle, rows: rowsKind{op: event.Update}},
	TypeDeleteRowsV1:       {name: "DELETE_ROWS_V1", handling: Handle, rows: rowsKind{op: event.Delete}},
	TypeIncident:           {name: "INCIDENT", handling: Handle},
	TypeHeartbeat:          {name: "HEARTBEAT", handling: Handle},
	TypeIgnorable:          {name: "IGNORABLE", handling: Skip},
	TypeRowsQuery:          {name: "ROWS_QUERY", handling: Skip},
	TypeWriteRowsV2:        {name: "WRITE_ROWS", handling: Handle, rows: rowsKind{op: event.Insert, extra: true}},
	TypeUpdateRowsV2:       {name: "UPDATE_ROWS", handling: Handle, rows: rowsKind{op: event.Update, extra: true}},
	TypeDeleteRowsV2:       {name: "DELETE_ROWS", handling: Handle, rows: rowsKind{op: event.Delete, extra: true}},
	TypeGTID:               {name: "GTID", handling: Handle},
	TypeAnonymousGTID:      {name: "ANONYMOUS_GTID", handling: Handle},
	TypePreviousGTIDs:      {name: "PREVIOUS_GTIDS", handling: Skip},
	TypeTransactionContext: {name: "TRANSACTION_CONTEXT", handling: Skip},
	TypeViewChange:         {name: "VIEW_CHANGE", handling: Skip},
	TypeXAPrepare:          {name: "XA_PREPARE", handling: Handle},
	TypePartialUpdateRows: {
		name: "PARTIAL_UPDATE_ROWS", handling: Handle,
		rows: rowsKind{op: event.Update, extra: true, partial: true},
	},
	TypeTransactionPayload: {name: "TRANSACTION_PAYLOAD", handling: Handle},
	TypeHeartbeatV2:        {name: "HEARTBEAT_V2", handling: Handle},
	TypeGTIDTagged:         {name: "GTID_TAGGED", handling: Handle},

	TypeMariaAnnotateRows:     {name: "ANNOTATE_ROWS", handling: Skip},
	TypeMariaBinlogCheckpoint: {name: "BINLOG_CHECKPOINT", handling: Skip},
	TypeMariaGTID:             {name: "GTID (MariaDB)", handling: Handle},
	TypeMariaGTIDList:         {name: "GTID_LIST", handling: Skip},
	TypeMariaStartEncryption:  {name: "START_ENCRYPTION", handling: Skip},
	TypeMariaQueryCompressed:  {name: "QUERY_COMPRESSED", handling: Handle},
	TypeMariaWriteRowsCompressedV1: {
		name: "WRITE_ROWS_COMPRESSED_V1", handling: Handle,
		rows: rowsKind{op: event.Insert, compressed: true},
	},
	TypeMariaUpdateRowsCompressedV1: {
		name: "UPDATE_ROWS_COMPRESSED_V1", handling: Handle,
		rows: rowsKind{op: event.Update, compressed: true},
	},
	TypeMariaDeleteRowsCompressedV1: {
		name: "DELETE_ROWS_COMPRESSED_V1", handling: Handle,
		rows: rowsKind{op: event.Delete, compressed: true},
	},
	TypeMariaWriteRowsCompressedV2: {
		name: "WRITE_ROWS_COMPRESSED", handling: Handle,
		rows: rowsKind{op: event.Insert, extra: true, compressed: true},
	},
	TypeMariaUpdateRowsCompressedV2: {
		name: "UPDATE_ROWS_COMPRESSED", handling: Handle,
		rows: rowsKind{op: event.Update, extra: true, compressed: true},
	},
	TypeMariaDeleteRowsCompressedV2: {
		name: "DELETE_ROWS_COMPRESSED", handling: Handle,
		rows: rowsKind{op: event.Delete, extra: true, compressed: true},
	},
	TypeMariaPartialRowData: {name: "PARTIAL_ROW_DATA"},
}
