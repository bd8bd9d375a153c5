package login

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

var (
	// ErrClear: the server asked for the password in clear where that would show it.
	ErrClear = errors.New("the server asks for the password in clear (mysql_clear_password), which freshet gives only " +
		"over TLS with a " +
		"verified certificate: set source.tls.mode to verify, or have the user identified by another plugin")
	// ErrNoTLS: the server does not offer TLS.
	ErrNoTLS = errors.New("the server does not offer TLS")
)

// Server is where to log in, and as whom.
type Server struct {
	Address        string // host:port
	User, Password string
	// TLS encrypts the session; nil: not. The password is given in clear only where it verifies the certificate.
	TLS *tls.Config
}

// Connect opens a session. The connection comes from dial, which is called once; it is closed when Connect fails.
func Connect(ctx context.Context, s Server, dial client.Dialer) (c *client.Conn, err error) {
	var w *watch
	defer func() {
		// The library does not expect every answer: a key that is none ends in a panic.
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("log in to %s: the server's answer makes no sense: %v", s.Address, r)
		}
		if err != nil && w != nil {
			_ = w.Conn.Close()
		}
	}()
	watched := func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w = &watch{Conn: raw, verified: s.TLS != nil && !s.TLS.InsecureSkipVerify}
		return w, nil
	}
	c, err = client.ConnectWithDialer(ctx, "tcp", s.Address, s.User, s.Password, "", watched, func(c *client.Conn) error {
		if s.TLS != nil {
			c.SetTLSConfig(s.TLS)
		}
		w.client = c
		return nil
	})
	switch {
	case err == nil:
		w.end()
		return c, nil
	case w != nil && w.refused():
		return nil, ErrClear // the library tells it as a connection that broke
	case strings.Contains(err.Error(), "does not support TLS"):
		return nil, fmt.Errorf("%w: %w", ErrNoTLS, err)
	}
	return nil, err
}

// watch reads along while the client logs in, and breaks off before it answers a server that asks for the password in
// clear: the client answers every such request.
type watch struct {
	net.Conn
	client   *client.Conn
	verified bool
	// tls is the watch over what lies inside TLS; nil as long as there is none.
	tls *watch
	// packet is how the present packet begins: its header, and as much of it as is needed; left is what comes after.
	packet []byte
	left   int
	over   bool
	asked  bool
}

// refused reports whether the server asked for the password in clear, and did not get it.
func (w *watch) refused() bool { return w.asked || w.tls != nil && w.tls.asked }

// clearRequest is how a packet begins that asks for the password in clear.
// Source: MySQL Source Code Documentation, "Protocol::AuthSwitchRequest".
const clearRequest = "\xfe" + mysql.AUTH_CLEAR_PASSWORD + "\x00"

// headerLen is the length of a packet's header: three bytes of length, and a number.
const headerLen = 4

// Read implements net.Conn.
func (w *watch) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if !w.over && !w.verified && w.tls == nil && w.asksForClear(b[:n]) {
		w.asked = true
		return 0, ErrClear
	}
	return n, err
}

// asksForClear takes note of what has come, and reports whether it holds a request for the password in clear.
func (w *watch) asksForClear(b []byte) bool {
	for len(b) > 0 {
		if w.left > 0 {
			n := min(w.left, len(b))
			w.left -= n
			b = b[n:]
			continue
		}
		w.packet = append(w.packet, b[0])
		b = b[1:]
		if len(w.packet) < headerLen {
			continue
		}
		size := int(w.packet[0]) | int(w.packet[1])<<8 | int(w.packet[2])<<16
		text := string(w.packet[headerLen:])
		if text == clearRequest {
			return true
		}
		if len(text) == size || !strings.HasPrefix(clearRequest, text) {
			w.left, w.packet = size-len(text), w.packet[:0]
		}
	}
	return false
}

// Write implements net.Conn. The client makes its TLS connection over this one and then talks through it: the first
// thing that it says there passes here encrypted, before any answer, which is when the watch moves inside.
func (w *watch) Write(b []byte) (int, error) {
	if !w.over && w.tls == nil && w.client != nil && w.client.Conn != nil {
		if inside, ok := w.client.Conn.Conn.(*tls.Conn); ok {
			w.tls = &watch{Conn: inside, verified: w.verified}
			w.client.Conn.Conn = w.tls
		}
	}
	return w.Conn.Write(b)
}

// end takes the watch away: what follows is not the login any more.
func (w *watch) end() {
	w.over = true
	if w.tls != nil {
		w.client.Conn.Conn = w.tls.Conn
		return
	}
	w.client.Conn.Conn = w.Conn
}
