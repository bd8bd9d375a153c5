// Package sample is a product to try mutants on.
package sample

// Larger returns the larger number.
func Larger(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// Smaller returns the smaller number.
func Smaller(a, b int) int {
	if a > b {
		return b
	}
	return a
}
