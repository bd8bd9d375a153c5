// Package document writes a row as a value for a cache: a JSON object, or the fields of a Redis hash. The router uses
// it to rebuild keys from row images, and the rebuild by query uses it to rebuild them from results. Both describe
// their columns as event.Column does, so that a value has the same form from either.
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
// The zero date, 0000-00-00, stands for no date: it is written like NULL. A date with zero parts
// (2026-00-00) is not an ISO date, and is written as the database prints it.
//
// # Guarantees
//
//   - The output is valid JSON for any values, if JSON columns hold JSON: bytes that are not UTF-8 become
//     U+FFFD, a number that does not look like one becomes a string.
//   - All or nothing: a row that lacks a column makes no document ([ErrAbsent]).
//   - The same values give the same bytes.
//
// # Concurrency
//
// After New, a [Writer] is only read, and may be shared. It uses no reflection and allocates only when the slice that
// it appends to grows.
package document
