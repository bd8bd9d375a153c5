package testbed

import (
	"context"
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

// A reservation holds a loopback port for one server, among all processes of this machine
// which use this package. The lock goes with the process.
type reservation struct {
	port int
	lock *os.File
}

// reservePort finds a free loopback port and holds it until release.
func reservePort() (*reservation, error) {
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
			return &reservation{port: port, lock: lock}, nil
		}
		lock.Close()
	}
	return nil, errors.New("testbed: no free port on 127.0.0.1 between 20000 and 32000")
}

// portFree says if the port can be bound now.
func portFree(port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// release gives the port back. The lock file stays: removing it would race with another
// process that has just opened it.
func (r *reservation) release() {
	if r != nil {
		r.lock.Close()
	}
}

// loopback returns the address of a port on this machine.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
