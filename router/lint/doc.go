// Package lint looks for what works in mappings, but hardly as it was meant, and says what they need of their servers:
// for `freshet check` and `freshet validate`. It stands next to the path of a row change, not on it: it reads what
// [router.Router.Mappings] describes, and changes none of it, so all of it may be called from any goroutine.
package lint
