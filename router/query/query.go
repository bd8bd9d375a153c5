package query

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// The limits of a query.
const (
	// MaxText is the longest text, in bytes.
	MaxText = 64 << 10
	// MaxParams is how often parameters may be used in one text.
	MaxParams = 256
)

// Query is a SELECT with parameters.
type Query struct {
	// Text is the statement as it is prepared: each use of a parameter is a ?, comments are gone, and space between
	// words is one blank, so that texts that differ in layout only are one query.
	Text string
	// Params are the uses of parameters, in the order of the question marks: one that is used twice is here twice.
	Params []Param
	// ID is the query's fingerprint: that of Text alone until [Query.Identify] is called.
	ID string
}

// Param is one use of a parameter.
type Param struct {
	// Name is the name as written, without colon and backticks: a column of the row.
	Name string
	// Offset is where the colon stands in the text given to [Parse], in bytes.
	Offset int
}

// Identify sets ID to the fingerprint of the whole definition: the schema in which tables without one are looked up (""
// if a mapping's pattern leaves it open), the text, and what is made of the rows that it returns. Both ends must give
// the same words: as (json, hash, string), rows (one, many), decimals (string, number), in full, defaults included.
func (q *Query) Identify(schema, as, rows, decimals string) {
	q.ID = ID(schema, q.Text, as, rows, decimals)
}

// ID returns a fingerprint of parts: the first 16 hexadecimal digits of a SHA-256 over each part with its length before
// it.
func ID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Error says what is wrong with a text.
type Error struct {
	// Offset is where, in bytes from the beginning of the text.
	Offset int
	// Reason says what is wrong and what to write.
	Reason string
}

func (e *Error) Error() string { return e.Reason }
