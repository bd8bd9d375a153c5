package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

// dial connects to a broker, encrypts and logs in. The library is given connections that are ready: its own way would
// close neither those whose encryption fails nor bound the time of a login, would not log in again before a session
// expires, and would not say who refused whom. The password is read once the broker has answered, so that no command is
// run for one that is away, and again when it is refused: on another connection then, since the broker closes this one.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout()+c.o.Login.patience())
	defer cancel()
	k, err := c.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c.o.Login == nil {
		return k, nil
	}
	ready := k
	err = c.o.Login.secret.Try(ctx, func(secret string) error {
		if k, ready = ready, nil; k == nil {
			if k, err = c.open(ctx, network, address); err != nil {
				return err
			}
		}
		if err := k.login(ctx, secret); err != nil {
			_ = k.Close()
			return err
		}
		return nil
	}, isRefusedLogin)
	if err == nil {
		return k, nil
	}
	if ready != nil { // there was nothing to log in with
		_ = ready.Close()
	}
	var told *Error
	if !errors.As(err, &told) {
		err = c.refusedLogin(address, err)
	}
	return nil, err
}

// isRefusedLogin reports whether the broker does not take the password or token.
func isRefusedLogin(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == Unauthenticated && errors.Is(err, kafka.SASLAuthenticationFailed)
}

// open connects to a broker and encrypts.
func (c *Client) open(ctx context.Context, network, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout())
	defer cancel()
	raw, err := c.o.Dial(ctx, network, address)
	if err != nil {
		return nil, c.unreachable(address, err)
	}
	k := &conn{Conn: raw, raw: raw, client: c, broker: address}
	if !c.track(k) {
		_ = raw.Close()
		return nil, &Error{Class: Ended, What: "connect to broker " + address, Err: errClosed}
	}
	if err := k.within(ctx, func() error { return k.encrypt(ctx) }); err != nil {
		_ = k.Close()
		return nil, err
	}
	return k, nil
}

// within gives what is said on a new connection until the context ends.
func (k *conn) within(ctx context.Context, say func() error) error {
	deadline, _ := ctx.Deadline()
	_ = k.Conn.SetDeadline(deadline)
	raw := k.raw
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := say(); err != nil {
		return err
	}
	if !stop() {
		return &Error{Class: Transient, What: "connect to broker " + k.broker, Err: errors.New("it took too long")}
	}
	return k.Conn.SetDeadline(time.Time{})
}

// encrypt makes the connection one over TLS, if the options say so, with the settings as they are now.
func (k *conn) encrypt(ctx context.Context) error {
	c := k.client
	if c.o.TLS == nil {
		k.Conn = &cleartext{Conn: k.raw}
		return nil
	}
	conf, err := c.o.TLS()
	if err != nil {
		return &Error{Class: Transient, What: "encrypt the connection to broker " + k.broker, Err: err}
	}
	if conf.ServerName == "" { // each broker by its own name
		conf.ServerName, _, _ = net.SplitHostPort(k.broker)
	}
	encrypted := tls.Client(k.raw, conf)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return c.notEncrypted(k.broker, err)
	}
	c.encrypted.Store(true)
	k.Conn, k.verified = encrypted, !conf.InsecureSkipVerify
	return nil
}

// login logs a new connection in.
func (k *conn) login(ctx context.Context, secret string) error {
	ctx, cancel := context.WithTimeout(ctx, k.client.dialTimeout())
	defer cancel()
	if err := k.discreet(); err != nil {
		return err
	}
	return k.within(ctx, func() error {
		lifetime, err := k.client.login(ctx, k.Conn, k.broker, secret)
		if err == nil {
			k.renewIn(lifetime)
		}
		return err
	})
}

// discreet returns an error if a token would be shown on the way to the broker, or to somebody who answers instead of
// it. A token can be used by everybody that has it. Within this machine nobody listens.
func (k *conn) discreet() error {
	if k.client.o.Login.name != bearerName || k.verified {
		return nil
	}
	if at, ok := k.raw.RemoteAddr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		return nil
	}
	return &Error{
		Class: Untrusted, What: "log in to broker " + k.broker + " (" + bearerName + ")",
		Err:    errors.New("the token would be sent in clear, or to a broker whose certificate nobody has looked at"),
		Advice: "set eventlog.kafka.tls.mode to verify",
	}
}

// dialTimeout bounds connecting, encrypting and logging in, so that a broker that hangs leaves time for another.
func (c *Client) dialTimeout() time.Duration { return min(c.o.Timeout, 3*time.Second) }

// unreachable is the sentence for a broker that cannot be connected to.
func (c *Client) unreachable(address string, err error) error {
	e := &Error{Class: Transient, What: "connect to broker " + address, Err: reason(err)}
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		e.Class = Ended
	case errors.As(err, &dns) && dns.IsNotFound:
		e.Advice = "no such host: look at eventlog.kafka.brokers, and at the brokers' advertised.listeners"
	}
	return e
}

// notEncrypted is the sentence for an encryption that failed.
func (c *Client) notEncrypted(broker string, err error) error {
	e := &Error{Class: Untrusted, What: "encrypt the connection to broker " + broker, Err: reason(err)}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &authority):
		e.Advice = "set eventlog.kafka.tls.ca_file to the authority that signed the brokers' certificates"
	case errors.As(err, &name):
		e.Advice = "set eventlog.kafka.tls.server_name to a name in the certificate, or name the brokers as it does"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.Advice = "renew the broker's certificate, or correct this machine's clock"
	case errors.As(err, &header):
		e.Err = errors.New("the broker does not encrypt on this port")
		e.Advice = "set eventlog.kafka.tls.mode to disabled, or use the port of its TLS listener"
	case errors.As(err, &alert):
		e.Advice = "the broker refuses us: it may want a certificate of ours (eventlog.kafka.tls.cert_file), or another " +
			"version of TLS"
	case untrusted(err):
	case hungUp(err) && !c.encrypted.Load():
		// A broker that does not encrypt takes our first bytes for a request of 370 MB and hangs up. After a handshake
		// that worked it is but a broker that goes away.
		e.Err = errors.New("the broker hung up during the handshake")
		e.Advice = "does this port encrypt? If not, set eventlog.kafka.tls.mode to disabled or use the port of its TLS " +
			"listener"
	default:
		e.Class = Transient
	}
	return e
}

// hungUp tells whether the other side closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// reason takes what the sentence has already (operation, addresses) off an error of package net.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errHungUp
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errTimeout
	}
	return err
}

// errHungUp is what the end of a connection is called.
var errHungUp = errors.New("the broker hung up")

// errTimeout is what passed deadlines of our own are called.
var errTimeout = errors.New("no answer in time")
