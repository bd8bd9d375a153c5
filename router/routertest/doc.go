// Package routertest makes batches for the tests of whatever encodes them: by the router, of random mappings and random
// changes. A codec that is only shown batches that its author imagined copes with no other.
//
// It is a helper of tests and does no I/O. [Batches] gives what a reader would hand on, [Items] what must come back.
package routertest
