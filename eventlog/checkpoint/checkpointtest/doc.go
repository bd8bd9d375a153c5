// Package checkpointtest is the conformance suite of whatever keeps a checkpoint: each storage runs it with a real
// backend. It looks at what a [checkpoint.Checkpoint] and its stash promise to their users, across openings and lost
// replies, and knows nothing of bytes.
package checkpointtest
