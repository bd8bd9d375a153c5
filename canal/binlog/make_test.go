package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/freshet/freshet/proof/testbed"
)

// maker makes events as a server would write them, without checksums, for tests that need no server.
type maker struct{ events [][]byte }

func (m *maker) add(t Type, body []byte) {
	ev := make([]byte, HeaderSize, HeaderSize+len(body))
	binary.LittleEndian.PutUint32(ev, 1700000000)
	ev[4] = byte(t)
	binary.LittleEndian.PutUint32(ev[5:], 1)
	binary.LittleEndian.PutUint32(ev[9:], uint32(HeaderSize+len(body)))
	m.events = append(m.events, append(ev, body...))
}

// format adds a FORMAT_DESCRIPTION of a MySQL 9.7 without checksums.
func (m *maker) format(version string) {
	b := binary.LittleEndian.AppendUint16(nil, 4)
	b = append(b, make([]byte, 50+4)...)
	copy(b[2:52], version)
	b = append(b, HeaderSize)
	b = append(b, make([]byte, 41)...)
	b = append(b, byte(ChecksumNone), 0, 0, 0, 0)
	m.add(TypeFormatDescription, b)
}

// productColumns are those of the table that the benchmarks use.
func productColumns() []ColumnInfo {
	const utf8 = "utf8mb4_0900_ai_ci"
	return []ColumnInfo{
		{Name: "id", Type: "bigint"},
		{Name: "sku", Type: "varchar(64)", Collation: utf8},
		{Name: "name", Type: "varchar(128)", Collation: utf8},
		{Name: "category_id", Type: "int"},
		{Name: "price", Type: "decimal(10,2)"},
		{Name: "stock", Type: "int"},
		{Name: "updated_at", Type: "datetime(3)"},
	}
}

const productID = 77

// productMap adds a TABLE_MAP of shop.product.
func (m *maker) productMap() {
	b := []byte{productID, 0, 0, 0, 0, 0, 1, 0}
	b = append(b, "\x04shop\x00\x07product\x00"...)
	b = append(b, 7, byte(ColumnLongLong), byte(ColumnVarchar), byte(ColumnVarchar), byte(ColumnLong),
		byte(ColumnNewDecimal),
		byte(ColumnLong), byte(ColumnDatetime2))
	b = append(b, 7, 0, 1, 0, 2, 10, 2, 3)
	m.add(TypeTableMap, append(b, 0x7c))
}

// productRow appends the image of a row.
func productRow(b []byte, id, stock int) []byte {
	b = append(b, 0x80) // no NULL; the highest bit is no column's
	b = binary.LittleEndian.AppendUint64(b, uint64(id))
	for _, s := range []string{fmt.Sprintf("SKU-%08d", id), fmt.Sprintf("Product name number %d of the shop", id)} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(id%1000))
	b = append(b, 0x80, 0, 0, byte(id), 99)
	b = binary.LittleEndian.AppendUint32(b, uint32(stock))
	return append(b, 0x99, 0xb4, 0x12, 0x34, 0x56, 0x01, 0xf4)
}

// productRows adds a rows event with n rows, or pairs of rows, from id on.
func (m *maker) productRows(t Type, id, n int) {
	b := []byte{productID, 0, 0, 0, 0, 0, 1, 0, 2, 0, 7, 0xff}
	if t == TypeUpdateRowsV2 {
		b = append(b, 0xff)
	}
	for i := range n {
		b = productRow(b, id+i, 5)
		if t == TypeUpdateRowsV2 {
			b = productRow(b, id+i, 6)
		}
	}
	m.add(t, b)
}

// begin adds what a transaction has before its changes.
func (m *maker) begin(number int) {
	b := make([]byte, 42)
	b[1], b[24+1] = 1, 2
	binary.LittleEndian.PutUint64(b[17:], uint64(number))
	m.add(TypeGTID, append(b, 1, 2, 3, 4, 5, 6, 0, 0xfc, 0, 1, 0, 0, 0, 0))
	q := make([]byte, 13)
	q[8] = 4
	m.add(TypeQuery, append(q, "shop\x00BEGIN"...))
}

func (m *maker) commit() { m.add(TypeXID, make([]byte, 8)) }

// packed returns the events as one TRANSACTION_PAYLOAD each, with the format before them.
func packed(t testing.TB, transactions ...*maker) *maker {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	testbed.Must(t, err)
	defer enc.Close()
	out := &maker{}
	out.format("9.7.4")
	for _, m := range transactions {
		all := bytes.Join(m.events, nil)
		frame := enc.EncodeAll(all, nil)
		body := []byte{payloadCompression, 1, compressionZstd, payloadUncompressed, 9, 0xfe}
		body = binary.LittleEndian.AppendUint64(body, uint64(len(all)))
		body = append(body, payloadSize, 9, 0xfe)
		body = binary.LittleEndian.AppendUint64(body, uint64(len(frame)))
		out.add(TypeTransactionPayload, append(append(body, payloadEnd), frame...))
	}
	return out
}
