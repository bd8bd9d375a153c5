// Package binlog decodes the events of a MySQL or MariaDB binlog: bytes in, events and values out. It does no I/O.
//
// It stands at the beginning of the path of a row change: package canal reads packets from the source and gives
// each to a [Decoder]. [Decoder.Split] takes the packet apart; the Parse functions decode the events that steer
// the reader (GTIDs, queries, rotations); [Decoder.TableMap], [Decoder.Rows] and [Decoder.Payload] decode what a
// transaction changed.
//
//	h, body, err := d.Split(packet)
//	switch {
//	case h.Type == binlog.TypeTableMap:
//		err = d.TableMap(body)
//	case h.Type.IsRows():
//		err = d.Rows(h, body, &change, each)
//	case h.Type == binlog.TypeTransactionPayload:
//		p, err := d.Payload(body) // and then p.Next, as above, until io.EOF
//	case h.Type == binlog.TypeGTID ...:
//		g, err := binlog.ParseGTID(h, body)
//	default:
//		err = h.Ignorable()
//	}
//
// # Guarantees
//
// The decoder decodes only the columns that are needed. It steps over the others by a plan that is compiled once for
// each definition of a table. Decoding a row allocates nothing. A value's text is what SELECT CONCAT(column) returns on
// the server with time_zone='+00:00' and character set utf8mb4 (binary types, VECTOR and GEOMETRY among them: the raw
// bytes). A JSON document's text is what SELECT prints; one that is damaged, nested deeper than 100 levels or larger
// than 64 MiB has none ([event.Opaque]), and a partial update of one is [event.Absent]. A problem of one table alone is
// a [*TableError] of its rows. Other damaged input is an error that wraps [ErrDamaged]: never a panic, never an endless
// loop, and never an allocation out of proportion to the input.
//
// # From bytes to text
//
// header.go, format.go and event.go take a packet apart; type.go says of each type of event what a reader must do.
// tablemap.go and metadata.go read what a TABLE_MAP says of a table. describe.go makes from that, and from what is
// known from elsewhere, what each column is; compatible.go notices a definition that is not the rows' own. plan.go
// compiles how values lie in a row image, and rows.go goes through it. value.go makes the text of a value, with the
// formats in number.go, temporal.go, inet.go, inflate.go and json.go.
//
// # A new column type
//
// A type of column has a code in the binlog, a name in SQL, and one of the classes of [event.Class]: what keys,
// predicates and documents do with a value depends on its class only. In this package:
//
//   - columntype.go: the code and a line of columnKinds.
//   - tablemap.go: readType knows the length of the type's metadata, and checkMeta which metadata there can be.
//   - plan.go: setLayout knows how long a value is.
//   - describe.go: a string, which its character set makes text or bytes, is told apart in setText and binaryTypes. Of a
//     type whose text is not known, attributes says so.
//   - value.go: setRender decides how its text is made, and print or append makes it.
//   - compatible.go and sqltype.go: the SQL types that may have these values, and other names of theirs.
//
// TestEveryColumnTypeIsDecodedWhole fails until these agree. What the recorded events decode to changes with a type
// that they have: go test ./canal/binlog -run TestRecordedEvents -golden writes it again. Elsewhere:
//
//   - canal/ddl, columnType in column.go: the type in CREATE and ALTER TABLE. With a type that is not known there
//     the columns of the table are in doubt, and the server is asked.
//   - canal/schema: numeric in describe.go, and integer in rewrite.go, if the type is a number.
//   - canal/schema, ClassOf: the class by DATA_TYPE, for `freshet check` and for package walk.
//   - canal/walk, value.go: kindOf and print, if what SELECT prints for a column is not its text, or its class is new.
//   - invalidator/rebuild, typeOf in column.go: the same type in the result of a query. A type that is not known there
//     counts as text.
//   - event/document, formOf: if JSON has another form of it than its text, or than base64 of its bytes.
//   - docs/mappings.md: the tables of texts, of predicates and of values, and what free text is in "Which keys a mapping
//     can have made".
//   - The tests that ask real servers: testTypes in types_test.go (its text is what the server prints),
//     generate_test.go in canal/schema (statements), types_test.go in invalidator/rebuild (results), and types.go in
//     proof/e2e/oracle, which TestWalkedRowsAreThoseOfTheBinlog in cmd/freshet (walks) and the random tables of
//     proof/e2e draw from.
//
// A new class is more: all that CONTRIBUTING.md names for [event.Class].
//
// # Concurrency
//
// A Decoder, and everything that it hands out, belongs to one goroutine at a time. Slices that it hands out alias the
// input or the decoder's own buffers and are valid until the next call of one of its methods; values of a row until the
// next row. The package starts no goroutine.
package binlog
