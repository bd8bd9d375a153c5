package e2e

import "syscall"

// diesWithTest has the kernel kill a process when the thread that started it ends, so that nothing is left running
// when a test run is killed.
func diesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
