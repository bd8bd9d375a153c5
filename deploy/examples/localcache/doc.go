// Package localcache is an example to take from: a cache in the memory of a Go process, in front of Redis, that is kept
// fresh by the stream of a freshet mapping, or by what it publishes. docs/local-caches.md says how it works and when to
// use what.
//
// [Follower] reads the stream and notices when it can have missed something, [Listener] listens to a channel; [Cache]
// holds values while it is sure to hear of changes. All are given to the process whole: nothing of freshet has to be
// linked.
package localcache
