// Package keyspace knows which Redis keys the templates of mappings can have made. What a scope deletes is exactly
// that, and nothing that only begins alike. It stands next to the path of a row change, not on it.
//
// # What matches
//
// [New] turns each template, over each table of its mapping, into the literal text before its first placeholder and a
// regular expression for the rest. A placeholder is as narrow as its column's type and its filters allow: the numbers
// of a type without leading zeros, dates, UUIDs, the labels of an ENUM, the digits of a digest. The two rules:
//
//   - Every key that the router makes from a row of these tables matches. NULL makes no key, so only `default` stands
//     for it.
//   - What the router cannot make should not match. A few things are wider, such as dates that no calendar has, and the
//     result of one filter after another, where only the bytes and their number count.
//
// Free text can be anything, so its keys are matched only where the mapping says what the text may be (`scope`). What a
// filter encoded is not free: the filter chose its bytes. A template with free text, and one whose table is not known,
// is [Blind]: its keys are not matched, and it says what to write.
//
// Keys that begin with freshet: are never matched. They are freshet's own.
//
// # Files
//
// keyspace.go finds the templates of a key, build.go compiles templates. column.go knows what a type can be, text.go
// what a placeholder can be through its filters, number.go ranges of numbers.
//
// # Concurrency
//
// A Keyspace does not change: all may be called from any goroutine. The package does no I/O.
package keyspace
