// Package oracle makes random tables, mappings and statements, and says which Redis keys the statements make stale.
//
// It shares no code with freshet, and must not: what it says comes from docs/mappings.md and from the database. AFTER
// triggers on each table write down both images of each changed row, as the server prints them, in the transaction that
// changes it. A small evaluator of templates and predicates makes keys of them.
//
// Where the documentation leaves open whether a key is deleted (an UPDATE whose images print alike may be in the binlog
// or not), the key may be deleted and need not be.
package oracle
