package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/freshet/freshet/credential"
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

// Client returns what makes the settings of each connection, from the files as they are then; nil when TLS is disabled.
// section is the path of the keys, for errors. An empty ServerName in the settings is left for the dialer to fill with
// the host that it dials.
func (t TLS) Client(section string) credential.TLS {
	if t.Mode == TLSDisabled || t.Mode == "" {
		return nil
	}
	return func() (*tls.Config, error) {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Mode != TLSVerify}
		var err error
		if t.CAFile != "" {
			if c.RootCAs, err = authorities(t.CAFile); err != nil {
				return nil, unread(section+".ca_file", t.CAFile, err)
			}
		}
		if t.CertFile != "" {
			if c.Certificates, err = certificate(section, t.CertFile, t.KeyFile); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
}

// Shows reports whether somebody on the way to one of the addresses could read what is sent there, or answer instead of
// the server.
func (t TLS) Shows(addresses []string) bool {
	return t.Mode != TLSVerify && slices.ContainsFunc(addresses, func(a string) bool { return !loopback(a) })
}

// unread says that a file of TLS cannot be used.
func unread(key, file string, err error) error {
	return &credential.Error{
		Key: key, What: file + ": " + err.Error(), Err: err,
		Do: "write the right file; it is read again at the next connection",
	}
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

// Server returns the settings to listen with, nil when TLS is disabled. The files are read again for each connection,
// so that a certificate can be exchanged; as long as they cannot be read, what was read last is used. section is the
// path of the keys, for errors. again is given the outcome of each later reading, one at a time.
func (t ServerTLS) Server(section string, again func(error)) (*tls.Config, error) {
	if t.Mode == TLSDisabled || t.Mode == "" {
		return nil, nil
	}
	first, err := t.read(section)
	if err != nil {
		return nil, err
	}
	last, c := first, first.Clone()
	var mu sync.Mutex
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := t.read(section)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last = now
		}
		again(err)
		return last, nil
	}
	return c, nil
}

// read makes the settings from the files as they are now.
func (t ServerTLS) read(section string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if c.Certificates, err = certificate(section, t.CertFile, t.KeyFile); err != nil {
		return nil, err
	}
	if t.ClientCAFile != "" {
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if c.ClientCAs, err = authorities(t.ClientCAFile); err != nil {
			return nil, unread(section+".client_ca_file", t.ClientCAFile, err)
		}
	}
	return c, nil
}

// maxPEM bounds a file of certificates, in bytes. All authorities that systems know are a quarter of a MiB.
const maxPEM = 16 << 20

func authorities(file string) (*x509.CertPool, error) {
	text, err := credential.Content(file, maxPEM)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in it")
	}
	return pool, nil
}

// certificate reads a certificate and its key.
func certificate(section, certFile, keyFile string) ([]tls.Certificate, error) {
	pair, ofKey, err := readPair(certFile, keyFile)
	switch {
	case err == nil:
		return []tls.Certificate{pair}, nil
	case ofKey:
		return nil, unread(section+".key_file", keyFile, err)
	}
	return nil, unread(section+".cert_file", certFile, err)
}

// readPair reads a certificate and its key, or says why not, and whether the file of the key is to blame.
func readPair(certFile, keyFile string) (pair tls.Certificate, ofKey bool, err error) {
	cert, err := credential.Content(certFile, maxPEM)
	if err != nil {
		return pair, false, err
	}
	key, err := credential.Content(keyFile, maxPEM)
	if err != nil {
		return pair, true, err
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		ofKey = holdsCertificate(cert) && !holdsKey(key)
	}
	return pair, ofKey, err
}

// holdsCertificate reports whether there is a certificate in a text.
func holdsCertificate(text []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(text) }

// holdsKey reports whether there is a private key in a text, of a kind that [tls.X509KeyPair] takes.
func holdsKey(text []byte) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return false
		}
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") {
			_, err1 := x509.ParsePKCS8PrivateKey(block.Bytes)
			_, err2 := x509.ParsePKCS1PrivateKey(block.Bytes)
			_, err3 := x509.ParseECPrivateKey(block.Bytes)
			return err1 == nil || err2 == nil || err3 == nil
		}
		text = rest
	}
}
