package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/credential/credentialtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "s3cret-canary"

// impostor is a server that asks for the password in its own way, and notes all that it is told.
type impostor struct {
	tls   *tls.Config
	ask   []byte // the packet that it answers the first response with
	then  []byte // and the next
	heard bytes.Buffer
	roots *tls.Config
	// plugin answers the first response instead; nil: ask and then do.
	plugin func(c net.Conn, seq byte)
	served chan struct{}
}

func newImpostor(t *testing.T, secure bool, ask ...string) (*impostor, string) {
	t.Helper()
	i := &impostor{ask: []byte(ask[0]), then: []byte("\x00\x00\x00\x02\x00\x00\x00")}
	if len(ask) > 1 {
		i.then = []byte(ask[1])
	}
	if secure {
		certified := httptest.NewTLSServer(nil)
		i.tls = &tls.Config{Certificates: certified.TLS.Certificates}
		i.roots = &tls.Config{
			RootCAs:    certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
			ServerName: "example.com",
		}
		certified.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i.served = make(chan struct{})
	go func() {
		defer close(i.served)
		c, err := l.Accept()
		if err == nil {
			i.serve(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-i.served
	})
	return i, l.Addr().String()
}

// serve logs one client in.
// Source: MySQL Source Code Documentation, "Connection Phase".
func (i *impostor) serve(c net.Conn) {
	defer func() { c.Close() }()
	low, high := "\xff\xff", "\xff\xdf"
	if i.tls == nil {
		low = "\xff\xf7" // without CLIENT_SSL (0x0800)
	}
	hello := "\x0a8.4.0\x00\x01\x00\x00\x0012345678\x00" + low + "\x2d\x02\x00" + high + "\x15" +
		strings.Repeat("\x00", 10) +
		"123456789012\x00mysql_native_password\x00"
	send(c, 0, hello)
	body, seq, err := i.receive(c)
	if err != nil {
		return
	}
	if i.tls != nil && len(body) == 32 { // asks for TLS
		secured := tls.Server(c, i.tls)
		if secured.Handshake() != nil {
			return
		}
		c = secured
		if _, seq, err = i.receive(c); err != nil {
			return
		}
	}
	if i.plugin != nil {
		i.plugin(c, seq)
		return
	}
	send(c, seq, string(i.ask))
	if _, seq, err = i.receive(c); err != nil {
		return
	}
	send(c, seq, string(i.then))
	_, _, _ = i.receive(c) // until the client is gone
}

// receive reads a packet and returns the number of the next.
func (i *impostor) receive(c net.Conn) ([]byte, byte, error) {
	var h [4]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return nil, 0, err
	}
	body := make([]byte, int(h[0])|int(h[1])<<8|int(h[2])<<16)
	_, err := io.ReadFull(c, body)
	i.heard.Write(body)
	return body, h[3] + 1, err
}

func send(c net.Conn, seq byte, body string) {
	n := len(body)
	_, _ = c.Write(append([]byte{byte(n), byte(n >> 8), byte(n >> 16), seq}, body...))
}

func connect(t *testing.T, address string, conf *tls.Config) error {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &drip{c}, nil
	}
	at := Server{Address: address, User: "u", Password: credential.Text(password), TLS: credentialtest.Fixed(conf)}
	c, err := Connect(t.Context(), at, dial)
	if err == nil {
		c.Close()
	}
	return err
}

// drip delivers what it reads byte by byte, as a network may.
type drip struct{ net.Conn }

func (d *drip) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return d.Conn.Read(b[:1])
}

func TestThePasswordIsNotGivenInClearToAServerThatIsNotVerified(t *testing.T) {
	for name, secure := range map[string]bool{"no TLS": false, "TLS without a verified certificate": true} {
		t.Run(name, func(t *testing.T) {
			i, address := newImpostor(t, secure, clearRequest)
			var conf *tls.Config
			if secure {
				conf = &tls.Config{InsecureSkipVerify: true}
			}
			if err := connect(t, address, conf); !errors.Is(err, ErrClear) {
				t.Errorf("%v, want ErrClear", err)
			}
			if bytes.Contains(i.heard.Bytes(), []byte(password)) {
				t.Error("the server was told the password")
			}
		})
	}
}

func TestAVerifiedServerMayAskForThePasswordInClear(t *testing.T) {
	i, address := newImpostor(t, true, clearRequest)
	if err := connect(t, address, i.roots); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(i.heard.Bytes(), []byte(password)) {
		t.Error("the server was not told the password")
	}
}

func TestAServerWithoutTLSIsToldApart(t *testing.T) {
	_, address := newImpostor(t, false, clearRequest)
	if err := connect(t, address, &tls.Config{InsecureSkipVerify: true}); !errors.Is(err, ErrNoTLS) {
		t.Errorf("%v, want ErrNoTLS", err)
	}
}

func TestOtherPluginsThatShowThePasswordAreNotAnswered(t *testing.T) {
	for _, plugin := range []string{"mysql_old_password", "dialog", "authentication_ldap_sasl_client"} {
		i, address := newImpostor(t, false, "\xfe"+plugin+"\x00")
		if err := connect(t, address, nil); err == nil {
			t.Errorf("%s was answered", plugin)
		}
		if bytes.Contains(i.heard.Bytes(), []byte(password)) {
			t.Errorf("%s was told the password", plugin)
		}
	}
}

// A server that names what is no key: the library would panic.
func TestAnAnswerThatMakesNoSenseIsAnError(t *testing.T) {
	_, address := newImpostor(t, false, "\xfesha256_password\x0012345678901234567890\x00", "\x01no key")
	if err := connect(t, address, nil); err == nil || !strings.Contains(err.Error(), "makes no sense") {
		t.Errorf("%v", err)
	}
}
