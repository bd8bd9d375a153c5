package binlog

import "strconv"

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
	TypeMariaWriteRowsV2            Type = 169
	TypeMariaUpdateRowsV2           Type = 170
	TypeMariaDeleteRowsV2           Type = 171
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

// IsRows reports whether events of the type hold row changes: they go to [Decoder.Rows].
func (t Type) IsRows() bool { return types[t].rows }

type typeInfo struct {
	name     string
	handling Handling
	rows     bool
}

// types is never written to.
var types = [256]typeInfo{}
