//go:build !linux

package testbed

import "syscall"

// sysProcAttr puts a server into a process group of its own. Only Linux can have it killed
// together with its parent.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
