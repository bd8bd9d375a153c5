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
// each definition of a table. Decoding a row allocates nothing. A value's text is what SELECT CONCAT(”, column) returns
// on the server with time_zone='+00:00' and character set utf8mb4 (binary types: the raw bytes). A JSON document's text
// is what SELECT prints; one that is damaged, nested deeper than 100 levels or larger than 64 MiB has none
// ([event.Opaque]), and a partial update of one is [event.Absent]. A problem of one table alone is a [*TableError] of
// its rows. Other damaged input is an error that wraps [ErrDamaged]: never a panic, never an endless loop, and never an
// allocation out of proportion to the input.
//
// # Concurrency
//
// A Decoder, and everything that it hands out, belongs to one goroutine at a time. Slices that it hands out alias the
// input or the decoder's own buffers and are valid until the next call of one of its methods; values of a row until the
// next row. The package starts no goroutine.
package binlog
