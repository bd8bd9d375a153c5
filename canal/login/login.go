package login

import (
	"bytes"
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
	// TLS encrypts the session; nil: not. Where its settings name no host to verify, it is that of Address. The password
	// is given in clear only where it verifies the certificate.
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
	w := &watch{Conn: raw, password: password}
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
		host, _, _ := net.SplitHostPort(s.Address)
		if secured, err = s.TLS.For(host)(); err != nil {
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

// watch reads along while the client logs in. It breaks off before the client answers a server that asks for the
// password in clear, for it answers every such request, and answers itself where the client does not know the plugin.
type watch struct {
	net.Conn
	client   *client.Conn
	verified bool
	// tls is the watch over what lies inside TLS; nil as long as there is none.
	tls *watch
	// password is for plugins that the library does not know.
	password string
	// ready is what has come of the present packet and is not read yet.
	ready []byte
	// secret says that what comes is TLS.
	secret bool
	over   bool
	asked  bool
}

// refused reports whether the server asked for the password in clear, and did not get it.
func (w *watch) refused() bool { return w.asked || w.tls != nil && w.tls.asked }

// clearRequest is how a packet begins that asks for the password in clear.
// Source: MySQL Source Code Documentation, "Protocol::AuthSwitchRequest".
const clearRequest = "\xfe" + mysql.AUTH_CLEAR_PASSWORD + "\x00"

// clientHello is how a client begins TLS, in any version.
// Source: RFC 8446, 5.1: a record of type handshake, and legacy_record_version.
const clientHello = "\x16\x03\x01"

// headerLen is the length of a packet's header: three bytes of length, and a number.
const headerLen = 4

// maxPacket bounds what a server says at a time while we log in.
const maxPacket = 1 << 20

// Read implements net.Conn.
func (w *watch) Read(b []byte) (int, error) {
	if len(w.ready) == 0 {
		if w.over || w.secret {
			return w.Conn.Read(b)
		}
		var err error
		if w.ready, err = w.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

// next reads a packet, and answers it if the library cannot: then it is the packet that follows.
func (w *watch) next() ([]byte, error) {
	packet, err := readPacket(w.Conn, maxPacket)
	if err != nil {
		return nil, err
	}
	switch text := string(packet[headerLen:]); {
	case !w.verified && strings.HasPrefix(text, clearRequest):
		w.asked = true
		return nil, ErrClear
	case strings.HasPrefix(text, parsecRequest):
		return parsec(w.Conn, packet, w.password)
	}
	return packet, nil
}

// Write implements net.Conn. The client makes its TLS connection over this one and then talks through it: the first
// thing that it says there passes here encrypted, before any answer, which is when the watch moves inside. That it
// makes one shows when it begins to: a packet that began with these bytes would be larger than any before the login.
func (w *watch) Write(b []byte) (int, error) {
	w.secret = w.secret || bytes.HasPrefix(b, []byte(clientHello))
	if !w.over && w.tls == nil && w.client != nil && w.client.Conn != nil {
		if inside, ok := w.client.Conn.Conn.(*tls.Conn); ok {
			w.tls = &watch{Conn: inside, verified: w.verified, password: w.password}
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
