// Package live looks at a running freshet as an operator does: with a browser at its page, and with a Prometheus that
// scrapes it. It holds tests only.
package live
