// Package router turns row changes into the Redis keys that they make stale, and says what must be done with each. It
// stands between the canal, which knows rows but no keys, and the event log, which knows keys but no rows, and holds
// the mapping language: docs/mappings.md describes it for users.
//
// It is pure: no I/O, no clock. The same mappings, table definition and row change always give the
// same invalidations in the same order, which is what makes a replay of the binlog harmless.
//
// # From text to keys
//
// [New] parses every table pattern, template, query and predicate and reports all faults at once, each with its place
// in the configuration. [Router.Bind] compiles the mappings that match one table definition into ordinals and says
// which columns it needs decoded. [Router.Route] then does no more than append literals and column values: no
// reflection, no look-up by name, no allocation beyond the growth of the batch (predicates excepted, which run on
// the expr virtual machine, and the keys of counters, of which those of the open transaction are remembered).
//
// # Actions
//
// Each key template of a mapping is an act: a plain delete, or an action with an [event.Effect] that New made once and
// all batches share. An action that writes puts what the after-image holds and removes what only the before-image
// named; everything in doubt is forgotten. Files: parse.go reads them, bind.go, bindtext.go and bindvalue.go compile
// them, admit.go decides whether a mapping applies, route.go makes the keys and effect.go the values that go with them,
// once.go keeps counters to one increment a transaction.
//
// # Guarantees
//
//   - Both images count: an UPDATE yields the keys of the row before and after it.
//   - NULL in a key column makes no key, and is counted; an absent column makes no key, is counted and reported.
//   - Every doubt invalidates more: an absent column counts as changed, a predicate that fails counts as true. Nothing
//     is written that is in doubt, and no value in part.
//   - Within one row nothing comes twice: the same action on the same key, field or member. Of two mappings that delete
//     the same key the larger second delete holds; what a row now has wins over what it had.
//   - A replay of the same changes gives the same invalidations, in the same order.
//
// # Concurrency
//
// Bind, Unfit, Route and Publish belong to one goroutine. Wants, Missing, Queries and Mappings may be called from any,
// at any time: they read only what New made.
//
// # Next to the path
//
// What was hardly meant is router/lint's to find, router/explain says in words what was made of a row, and
// router/keyspace knows which keys there can be. They see a router through describe.go and trace.go alone.
//
// # A new filter
//
// filterKinds in filter.go has a line for each filter: its argument and the argument's bounds, what it does to a text,
// and what checks and lint must know of it. The parser, the errors, explanations and lint read that table. Elsewhere:
//
//   - router/shape, Shape.Through: which bytes the result can have, and how many. A filter that is missing there counts
//     as one that can make any text. A digest is known there by its number of hexits.
//   - router/keyspace, text.through in text.go: exactly which texts the result can be. A filter that is missing there
//     makes free text, whose keys a scope cannot find; a digest is none.
//   - docs/mappings.md: the table in "Filters". For a filter that encodes, also "Which keys a mapping can have made" and
//     "Keys that go wrong", which name all of those.
//   - deploy/freshet.yaml: its name in the comment on the first mapping.
//   - proof/e2e/oracle, template.go: the filter once more, written from the page alone, for the random mappings of the
//     end-to-end tests.
//
// Add lines to the tables of these tests: TestAFilterMakesTextOfText, TestATemplateAtFaultIsToldWhereAndWhatToWrite if
// the filter takes an argument, TestATemplateMatchesItsKeysAndNoOthers in router/keyspace, and TestTheServersAgree in
// router/lint if SQL has such a function. Two tests draw all filters by themselves: TestAShapeHoldsWhatItsFiltersMake
// in router/shape and TestEveryKeyOfARowIsFound in router/keyspace. Tests also fail if the page, the comment or the
// oracle does not have the filter: go test ./docs.
package router
