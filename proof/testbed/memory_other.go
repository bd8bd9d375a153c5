//go:build !linux

package testbed

// inMemory returns "": only Linux has a directory that is memory.
func inMemory() string { return "" }
