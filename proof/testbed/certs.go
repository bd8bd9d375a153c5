package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLSFiles are the files that a client needs, in PEM.
type TLSFiles struct {
	CA   string // the authority that signed everything; valid for 127.0.0.1 and localhost
	Cert string // a client's certificate, CN=freshet
	Key  string // its key

	broker string // a server's key and certificate
	config *tls.Config
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newTLSFiles makes an authority, and certificates for servers on this machine and for a
// client, in a new directory.
func newTLSFiles(dir string) (*TLSFiles, error) {
	f, err := makeTLSFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("testbed: certificates: %w", err)
	}
	return f, nil
}

func makeTLSFiles(dir string) (*TLSFiles, error) {
	f := &TLSFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem"),
		broker: filepath.Join(dir, "broker.pem"),
	}
	var ca authority
	caCert, _, err := ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "freshet testbed"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "broker"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	clientCert, clientKey, err := ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "freshet"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	f.config = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return f, errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(f.CA, caCert, 0o644), os.WriteFile(f.Cert, clientCert, 0o644), os.WriteFile(f.Key, clientKey, 0o600),
		os.WriteFile(f.broker, append(serverKey, serverCert...), 0o600),
	)
}

// sign makes a certificate with a key of its own, in PEM. The first one is the authority's.
func (a *authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber = new(big.Int).SetBytes([]byte(rand.Text()[:16]))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(0, 1, 0)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return nil, nil, err
		}
		a.key = private
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
