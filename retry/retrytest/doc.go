// Package retrytest is the conformance suite of the stores of parked keys and dead letters: what the engine and the
// command line may rely on, whether the keys are in a file or in topics.
//
// A store's own tests call [Run] with a way to open it.
package retrytest
