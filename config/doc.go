// Package config reads freshet's one YAML file and the environment into a typed, validated [Config].
//
// It stands beside the path of a row change, not on it: it imports no other package of the project, and only app
// turns its values into the stages' options.
//
// What it guarantees:
//
//   - All problems are reported at once, as [Problems], each with file, line and column, what is wrong and what to
//     do. Whoever knows more than this package (the router knows templates and predicates) adds a [Check], so that
//     one list holds everything.
//   - Nothing is ignored: unknown keys, duplicate keys, keys without effect, and what this version does not do yet
//     (see notYet) are problems.
//   - A value is the text of its YAML scalar: password: 0123 is "0123". The environment goes over the file, the file
//     over the defaults.
//   - A [Secret] is printed by nothing but [Secret.Reveal].
//
// The table in keys.go is the one place that names the keys with their types and defaults; loading, printing,
// environment names and documentation all follow it. The keys of mappings and their actions, which come from the file
// alone, are named where they are read: mapping.go, action.go, rebuild.go.
//
// A Config is not written to after it was loaded and may be read by any number of goroutines. There is no state
// beside it: each load starts from nothing.
package config
