//go:build !linux

package suites

import "syscall"

// diesWithTest: only Linux can.
func diesWithTest() *syscall.SysProcAttr { return nil }
