// Package retry decides what happens after a failure: which class an error belongs to, how long to wait before
// the next attempt, when a key is parked and when it becomes a dead letter. It does not know which stage calls it.
package retry
