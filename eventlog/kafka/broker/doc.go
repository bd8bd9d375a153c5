// Package broker talks to Kafka: it keeps the connections, says what went wrong in sentences, and knows the names
// and settings of freshet's topics. All else of the Kafka event log is built on its [Client].
//
// It makes one attempt at a time and never retries by itself: who calls it knows whether the attempt may be repeated,
// and what else must wait meanwhile. [Classify] says what an error means for that.
//
// A Client may be used by many goroutines at once.
package broker
