// Package compose holds a compose project that shows freshet with Kafka between its halves. The tests read it as a
// compose engine does, and run its configurations without one.
package compose
