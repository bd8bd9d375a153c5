package testbed

import "syscall"

// sysProcAttr puts a server into a process group of its own, so that a Ctrl-C in a terminal
// reaches only the program which owns the server, and has the kernel kill it with its parent.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
