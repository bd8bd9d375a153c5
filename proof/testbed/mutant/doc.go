// Package mutant proves that tests notice when a part of the product is missing.
//
// A mutant is the product with one small change that takes a part of a rule away. It lives as a file in
// testdata/mutants of the package that it changes, or of the package whose tests prove the rule, and says which test
// fails because of it:
//
//	Why a delete counts only from the mark on. More lines may follow.
//
//	Test: TestTheRuleHolds/changes that become visible late
//	Says: stale: [row
//
//	--- loop.go
//	 func (s *partitionLoop) known(u *unit) instant {
//	-	return s.engine.known(u.entry)
//	+	return u.replied
//	 }
//
// Test is the test, or the part of one. Says is a piece of its failure message, so that a test that fails for any other
// reason proves nothing. Flags: may name flags of the test binary, separated by spaces. Below "--- FILE", which is
// relative to the package's directory, stand lines as in a unified diff, without line numbers: those that begin with a
// space or a minus must be found in the file exactly once, in this order, and are replaced by those that begin with a
// space or a plus. A line "@@" begins another place in the same file.
//
// [Caught] builds the package's tests with such a change laid over it (go test -overlay: no file of the product is
// touched), runs the test that the mutant names, and fails unless that test does. The product itself therefore needs no
// switch, field or branch that only tests use.
package mutant
