// Package walk reads the rows of a table as they are now, in chunks along a key. It is next to package canal because it
// knows servers, tables and types, and nothing of keys in Redis: it hands out the same values as package binlog does
// for the same rows, so that one router serves both.
//
// # Chunks
//
// A chunk is one short autocommit SELECT, which takes no lock that others wait for. Its end is asked for first, from
// the key alone, so that a condition that few rows meet does not make it read the whole table. Where its rows are
// larger than they should be together, it ends earlier. The next chunk begins after the last row of the one before
// ([Place]), so a walk can be left and continued at any chunk, also by another process. Rows that are inserted before
// where it is, or deleted before it comes to them, are not seen.
//
// The definition of the table is asked for again before each chunk. A chunk that fails has handed out rows that must be
// thrown away; the next call begins again where it began.
//
// # Values
//
// A value's text is what the server prints for it, in utf8mb4 and UTC, and so is that of package binlog: [event.Kind]
// says so. So the server is asked to print, and nothing is converted here. FLOAT and DOUBLE, YEAR and ZEROFILL are
// printed within SQL, since the client library would read a number and lose zeros. TestWalkedRowsAreThoseOfTheBinlog of
// cmd/freshet compares the keys and documents of both ways over all column types.
//
// # Concurrency
//
// A [Walk] belongs to one goroutine.
package walk
