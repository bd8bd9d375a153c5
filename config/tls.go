package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSMode is how far a connection is protected.
type TLSMode string

// The modes.
const (
	// TLSDisabled: in the clear.
	TLSDisabled TLSMode = "disabled"
	// TLSPreferred: encrypted when the server offers it, whichever server it is; for the source only, as other
	// protocols cannot ask.
	TLSPreferred TLSMode = "preferred"
	// TLSRequired: encrypted, whichever server it is. Protects against listening, not against somebody who answers
	// instead of the server.
	TLSRequired TLSMode = "required"
	// TLSVerify: encrypted, and the server's certificate is checked against the authorities and its name.
	TLSVerify TLSMode = "verify"
)

// TLS is how freshet connects to a server. The files were readable and fitted together when the configuration was
// loaded.
type TLS struct {
	// Mode is how far the connection is protected. Default disabled.
	Mode TLSMode
	// CAFile holds the authorities to trust, PEM; empty: the system's. With TLSVerify only.
	CAFile string
	// CertFile and KeyFile are the certificate to show, PEM; both or none.
	CertFile, KeyFile string
	// ServerName is what the server's certificate must be for; empty: the host of the address. With TLSVerify only.
	ServerName string
}

// Client returns the settings to dial with, nil when TLS is disabled. An empty ServerName in them is left for the
// dialer to fill with the host that it dials.
func (t TLS) Client() (*tls.Config, error) {
	if t.Mode == TLSDisabled || t.Mode == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Mode != TLSVerify}
	var err error
	if t.CAFile != "" {
		if c.RootCAs, err = authorities(t.CAFile); err != nil {
			return nil, fmt.Errorf("ca_file %s: %w", t.CAFile, err)
		}
	}
	if t.CertFile != "" {
		if c.Certificates, err = certificate(t.CertFile, t.KeyFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ServerTLS is how freshet's own listeners are encrypted.
type ServerTLS struct {
	// Mode is TLSDisabled, the default, or TLSRequired.
	Mode TLSMode
	// CertFile and KeyFile are the listener's certificate, PEM. Needed with TLSRequired.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of clients' certificates, PEM; every client must then show one. Empty: none
	// is asked for.
	ClientCAFile string
}

// Server returns the settings to listen with, nil when TLS is disabled.
func (t ServerTLS) Server() (*tls.Config, error) {
	if t.Mode == TLSDisabled || t.Mode == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if c.Certificates, err = certificate(t.CertFile, t.KeyFile); err != nil {
		return nil, err
	}
	if t.ClientCAFile != "" {
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if c.ClientCAs, err = authorities(t.ClientCAFile); err != nil {
			return nil, fmt.Errorf("client_ca_file %s: %w", t.ClientCAFile, err)
		}
	}
	return c, nil
}

func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, cause(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in it")
	}
	return pool, nil
}

func certificate(certFile, keyFile string) ([]tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file %s: %w", certFile, cause(err))
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("key_file %s: %w", keyFile, cause(err))
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{pair}, nil
}

// cause takes the operation and the path, which the message has already, off an error of package os.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
