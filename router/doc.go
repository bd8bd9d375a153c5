// Package router turns row changes into the Redis keys that they make stale. It stands between the canal, which
// knows rows but no keys, and the event log, which knows keys but no rows, and holds the mapping language:
// docs/mappings.md describes it for users.
//
// It is pure: no I/O, no clock. The same mappings, table definition and row change always give the
// same invalidations in the same order, which is what makes a replay of the binlog harmless.
//
// # From text to keys
//
// [New] parses every table pattern, key template and predicate and reports all faults at once, each with its place
// in the configuration. [Router.Bind] compiles the mappings that match one table definition into ordinals and says
// which columns it needs decoded. [Router.Route] then does no more than append literals and column values: no
// reflection, no look-up by name, no allocation beyond the growth of the batch (predicates excepted, which run on
// the expr virtual machine).
//
// # Guarantees
//
//   - Both images count: an UPDATE yields the keys of the row before and after it.
//   - NULL in a key column makes no key, and is counted; an absent column makes no key, is counted and reported.
//   - Every doubt invalidates more: an absent column counts as changed, a predicate that fails counts as true.
//   - Within one row no key comes twice; of two mappings that make the same key the larger second delete holds.
//
// # Concurrency
//
// Bind and Route belong to one goroutine. Wants, Check, Missing and Explain may be called from any, at any time:
// they read only what New made.
//
// The place of the actions to come (rebuild, hash, set, …) is mapping and keyPlan, which carry what is done to the
// key beside its template; that of scopes is the template's list of parts, which says what a template can produce.
package router
