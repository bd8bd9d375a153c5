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

	"github.com/freshet/freshet/credential"
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
	Address string // host:port
	User    string
	// Password is read at each login, and once more when it is refused.
	Password *credential.Source
	// Briefly says that such sessions are opened every few minutes, so that a command for the password is run only when
	// what it printed before is refused.
	Briefly bool
	// TLS encrypts the session; nil: not. The password is given in clear only where it verifies the certificate.
	TLS credential.TLS
}

// Connect opens a session. The connection comes from dial, which is called once for each attempt, so at most twice, and
// before the password is read: no command is run for a server that is not there. The connection is closed when the
// attempt fails. A password or certificate that cannot be read is a [credential.Error].
func Connect(ctx context.Context, s Server, dial client.Dialer) (c *client.Conn, err error) {
	ready, err := dial(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	try := s.Password.Try
	if s.Briefly {
		try = s.Password.Seldom
	}
	err = try(ctx, func(password string) error {
		raw := ready
		if ready = nil; raw == nil {
			if raw, err = dial(ctx, "tcp", s.Address); err != nil {
				return err
			}
		}
		c, err = s.connect(ctx, password, raw)
		return err
	}, isRefused)
	if ready != nil { // there was no password for it
		_ = ready.Close()
	}
	return c, err
}

// isRefused reports whether the server does not take the password.
// Source: MySQL Server Error Message Reference, ER_ACCESS_DENIED_ERROR and ER_ACCESS_DENIED_NO_PASSWORD_ERROR.
func isRefused(err error) bool {
	var e *mysql.MyError
	return errors.As(err, &e) &&
		(e.Code == mysql.ER_ACCESS_DENIED_ERROR || e.Code == mysql.ER_ACCESS_DENIED_NO_PASSWORD_ERROR)
}

// connect makes one attempt over a connection.
func (s *Server) connect(ctx context.Context, password string, raw net.Conn) (c *client.Conn, err error) {
	w := &watch{Conn: raw}
	defer func() {
		// The library does not expect every answer: a key that is none ends in a panic.
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("log in to %s: the server's answer makes no sense: %v", s.Address, r)
		}
		if err != nil {
			_ = w.Conn.Close()
		}
	}()
	var secured *tls.Config
	if s.TLS != nil {
		if secured, err = s.TLS(); err != nil {
			return nil, err
		}
	}
	w.verified = secured != nil && !secured.InsecureSkipVerify
	dialled := func(context.Context, string, string) (net.Conn, error) { return w, nil }
	c, err = client.ConnectWithDialer(ctx, "tcp", s.Address, s.User, password, "", dialled, func(c *client.Conn) error {
		if secured != nil {
			c.SetTLSConfig(secured)
		}
		w.client = c
		return nil
	})
	switch {
	case err == nil:
		w.end()
		return c, nil
	case w.refused():
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
