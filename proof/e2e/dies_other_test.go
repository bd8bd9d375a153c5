//go:build !linux

package e2e

import "syscall"

// diesWithTest: only Linux can.
func diesWithTest() *syscall.SysProcAttr { return nil }
