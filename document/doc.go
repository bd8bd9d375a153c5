// Package document writes a row as a value for a cache: a JSON object, or the fields of a Redis hash. It stands beside
// the router, which rebuilds keys from row images, and beside the rebuild by query, which rebuilds them from results;
// both describe their columns as event.Column does, so that a value looks the same wherever it comes from.
//
// # What a value becomes
//
//	column                      JSON                          hash
//	integers, YEAR, BIT         number, exact to 64 bits      the same digits
//	DECIMAL                     string, or number on request  the same digits
//	FLOAT, DOUBLE               number                        the same digits
//	DATE                        "2026-01-02"                  2026-01-02
//	DATETIME                    "2026-01-02T03:04:05.670"     2026-01-02T03:04:05.670
//	TIMESTAMP                   "2026-01-02T03:04:05Z"        2026-01-02T03:04:05Z
//	TIME                        "-12:30:00"                   -12:30:00
//	CHAR, TEXT, ENUM, UUID, …   string                        the text
//	BINARY, BLOB                base64 in a string            the bytes
//	JSON                        embedded as it is             the document's text
//	NULL                        null                          the field is left out
//
// The zero date, 0000-00-00, stands for no date: it is written as NULL is. A date of which only parts are zero
// (2026-00-00) is no ISO date, and is written as the database prints it.
//
// # Guarantees
//
//   - The output is valid JSON whatever the columns hold, given that JSON columns hold JSON: what is no UTF-8 becomes
//     U+FFFD, what looks like no number becomes a string.
//   - All or nothing: a row that lacks a column is no document ([ErrAbsent]).
//   - The same values give the same bytes.
//
// # Concurrency
//
// A [Writer] is only read once New has made it, and may be shared. It uses no reflection and allocates nothing but the
// growth of what it appends to.
package document
