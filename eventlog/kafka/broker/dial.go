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
)

// dial connects to a broker, encrypts and logs in. The library is given connections that are ready: its own way would
// close neither those whose encryption fails nor bound the time of a login, would not log in again before a session
// expires, and would not say who refused whom.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
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
	if err := k.prepare(ctx); err != nil {
		_ = k.Close()
		return nil, err
	}
	return k, nil
}

// prepare encrypts and logs in, within the context's time.
func (k *conn) prepare(ctx context.Context) error {
	c := k.client
	deadline, _ := ctx.Deadline()
	_ = k.Conn.SetDeadline(deadline)
	raw := k.raw
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.o.TLS == nil {
		k.Conn = &cleartext{Conn: raw}
	} else {
		conf := c.o.TLS
		if conf.ServerName == "" { // each broker by its own name
			conf = conf.Clone()
			conf.ServerName, _, _ = net.SplitHostPort(k.broker)
		}
		encrypted := tls.Client(raw, conf)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return c.notEncrypted(k.broker, err)
		}
		c.encrypted.Store(true)
		k.Conn = encrypted
	}
	if c.o.SASL != nil {
		lifetime, err := c.login(ctx, k.Conn, k.broker)
		if err != nil {
			return err
		}
		k.renewIn(lifetime)
	}
	if !stop() {
		return &Error{Class: Transient, What: "connect to broker " + k.broker, Err: errors.New("it took too long")}
	}
	return k.Conn.SetDeadline(time.Time{})
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
