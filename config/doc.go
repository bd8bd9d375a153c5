// Package config reads freshet's one YAML file and the environment into a typed, validated [Config].
//
// It stands next to the path of a row change, not on it. What it says of mappings is in the words of package spec,
// which router compiles; only app turns its other values into the stages' options.
//
// What it guarantees:
//
//   - All problems are reported at once, as [spec.Problems], each with file, line and column, what is wrong and what to
//     do. A package that knows more than this one (the router knows templates and predicates) adds a [Check], so that
//     one list holds everything.
//   - Nothing is ignored: unknown keys, duplicate keys, keys without effect, and what this version does not do yet
//     (a server for queries) are problems.
//   - A value is the text of its YAML scalar: password: 0123 is "0123". The environment goes over the file, the file
//     over the defaults.
//   - A [Secret] is printed by nothing but [Secret.Reveal].
//
// The table in keys.go is the one place that names the keys with their types and defaults; loading, printing,
// environment names and documentation all follow it. The keys of mappings and their actions, which come from the file
// alone, are named where they are read: mapping.go, action.go, rebuild.go.
//
// A Config is not written to after it was loaded and may be read by any number of goroutines. There is no state
// apart from it: each load starts from nothing.
package config
