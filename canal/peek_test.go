package canal

import "syscall"

// peek reports whether n bytes lie ready on a socket, without taking them.
func peek(fd uintptr, n int) bool {
	m, _, err := syscall.Recvfrom(int(fd), make([]byte, n), syscall.MSG_PEEK)
	return err == nil && m >= n
}
