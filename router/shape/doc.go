// Package shape says which bytes the text of a placeholder can have, and how many: by the type of its column, and
// through its filters. It is asked by what looks for the keys that templates can make: router/lint and router/keyspace.
// It is pure, and may be used from any goroutine.
package shape
