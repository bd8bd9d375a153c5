// Package charset turns the bytes of a text column into utf8mb4 as the server itself would, and knows which character
// set a collation belongs to.
//
// The decoder of package binlog calls it for the columns that make keys. The conversions are the servers' own:
// tables.bin holds what MySQL and MariaDB answered for every sequence of bytes (see internal/generate), and a test asks
// them again. Characters without a Unicode code point become a question mark, as in the servers. Bytes that are no
// character at all become one question mark each; the servers do not let such bytes into a column.
//
// Everything here is safe for use by several goroutines at once: tables are made once, on first use, and then only
// read.
package charset
