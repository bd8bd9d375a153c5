// Package app wires the stages together and runs them: it is the only package that knows more than one of them.
//
// [Run] builds the pipeline from a configuration, starts it, and stops it from the source to the sink: canal, the event
// log, the engine with what is in flight in Redis, the last save of the position, and HTTP last. What the commands do
// is in app/operate, and how the stages are made from a configuration in app/connect.
//
// The reader lives here, because it is nothing but wiring: on canal's goroutine it routes each row into the batch under
// way and appends the batch to the log. Every goroutine that Run starts has ended when it returns; what is read by
// HTTP handlers meanwhile are snapshots.
package app
