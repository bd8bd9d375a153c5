// Package explain says which keys a row has in the mappings, what is done to each, and why there are no others: for
// `freshet explain`. It routes with a router of its own, and writes down what that one reports to a [router.Tracer], so
// what it says is what would be done. It may be used from any goroutine.
package explain
