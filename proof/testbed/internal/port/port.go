// Package port hands out loopback ports that stay reserved while their server is down, so that
// it can come back at the same address.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports are taken from below the range which Linux uses for outgoing connections, so that the
// port of a stopped server is not taken by a client before it starts again.
const (
	firstPort = 20000
	lastPort  = 32000
)

// A Reservation holds a loopback port for one server, among all processes of this machine
// which use this package. The lock goes with the process.
type Reservation struct {
	Port int
	Addr string // 127.0.0.1:port

	lock *os.File
}

// Reserve finds a free loopback port and holds it until Release.
func Reserve() (*Reservation, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("freshet-testbed-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("testbed: port locks: %w", err)
	}
	for range 500 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("testbed: port locks: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && portFree(port) {
			return &Reservation{Port: port, Addr: loopback(port), lock: lock}, nil
		}
		lock.Close()
	}
	return nil, errors.New("testbed: no free port on 127.0.0.1 between 20000 and 32000")
}

// portFree says if the port can be bound now.
func portFree(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Release gives the port back; on nil it does nothing. The lock file stays: removing it would race with another
// process that has just opened it.
func (r *Reservation) Release() {
	if r != nil {
		r.lock.Close()
	}
}

// loopback returns the address of a port on this machine.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
