// Package event holds the types that travel along the pipeline: the [Change] of one row, the [Batch] of
// invalidations that it becomes, the [End] of a transaction, the [Mark] that says what everybody can read, and
// the [Position] that a restart begins from.
//
// It is the lowest package of the project: it imports no other package of it and does no I/O. Its values are owned by
// one goroutine at a time; a goroutine that hands one over does not touch it again, unless a comment says otherwise.
package event
